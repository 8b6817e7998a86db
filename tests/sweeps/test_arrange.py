"""The corpora of a sweep: each is read once, and all cases of one seed are checked before the next seed's is read."""

import threading
from dataclasses import replace
from typing import Any

import pytest

import sweeps.arrange
from fedtext.config.experiment import Experiment
from fedtext.errors import UserError
from sweeps.arrange import corpora_of
from tests.planned import experiment
from tune_spaces.cases import Case, cases


def _cases(given: Experiment) -> list[Case]:
    return cases(given.model_dump(mode="json"), given, "test")


def _read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the seeds of the corpora that are prepared from now on."""
    seeds: list[int] = []
    prepare = sweeps.arrange.prepare

    def counted(config: Any, embedding: Any, seed: int, *more: Any) -> Any:
        seeds.append(seed)
        return prepare(config, embedding, seed, *more)

    monkeypatch.setattr(sweeps.arrange, "prepare", counted)
    return seeds


def test_a_corpus_is_read_once_for_all_cases_of_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = _read(monkeypatch)
    given = experiment(seeds=3, tune={"metric": "Ag"}, space={"training.optimizer.lr": {"grid": [0.01, 0.1]}})
    assert len(corpora_of(given, _cases(given), None)) == 3
    assert sorted(seeds) == [0, 1, 2]


def test_a_case_that_cannot_use_its_corpus_is_refused_before_the_next_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = _read(monkeypatch)
    given = experiment(
        seeds=3,
        tune={"metric": "Ag"},
        corpus={"name": "demo", "clients": 3, "train": 12, "test": 6},
        adversaries={"attack": "label_flip", "fraction": 0},
        space={"adversaries.fraction": {"grid": [0, 0.1, 0.4]}},
    )
    with pytest.raises(UserError, match="less than half a client"):
        corpora_of(given, _cases(given), None)
    assert seeds == [0]


def test_test_texts_are_compared_with_train_texts_for_audits_alone() -> None:
    given = experiment(tune={"metric": "Ag"}, space={"training.optimizer.lr": {"grid": [0.01, 0.1]}}, baselines=[])
    plain, other = _cases(given)
    audited = replace(other, experiment=experiment(audits=["membership"]))
    ((name, alone),) = corpora_of(given, [plain], None).items()
    assert alone.repeated == ()
    (both,) = corpora_of(given, [plain, audited], None).values()
    assert len(both.repeated) == len(both.clients) > 0
    (later,) = corpora_of(given, [audited], None, {name: alone}).values()  # as a search suggests one after the other
    assert [each.tolist() for each in later.repeated] == [each.tolist() for each in both.repeated]
    assert corpora_of(given, [plain], None, {name: later})[name] is later


def test_it_is_said_which_corpus_is_being_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said, prepare, say = threading.Event(), sweeps.arrange.prepare, sweeps.arrange.say

    def slow(*facts: Any) -> Any:
        assert said.wait(60)
        return prepare(*facts)

    def saying(sentence: str) -> None:
        say(sentence)
        said.set()

    for name, value in (("READING_S", 0.01), ("prepare", slow), ("say", saying)):
        monkeypatch.setattr(sweeps.arrange, name, value)
    given = experiment()
    corpora_of(given, _cases(given)[:1], None)
    assert capsys.readouterr().err == "reading the texts of corpus demo\n"
