"""The folder of a trained model: what it predicts, what it gives away, and what is no such folder."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import load_file

import fedtext
from fedtext.errors import UserError
from fedtext.state import model_folder
from tests.checkpoints import SCRATCH
from tests.fedtext.api.test_api import SMALL
from tests.fedtext.config.plugged import CONTENT, MINE
from tests.loops import nonempty


def test_what_a_folder_gives_away_is_chosen_and_said(tmp_path: Path) -> None:
    shared = fedtext.run(SMALL | {"method": "kteps"}, "save.model=shared")
    shared.save(tmp_path / "shared")
    assert not (tmp_path / "shared" / "clients").exists()
    about = json.loads((tmp_path / "shared" / "model.json").read_text())
    assert about["names"] == []
    assert ["vocabulary" in sentence for sentence in about["gives_away"]] == [False, True]
    assert not any(nonempty("private" in name for name in shared.state))
    with pytest.raises(fedtext.UserError, match="no part of client films: train it with save"):
        shared.model.predict(["a plot"], client="films")
    own = fedtext.run(SMALL | {"method": "fedevocab"}, "save.model=shared")
    own.save(tmp_path / "own")
    assert sorted(path.name for path in (tmp_path / "own").iterdir()) == [
        *("experiment.yaml", "ledger.json", "model.json", "model.safetensors", "rows.json")
    ], "no vocabulary: each client's is its own"
    with pytest.raises(fedtext.UserError, match="fedevocab has no whole shared model: train"):
        own.model.predict(["a plot"])
    kept = fedtext.run(SMALL | {"method": "fedevocab"})
    kept.save(tmp_path / "kept")
    words = json.loads((tmp_path / "kept" / "clients" / "00000" / "vocabulary.json").read_text())
    train = {word for text in kept.experiment.corpus.read(None, 0).clients[0].train.texts for word in text.split()}
    assert set(words) - {"<pad>", "<unk>"} == train


def test_the_labels_of_a_table_are_its_clients(tmp_path: Path) -> None:
    table = tmp_path / "reviews.csv"
    table.write_text("text,label,shop\n" + "".join(f"word {n},class {n % 3},{n // 9}\n" for n in range(18)))
    corpus = {"name": "table", "path": str(table), "client": "shop", "text": {"hash": {"buckets": 8}}}
    run = fedtext.run(SMALL | {"method": "fedavg", "corpus": corpus}, "save.model=shared")
    run.save(tmp_path / "model")
    about = json.loads((tmp_path / "model" / "model.json").read_text())
    assert about["labels"] == ["class 0", "class 1", "class 2"]
    assert [sentence.startswith("the labels: each is that of some client") for sentence in about["gives_away"]] == [
        *(False, True)
    ]


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda folder: (folder / "model.json").unlink(), "has no model.json: give the folder of a model"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"no"), "is damaged"),
        (lambda folder: (folder / "experiment.yaml").unlink(), "cannot be read"),
        (lambda folder: (folder / "model.json").write_text('{"format": 2}'), "has format 2, and this version reads 1"),
        (lambda folder: (folder / "model.json").write_text("{"), "is damaged"),
    ],
)
def test_what_is_no_model_folder_is_refused(damage: Any, sentence: str, tmp_path: Path) -> None:
    fedtext.run(SMALL | {"method": "fedavg"}, "training.rounds=1").save(tmp_path / "model")
    damage(tmp_path / "model")
    with pytest.raises(fedtext.UserError, match=sentence):
        fedtext.Model.load(tmp_path / "model")


def test_a_model_that_is_in_the_folder_of_results_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guides name it runs/NAME/TRIAL/model, which is in $FEDTEXT_HOME if that is set."""
    (tmp_path / "runs" / "first").mkdir(parents=True)
    (tmp_path / "runs" / "first" / "model.json").write_text("{}")
    monkeypatch.setenv("FEDTEXT_HOME", str(tmp_path))
    with pytest.raises(fedtext.UserError, match=f"no model.json: it is in .FEDTEXT_HOME: give {tmp_path}/runs/first$"):
        fedtext.Model.load("runs/first")
    with pytest.raises(fedtext.UserError, match=f"such as {tmp_path}/runs/NAME/TRIAL/model .runs are in .FEDTEXT_HOME"):
        fedtext.Model.load("runs/second")


@pytest.mark.parametrize("init", [{"random": {}}, {"each": {"sources": [{"random": {}}, {"random": {"std": 2.0}}]}}])
def test_a_table_that_nobody_trains_is_written_once_if_it_is_the_same_for_all(
    init: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapted = SCRATCH | {"embedding": {"dim": 8, "init": init}, "positions": 500, "adapter": {"lora": {"rank": 2}}}
    result = fedtext.run(SMALL | {"model": adapted, "method": {"name": "lg_fedavg"}}, "training.rounds=1")
    result.save(tmp_path / "model")
    monkeypatch.setattr(model_folder, "_common", lambda _: {})
    result.save(tmp_path / "earlier")
    shared, earlier = (load_file(tmp_path / name / "model.safetensors") for name in ("model", "earlier"))
    assert (set(shared) - set(earlier)) == ({"embedding.weight"} if "random" in init else set())
    files = sorted(file.relative_to(tmp_path / "earlier") for file in (tmp_path / "earlier" / "clients").rglob("*.*"))
    for file in nonempty(files):
        part, before = (load_file(tmp_path / name / file) for name in ("model", "earlier"))
        assert set(before) - set(part) == set(shared) - set(earlier)
    models = [result.model, *(fedtext.Model.load(tmp_path / name) for name in ("model", "earlier"))]
    for client in nonempty(result.model.clients):
        first, *others = (model.predict(["a superb plot"], client=client)[0].probabilities for model in models)
        assert others == [first, first]


def test_a_folder_is_replaced_whole_or_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = fedtext.run(SMALL | {"method": "fedavg"}, "training.rounds=1")
    result.model.save(tmp_path / "model")
    before = (tmp_path / "model" / "model.json").read_bytes()

    def full(*words: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(model_folder, "save_file", full)
    with pytest.raises(fedtext.UserError, match="No space left on device"):
        result.model.save(tmp_path / "model")
    assert (tmp_path / "model" / "model.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_folder_of_something_else_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result, thesis = fedtext.run(SMALL | {"method": "fedavg"}), tmp_path / "thesis"
    thesis.mkdir()
    result.save(thesis)
    result.save(str(thesis))
    with monkeypatch.context() as here:
        here.chdir(thesis)
        result.model.save(".")
    assert fedtext.Model.load(thesis).predict(["a plot"]) == result.model.predict(["a plot"])
    (thesis / "notes.txt").write_text("all of it")
    for save in nonempty([result.save, result.model.save]):
        with pytest.raises(fedtext.UserError, match=r"thesis also has notes.txt, which would be lost: name another"):
            save(thesis)
    assert (thesis / "notes.txt").read_text() == "all of it"
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "one.tex").write_text("all of it")
    for save in nonempty([result.save, result.model.save]):
        with pytest.raises(fedtext.UserError, match="model is there and has something else than a model, which would"):
            save(tmp_path / "model")
        with pytest.raises(fedtext.UserError, match=r"one.tex is a file, and a model is a folder: name another"):
            save(tmp_path / "model" / "one.tex")
    with pytest.raises(fedtext.UserError, match="model is there and has something else"):
        fedtext.run(SMALL | {"method": "fedavg"}, out=tmp_path)
    (tmp_path / "model" / "one.tex").rename(tmp_path / "rows.json")
    with pytest.raises(fedtext.UserError, match=r"^out: .* has a rows.json, which a run would replace: name another"):
        fedtext.run(SMALL | {"method": "fedavg"}, out=tmp_path)
    assert (tmp_path / "rows.json").read_text() == "all of it"


def test_a_full_disk_is_one_sentence_and_leaves_the_earlier_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = fedtext.run(SMALL | {"method": "fedavg"})
    result.save(tmp_path / "model")
    before = (tmp_path / "model" / "model.safetensors").read_bytes()

    def full(*arguments: Any, **keys: Any) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(model_folder, "save_file", full)
    with pytest.raises(
        fedtext.UserError, match=r"the model: .*/model cannot be written \(No space left on device\): free"
    ):
        result.save(tmp_path / "model")
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_is_no_text_is_not_predicted() -> None:
    model = fedtext.run(SMALL | {"method": "fedavg"}, "training.rounds=1").model
    for given, sentence in (
        ("a superb plot", r"not a single text: write predict\(\[text\]\)"),
        (3, "predict needs a list of texts, not 3"),
        (["superb", 3], "number 1 of the list is 3, which is none"),
        ([None], "number 0 of the list is None"),
    ):
        with pytest.raises(fedtext.UserError, match=sentence):
            model.predict(given)  # type: ignore[arg-type]
    expected = model.predict(["superb", "dreadful"])
    assert model.predict(np.array(["superb", "dreadful"])) == expected  # type: ignore[arg-type]
    assert model.predict(text for text in ("superb", "dreadful")) == expected  # type: ignore[arg-type]
    assert model.predict(np.array([], str)) == []  # type: ignore[arg-type]


def test_a_model_names_the_package_of_a_plug_in_that_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = tmp_path / "site" / "mine_of_others-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine-of-others\nVersion: 1.0\n")
    (about / "top_level.txt").write_text("mine_elsewhere\n")
    (tmp_path / "site" / "mine_elsewhere.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path / "site")
    folder = tmp_path / "model"
    fedtext.run(fedtext.load(CONTENT | {"plugins": ["mine_elsewhere"]})).save(folder)
    expected = {"module": "mine_elsewhere", "name": "mine-of-others", "version": "1.0"}
    assert json.loads((folder / "model.json").read_text())["packages"] == [expected]
    assert fedtext.Model.load(folder).experiment.method.name == "mine"

    experiment = (folder / "experiment.yaml").read_text()
    (folder / "experiment.yaml").write_text(experiment.replace("beta:", "gone:"))
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine-of-others\nVersion: 2.0\n")
    trained = "the model was trained with the package mine-of-others 1.0, and 2.0 is installed here"
    with pytest.raises(UserError, match=rf"there is no key method\.gone.*; {trained}"):
        fedtext.Model.load(folder)

    monkeypatch.syspath_prepend(tmp_path)  # forgets what was found in folders
    (tmp_path / "site").rename(tmp_path / "away")
    monkeypatch.delitem(sys.modules, "mine_elsewhere")
    missing = "needs the plug-in mine_elsewhere of the package mine-of-others 1.0, which is not installed here"
    with pytest.raises(UserError, match=rf'{missing}: install it \(pip install "mine-of-others==1\.0"\)'):
        fedtext.Model.load(folder)
