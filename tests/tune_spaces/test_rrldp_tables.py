"""The tables of the RR-LDP paper: what stands behind their figures."""

from pathlib import Path

import pytest

from fedtext.corpora.imdb import IMDBCorpus
from fedtext.corpora.movielens import MovieLensCorpus
from fedtext.corpora.prepare import prepare
from fedtext.errors import UserError
from fedtext.mechanisms import Quantize, RandomizedResponse
from fedtext.models.vectors import VectorClassifier
from tests.fedtext.corpora.test_movielens import write_latest
from tests.loops import nonempty
from tune_spaces import papers
from tune_spaces.papers import Scale

RRLDP = papers.load("rrldp")
SCENES = [
    (number, scene)
    for number, table in RRLDP.tables.items()
    for scene in RRLDP.scenes
    if any(scene in row.paper for row in table.rows.values())
]


def test_both_halves_of_table_7_are_experiments() -> None:
    assert [number for number, scene in SCENES if scene == "MovieLens"] == ["2", "4", "6", "7", "10"]
    assert {number for number, _ in SCENES} == {str(number) for number in range(1, 11)}


@pytest.mark.parametrize(("number", "scene"), SCENES)
def test_behind_every_figure_stands_an_experiment(number: str, scene: str) -> None:
    table = papers.tables(RRLDP, [number], scene, ())[number]
    for name, (case,) in nonempty(papers.cases(RRLDP, table, scene, Scale(), 1, {})):
        experiment = case.experiment
        assert set(table.rows[name].paper[scene]) <= set(table.read)
        assert isinstance(experiment.corpus, IMDBCorpus if scene == "IMDB" else MovieLensCorpus)
        assert experiment.model.output == "sigmoid"
        for word in nonempty(table.read.values()):
            metric, round_ = papers.metric_of(word, Scale())
            assert metric in ("Ag", "AUC")
            assert experiment.evaluates(round_ or experiment.training.rounds)
        if experiment.method.pooled:
            continue
        assert experiment.training.local_epochs == 1
        assert experiment.training.batch(25_000 // experiment.corpus.clients) == 5_000 // experiment.corpus.clients
        quantize, response = experiment.uplink
        assert isinstance(quantize, Quantize)
        assert isinstance(response, RandomizedResponse)


def test_fasttext_rows_start_from_its_vectors_and_keep_them(tmp_path: Path) -> None:
    """As fastText writes them: a line with how many words and numbers, then a word a line."""
    write_latest(tmp_path, "csv")
    table = papers.tables(RRLDP, ["10"], "MovieLens", ["fastText"])["10"]
    made = {name: case.experiment for name, (case,) in papers.cases(RRLDP, table, "MovieLens", Scale(), 1, {})}
    assert list(made) == ["fastText (100 flat)", "fastText (all averaged)", "fastText (100 averaged)"]
    for experiment in nonempty(made.values()):
        embedding = experiment.model.embedding
        with pytest.raises(
            UserError,
            match=rf"no word vectors at .* or {tmp_path}/wiki-news-300d-1M\.vec: correct .*, put the file there",
        ):
            prepare(experiment.corpus, embedding, 0, tmp_path)
    (tmp_path / "wiki-news-300d-1M.vec").write_text("1 300\nwar " + " ".join(["0.5"] * 300) + "\n")
    for name, experiment in nonempty(made.items()):
        corpus = prepare(experiment.corpus, experiment.model.embedding, 0, tmp_path)
        assert corpus.table_VD is not None
        assert corpus.table_VD[corpus.vocabulary.index("war")].tolist() == [0.5] * 300
        assert experiment.training.optimizer.embedding_lr == 0
        assert isinstance(experiment.model, VectorClassifier)
        assert experiment.model.pooling == ("flat" if "flat" in name else "mean")
        assert experiment.model.words == ("all" if "all" in name else 100)


def test_a_column_may_be_read_after_a_round() -> None:
    assert papers.metric_of("AUC@25", Scale()) == ("AUC", 25)
    assert papers.metric_of("AUC@25", Scale(0.1)) == ("AUC", 2)
    assert papers.metric_of("AUC@1", Scale(0.1)) == ("AUC", 1)
    assert papers.metric_of("AUC", Scale(0.1)) == ("AUC", None)


def test_tables_of_another_scene_are_refused() -> None:
    assert [papers.first_scene(RRLDP, numbers) for numbers in (["1"], ["2", "4"], ["1", "2"], ["77"])] == [
        "IMDB",
        "MovieLens",
        "IMDB",
        "IMDB",
    ]
    with pytest.raises(UserError, match="table 2 has nothing about IMDB"):
        papers.tables(RRLDP, ["2"], "IMDB", ())
