"""The tables of the RR-LDP paper: what stands behind their figures."""

import pytest

from fedtext.corpora.imdb import IMDBCorpus
from fedtext.corpora.movielens import MovieLensCorpus
from fedtext.errors import UserError
from fedtext.mechanisms import Quantize, RandomizedResponse
from tune_spaces import papers
from tune_spaces.papers import Scale

RRLDP = papers.load("rrldp")
SCENE = {number: next(iter(next(iter(table.rows.values())).paper)) for number, table in RRLDP.tables.items()}


@pytest.mark.parametrize("number", RRLDP.tables)
def test_behind_every_figure_stands_an_experiment(number: str) -> None:
    scene = SCENE[number]
    table = papers.tables(RRLDP, [number], scene, ())[number]
    for name, (case,) in papers.cases(RRLDP, table, scene, Scale(), 1, {}):
        experiment = case.experiment
        assert set(table.rows[name].paper[scene]) <= set(table.read)
        assert isinstance(experiment.corpus, IMDBCorpus if scene == "IMDB" else MovieLensCorpus)
        assert experiment.model.output == "sigmoid"
        for word in table.read.values():
            metric, round_ = papers.reading(word, Scale())
            assert metric in ("Ag", "AUC")
            assert experiment.evaluates(round_ or experiment.training.rounds)
        if experiment.method.pooled:
            continue
        assert experiment.training.local_epochs == 1
        assert experiment.training.batch(25_000 // experiment.corpus.clients) == 5_000 // experiment.corpus.clients
        quantize, response = experiment.uplink
        assert isinstance(quantize, Quantize)
        assert isinstance(response, RandomizedResponse)


def test_a_column_may_be_read_after_a_round() -> None:
    assert papers.reading("AUC@25", Scale()) == ("AUC", 25)
    assert papers.reading("AUC@25", Scale(0.1)) == ("AUC", 2)
    assert papers.reading("AUC@1", Scale(0.1)) == ("AUC", 1)
    assert papers.reading("AUC", Scale(0.1)) == ("AUC", None)


def test_tables_of_another_scene_are_refused() -> None:
    assert [papers.first_scene(RRLDP, numbers) for numbers in (["1"], ["2", "4"], ["1", "2"], ["77"])] == [
        "IMDB",
        "MovieLens",
        "IMDB",
        "IMDB",
    ]
    with pytest.raises(UserError, match="table 2 has nothing about IMDB"):
        papers.tables(RRLDP, ["2"], "IMDB", ())
