"""Trained models as a model server calls them."""

from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas
import pytest

import fedtext
from fedtext.api.serving import Server, _load_pyfunc
from fedtext.config.experiment import use
from tests.loops import nonempty

SMALL = ["training.rounds=1", "corpus.clients=2", "corpus.train=20", "corpus.test=10", "evaluation.personalize=null"]
TEXTS = ["a superb plot", "dreadful steering", "a superb plot"]
PLUGIN = """
from typing import Literal
from fedtext.methods import FedAvg

class Elsewhere(FedAvg):
    '''FedAvg by another name.'''

    name: Literal["elsewhere"] = "elsewhere"
"""


def test_rows_are_answered_in_order_whoever_they_are_of(tmp_path: Path) -> None:
    out = tmp_path / "run"
    model = fedtext.run("demo.yaml", "method=fedper", "save.model=clients", *SMALL, out=out).model
    server, (one, two) = _load_pyfunc(str(out / "model")), model.clients
    clients = [two, one, one]
    table = pandas.DataFrame({"text": TEXTS, "client": clients}, index=[7, 3, 5])
    answered = server.predict(table)
    assert list(answered.index) == [7, 3, 5]
    expected = [model.predict([text], client)[0] for text, client in zip(TEXTS, clients, strict=True)]
    for row, told in zip(answered.to_dict("records"), nonempty(expected), strict=True):
        assert isinstance(told, fedtext.Prediction)
        assert (row["label"], row["probability"]) == (told.label, pytest.approx(told.probability, abs=1e-6))
        assert row["probabilities"] == pytest.approx(told.probabilities, abs=1e-6)
    assert answered["probability"].iloc[0] != answered["probability"].iloc[2], "each client has a head of its own"
    for given in ({"text": TEXTS[:1]}, {"text": TEXTS[:1], "client": [None]}, {"text": TEXTS[:1], "client": [""]}):
        with pytest.raises(fedtext.UserError, match="method fedper has no whole shared model: name a client"):
            server.predict(pandas.DataFrame(given))


def test_a_refusal_counts_the_rows_of_the_request_and_is_one_of_mlflows_too(tmp_path: Path) -> None:
    """MLflow's server answers other exceptions with words of its own."""
    out = tmp_path / "run"
    one, two = fedtext.run("demo.yaml", "method=fedper", "save.model=clients", *SMALL, out=out).model.clients
    table = pandas.DataFrame({"text": [*TEXTS[:2], None], "client": [two, one, one]})
    with pytest.raises(fedtext.UserError, match=r"number 2 of the list is (None|nan)") as refused:
        _load_pyfunc(str(out / "model")).predict(table)
    assert isinstance(refused.value, mlflow.exceptions.MlflowException)
    assert refused.value.get_http_status_code() == 400


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"review": ["superb"], "stars": [5]}, "the table needs a column text, and has review, stars"),
        ({}, "the table needs a column text, and has none"),
        ({"text": [3]}, "number 0 of the list is 3"),
        ({"text": ["a"], "client": [1.5]}, "the column client has 1.5, which is no client's name"),
        ({"text": ["a"], "client": [True]}, "the column client has True, which is no client's name"),
        ({"text": ["a"], "client": [["a"]]}, r"the column client has \['a'\], which is no client's name"),
    ],
)
def test_a_table_that_cannot_be_predicted_is_one_sentence(table: dict[str, list[Any]], sentence: str) -> None:
    model = fedtext.run("demo.yaml", "method=fedavg", *SMALL).model
    with pytest.raises(fedtext.UserError, match=sentence):
        Server(model).predict(pandas.DataFrame(table))


def test_a_client_named_by_digits_may_come_as_a_number(tmp_path: Path) -> None:
    rows = "".join(f"{client},word{i % 7} {i},{'good' if i % 2 else 'bad'}\n" for client in (7, 12) for i in range(40))
    (tmp_path / "own.csv").write_text("who,text,label\n" + rows)
    corpus = {"name": "table", "path": str(tmp_path / "own.csv"), "text": "text", "label": "label", "client": "who"}
    experiment = {
        "name": "x",
        "corpus": corpus,
        "method": "fedper",
        "save": {"model": "clients"},
        "training": {"rounds": 1},
    }
    server = Server(fedtext.run(experiment).model)
    named = server.predict(pandas.DataFrame({"text": ["word1"] * 2, "client": ["7", "12"]}))
    assert named.probability[0] != named.probability[1]
    for clients in nonempty([[7, 12], [7.0, 12.0], np.array([7, 12])]):
        pandas.testing.assert_frame_equal(
            server.predict(pandas.DataFrame({"text": ["word1"] * 2, "client": clients})), named
        )


def test_a_language_model_answers_with_next_words_and_perplexity(tmp_path: Path) -> None:
    sentences = ["the cat sat", "the dog sat", "the cat ran"] * 20
    for side in ("train", "test"):
        (tmp_path / f"ptb.{side}.txt").write_text("\n".join(sentences) + "\n")
    experiment = {
        "name": "words",
        "corpus": {"name": "ptb", "clients": 1, "validation": 0.0},
        "model": {"name": "gru_lm", "embedding": {"dim": 4}, "hidden": 4},
        "method": "fedavg",
        "training": {"rounds": 1},
        "evaluation": {"personalize": None},
        "tune": {"metric": "perplexity"},
    }
    model = fedtext.run(experiment, data=tmp_path).model
    (row,) = Server(model).predict(pandas.DataFrame({"text": ["the cat"]})).to_dict("records")
    (told,) = model.predict(["the cat"])
    assert isinstance(told, fedtext.NextWords)
    assert list(zip(row["next_words"], row["probabilities"], strict=True)) == list(told.words)
    assert row["perplexity"] == told.perplexity


def test_plug_ins_run_only_where_they_are_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere.py").write_text(PLUGIN)
    experiment = fedtext.load("demo.yaml", "method=elsewhere", *SMALL, plugins=[tmp_path / "elsewhere.py"])
    fedtext.run(experiment, out=tmp_path / "run")
    use(())
    folder = str(tmp_path / "run" / "model")
    monkeypatch.setattr("fedtext.config.loading.Plugin.is_loaded", False)  # as in another process
    for config in (None, {}, {"trust_plugins": False}):
        with pytest.raises(fedtext.UserError, match=r"needs the plug-in elsewhere\.py.*FEDTEXT_TRUST_PLUGINS=1 in its"):
            _load_pyfunc(folder, config)
    table = pandas.DataFrame({"text": TEXTS})
    assert len(_load_pyfunc(folder, {"trust_plugins": True}).predict(table)) == 3
    monkeypatch.setenv("FEDTEXT_TRUST_PLUGINS", "1")
    assert len(_load_pyfunc(folder).predict(table)) == 3
