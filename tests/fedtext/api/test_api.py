"""The public interface: an experiment is loaded and run in Python, and its model classifies new texts."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fedtext
from fedtext.__main__ import main
from fedtext.methods import METHODS
from fedtext.records import RoundRecord
from fedtext.runtime import lock
from tests.checkpoints import SCRATCH
from tests.loops import nonempty

SMALL: dict[str, Any] = {
    "name": "small",
    "corpus": {"name": "demo", "clients": 3, "train": 24, "test": 15},
    "model": {"embedding": {"dim": 6}, "hidden": 4, "head": {"hidden": 3}},
    "training": {"rounds": 2, "local_epochs": 1, "batch_size": 6, "optimizer": {"lr": 0.1}},
    "evaluation": {"union": {}, "personalize": None},
    "save": {"model": "clients"},
}
PLAIN = [name for name in METHODS if name != "fedrecon"]


def sst2(folder: Path, texts: int = 40) -> Path:
    """Sentences with numbers in them, whose label is whether the number is even."""
    numbers = np.random.default_rng(0).integers(0, 30, 2 * texts)
    words = [f"room {number} is {'good' if number % 3 else 'bad'}" for number in numbers]
    sides = ["train"] * texts + ["test"] * texts
    columns = {"split": sides, "label": (numbers % 2).tolist(), "text": words}
    pq.write_table(pa.table(columns), folder / "sst2.parquet")
    return folder


def share(model: fedtext.Model, texts: list[str], labels: list[int], client: str | None) -> float:
    """The accuracy of a model's predictions."""
    found = model.predict(texts, client)
    assert len(found) == len(texts) > 0
    assert all(nonempty(isinstance(each, fedtext.Prediction) for each in found))
    named = [model.labels[label] for label in labels]
    return sum(each.label == name for each, name in zip(found, named, strict=True)) / len(texts)  # type: ignore[union-attr]


@pytest.mark.parametrize("method", [*PLAIN, {"name": "lg_fedavg", "pretrain": 1}])
def test_predictions_have_the_accuracies_of_the_run(method: Any, tmp_path: Path) -> None:
    """Evaluation reads encoded texts in clients' own rows; ``predict`` reads raw ones from a folder."""
    extra = {"local_epochs": 1} if method == "fedsgd" else {}
    result = fedtext.run(SMALL | {"method": method, "training": SMALL["training"] | extra})
    result.save(tmp_path / "model")
    model, config = fedtext.Model.load(tmp_path / "model"), result.experiment.corpus
    assert model.labels == ("negative", "positive")
    compared = 0
    for client in nonempty(config.read(None, result.experiment.seed).clients):
        texts, labels = list(client.test.texts), client.test.labels.tolist()
        known = result.clients[client.name]
        assert share(model, texts, labels, client.name) == pytest.approx(known["Local"])
        if result.experiment.method.complete and result.experiment.method.shares and method != "asp_mtl":
            assert share(model, texts, labels, None) == pytest.approx(known["Ag"])
            compared += 1
    assert compared == (
        0 if result.experiment.method.name in ("fedevocab", "local_only", "asp_mtl", "fedper", "lg_fedavg") else 3
    )


@pytest.mark.parametrize("method", ["local_only", "lg_fedavg", "fedper", "ditto"])
def test_a_personal_model_with_an_adapter_has_the_word_table_that_nobody_changes(method: str, tmp_path: Path) -> None:
    """The server has it only if the method shares it."""
    model = SCRATCH | {"embedding": {"dim": 8, "init": {"random": {"std": 1.0}}}, "adapter": {"lora": {"rank": 2}}}
    training = SMALL["training"] | {"local_epochs": 6, "optimizer": {"name": "adam", "lr": 0.03}}
    corpus = SMALL["corpus"] | {"max_length": 40}
    result = fedtext.run(SMALL | {"corpus": corpus, "method": method, "model": model, "training": training})
    result.save(tmp_path / "model")
    saved = fedtext.Model.load(tmp_path / "model")
    for client in nonempty(result.experiment.corpus.read(None, result.experiment.seed).clients):
        texts = list(client.test.texts)
        found = share(saved, texts, client.test.labels.tolist(), client.name)
        assert found == pytest.approx(result.clients[client.name]["Local"])
        assert len({str(each) for each in saved.predict(texts, client.name)}) > 10, "words count, not lengths alone"


def test_a_client_of_fedrecon_uses_the_rows_it_made_for_itself(tmp_path: Path) -> None:
    corpus = {"name": "sst2", "clients": 2}
    result = fedtext.run(SMALL | {"method": "fedrecon", "corpus": corpus}, data=sst2(tmp_path))
    for client in nonempty(result.experiment.corpus.read(tmp_path, 0).clients):
        found = share(result.model, list(client.test.texts), client.test.labels.tolist(), client.name)
        assert found == pytest.approx(result.clients[client.name]["Local"])


def test_a_language_model_continues_and_has_the_perplexity_of_the_run(tmp_path: Path) -> None:
    lines = ["the cat sat on the mat", "the dog sat on the cat", "a cat saw the dog"] * 6
    for side, some in (("train", lines), ("valid", lines[:3]), ("test", ["the cat saw the mat"])):
        (tmp_path / f"ptb.{side}.txt").write_text("\n".join(some) + "\n")
    experiment = {
        "name": "words",
        "corpus": {"name": "ptb", "clients": 1, "validation": 0.0},
        "model": {"name": "gru_lm", "embedding": {"dim": 8}, "hidden": 8},
        "method": "fedavg",
        "training": {"rounds": 3, "local_epochs": 4, "batch_size": 4, "optimizer": {"lr": 0.5}},
        "evaluation": {"personalize": None},
    }
    result = fedtext.run(experiment, data=tmp_path)
    (found,) = result.model.predict(["the cat saw the mat"])
    assert isinstance(found, fedtext.NextWords)
    assert found.perplexity == pytest.approx(result.metrics["perplexity"], rel=1e-5)
    assert len(found.words) == 3
    (nothing,) = result.model.predict([""])
    assert isinstance(nothing, fedtext.NextWords)
    assert nothing.words[0][0] in ("the", "a"), "a sentence begins with one of these"
    result.save(tmp_path / "model")
    assert fedtext.Model.load(tmp_path / "model").predict(["the cat"]) == result.model.predict(["the cat"])


def test_a_run_tells_each_round_and_goes_on_only_if_it_is_told_to(tmp_path: Path) -> None:
    told: list[fedtext.RoundRecord] = []
    experiment = fedtext.load(SMALL | {"method": "kteps"})
    whole = fedtext.run(experiment, on_round=told.append, out=tmp_path / "whole")
    assert [record.round for record in told] == [1, 2] == [record.round for record in whole.history]
    assert (tmp_path / "whole" / "model" / "model.json").is_file()
    fedtext.run(experiment, "training.rounds=1", out=tmp_path / "cut")
    with pytest.raises(fedtext.UserError, match="has a run already: name another folder"):
        fedtext.run(experiment, out=tmp_path / "cut")
    cut = fedtext.run(experiment, out=tmp_path / "cut", resume=True)
    assert all(nonempty((cut.state[name] == tensor).all() for name, tensor in whole.state.items()))
    assert len(whole.state) > 3
    assert repr(whole).startswith(f"Result({whole.experiment.name}, method={whole.experiment.method.name}, rounds=")
    assert len(repr(whole)) < 300
    assert repr(whole.model).startswith(f"Model({whole.experiment.name}, method=")
    by_client = whole.clients_to_pandas()
    assert list(by_client.index) == list(whole.clients)
    assert by_client["Ag"].to_dict() == {client: metrics["Ag"] for client, metrics in whole.clients.items()}
    frame = whole.to_pandas()
    assert frame.loc[2, "Ag"] == whole.metrics["Ag"]
    assert whole.ledger[0].epsilon is None


def test_a_run_that_was_begun_otherwise_is_refused_with_what_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["demo.yaml", "training.rounds=1", "corpus.clients=2", "corpus.train=20", "corpus.test=5"]
    folder = tmp_path / "run"
    assert main([*words, "--out", str(folder)]) == 0
    kept = fedtext.load(folder / "experiment.yaml")
    engine = f"training.engine={kept.engine}"  # what auto stands for here
    assert kept == fedtext.load(*words, engine, "space={}", "baselines=[]", "seeds=1")
    capsys.readouterr()
    assert main([*words, "method.lambda1=9", "--out", str(folder)]) == 2
    lambda1 = fedtext.load("demo.yaml").method.lambda1  # type: ignore[attr-defined]
    changed = f"the run in {folder} was begun otherwise (method.lambda1 {lambda1} -> 9.0): name another folder, or"
    assert f"error: --out: {changed} remove that one" in capsys.readouterr().err
    with pytest.raises(fedtext.UserError, match=f"^out: {re.escape(changed)}"):
        fedtext.run(*words, "method.lambda1=9", out=folder, resume=True)
    other = "reference"
    with pytest.raises(fedtext.UserError, match=f'otherwise .training.engine "{kept.engine}" -> "{other}"'):
        fedtext.run(*words, f"training.engine={other}", out=folder, resume=True)
    fedtext.run(*words, "training.rounds=2", out=folder, resume=True)
    assert fedtext.load(folder / "experiment.yaml").training.rounds == 2
    (folder / "experiment.yaml").unlink()
    with pytest.raises(fedtext.UserError, match=r"was begun from other data, with other plug-ins, or by another ver"):
        fedtext.run(*words, "training.rounds=2", "method=fedavg", out=folder, resume=True)


NOISE: dict[str, Any] = {
    "method": "fedavg",
    "uplink": ["clip"],
    "server": {"weights": "uniform", "noise": {"target_epsilon": 8}},
}


def test_a_run_that_cannot_have_other_rounds_is_refused_with_the_reason(tmp_path: Path) -> None:
    fedtext.run(SMALL | NOISE, out=tmp_path)
    why = "server.noise.target_epsilon is spent over the rounds it was begun with; name another folder"
    for rounds, what in nonempty(((3, "more"), (1, "fewer"))):
        with pytest.raises(fedtext.UserError) as refused:
            fedtext.run(SMALL | NOISE, f"training.rounds={rounds}", out=tmp_path, resume=True)
        assert str(refused.value) == f"out: the run in {tmp_path} cannot have {what} rounds: {why}"
    both = r'begun otherwise \(method.name "fedavg" -> "fedsgd", training.rounds 2 -> 3\)'
    with pytest.raises(fedtext.UserError, match=both):
        fedtext.run(SMALL | NOISE, "training.rounds=3", "method=fedsgd", out=tmp_path, resume=True)


def test_rounds_are_not_named_where_a_run_may_have_more(tmp_path: Path) -> None:
    fedtext.run(SMALL | {"method": "fedavg"}, out=tmp_path)
    with pytest.raises(fedtext.UserError, match=r'begun otherwise \(method.name "fedavg" -> "fedsgd"\)'):
        fedtext.run(SMALL | {"method": "fedsgd"}, "training.rounds=3", out=tmp_path, resume=True)


def test_overrides_files_and_contents_say_the_same() -> None:
    by_name = fedtext.load("demo.yaml", "training.rounds=3")
    assert by_name.training.rounds == 3
    assert fedtext.load(by_name) is by_name
    assert fedtext.load(by_name, "training.rounds=4") == fedtext.load("demo", "training.rounds=4")
    with pytest.raises(fedtext.UserError, match="there is no experiment file demos"):
        fedtext.load("demos")
    with pytest.raises(fedtext.UserError, match="did you mean"):
        fedtext.load(SMALL | {"method": "fedavg"}, "training.round=3")


def test_what_there_is_can_be_listed() -> None:
    lists = (
        fedtext.list_methods,
        fedtext.list_mechanisms,
        fedtext.list_corpora,
        fedtext.list_models,
        fedtext.list_audits,
        fedtext.list_aggregations,
    )
    for listed in lists:
        found = listed()
        assert found
        assert all(nonempty((cls.__doc__ or "").strip() for cls in found.values()))
    assert {"kteps", "fedavg"} <= set(fedtext.list_methods())
    assert {"bigru", "lstm", "transformer"} <= set(fedtext.list_models())
    assert set(fedtext.__all__) <= set(dir(fedtext))
    assert all(nonempty(getattr(fedtext, name) for name in fedtext.__all__))


def test_the_command_predicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["demo.yaml", "method=kteps", "training.rounds=1", "corpus.clients=2", "corpus.train=20", "corpus.test=5"]
    assert main([*words, "save.model=clients", "--out", str(tmp_path)]) == 0
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "model"), "a superb kettle", "--client", "films"]) == 0
    label, probability, *text = capsys.readouterr().out.split()
    assert label in ("negative", "positive")
    assert 0.5 <= float(probability) <= 1
    assert text == ["a", "superb", "kettle"]
    assert main(["predict", str(tmp_path / "model"), "a", "--client", "nobody"]) == 2
    assert "no part of client nobody: it has appliances, films" in capsys.readouterr().err
    assert main(["predict", str(tmp_path), "a"]) == 2
    sentence = f"error: {tmp_path} has no model.json, and {tmp_path / 'model'} has one: give {tmp_path / 'model'}\n"
    assert capsys.readouterr().err == sentence


PLAINEST = SMALL | {"method": "fedavg"}
WRONG_CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "an experiment": (lambda: fedtext.run(3), "an experiment is the path of a file, a mapping .* and not 3$"),  # type: ignore
    "an override": (lambda: fedtext.run(PLAINEST, {"method": 1}), "{'method': 1} is not key=value"),  # type: ignore
    "no memory": (lambda: fedtext.run(PLAINEST, device="meta"), "^device: meta is not available .its tensors have no"),
    "device": (lambda: fedtext.run(PLAINEST, device="gpu"), "^device: gpu is not available"),
    "data": (lambda: fedtext.run(PLAINEST, data="/nowhere"), "^data: there is no folder /nowhere$"),
    "a file": (lambda: fedtext.run(PLAINEST | {"corpus": "sst2"}, data="/tmp"), "give its folder with data=FOLDER or"),
}


@pytest.mark.parametrize("call", WRONG_CALLS)
def test_a_wrong_argument_is_named_as_python_has_it(call: str) -> None:
    with pytest.raises(fedtext.UserError, match=WRONG_CALLS[call][1]):
        WRONG_CALLS[call][0]()


WRONG_WORDS = {
    "device": (["--device", "gpu"], "error: --device: gpu is not available"),
    "data": (["--data", "/nowhere"], "error: --data: there is no folder /nowhere"),
    "a file": (["corpus=sst2", "--data", "/tmp"], "give its folder with --data FOLDER or"),
}


@pytest.mark.parametrize("option", WRONG_WORDS)
def test_a_wrong_option_is_named_as_the_command_line_has_it(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, sentence = WRONG_WORDS[option]
    assert main(["demo.yaml", "training.rounds=1", *words]) == 2
    assert sentence in capsys.readouterr().err
    with pytest.raises(fedtext.UserError, match=r"^device: gpu"):  # whatever command ran before
        fedtext.run(PLAINEST, device="gpu")


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(fedtext.UserError, match=r"^out: .*/file cannot be written"):
        fedtext.run("kteps.yaml", data=tmp_path / "nowhere", out=tmp_path / "file")


def test_one_run_at_a_time_works_on_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "PATIENCE_S", 0.0)
    experiment, refused = SMALL | {"method": "fedavg"}, []

    def run_too(record: RoundRecord) -> None:
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(fedtext.UserError, match=r"^out: .*mine is being worked on by another command: wait for it"):
            fedtext.run(experiment, out=tmp_path / "mine", resume=True)
        assert sorted(tmp_path.rglob("*")) == before
        refused.append(record.round)

    fedtext.run(experiment, out=tmp_path / "mine", on_round=run_too)
    assert refused == [1, 2]
    assert not list(tmp_path.rglob(".lock"))
    assert len(fedtext.run(experiment, out=tmp_path / "mine", resume=True).history) == 2


def test_an_experiment_file_in_the_folder_of_a_run_is_not_replaced(tmp_path: Path) -> None:
    mine = tmp_path / "experiment.yaml"
    for content in ("name: mine\ncorpus: demo\n", "training: 3\n"):
        mine.write_text(content)
        with pytest.raises(
            fedtext.UserError, match=r"^out: .*/experiment.yaml is not of a run, which would replace it"
        ):
            fedtext.run("demo.yaml", out=tmp_path)
        assert mine.read_text() == content
