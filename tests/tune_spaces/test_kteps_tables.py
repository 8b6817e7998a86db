"""The tables of the KTEPS paper: the experiments behind their rows, and what is said of these."""

import pytest

from fedtext.errors import UserError
from tests.loops import nonempty
from tune_spaces import papers
from tune_spaces.papers import Scale
from tune_spaces.papers.notes import not_run, pairs, personalization_notes, training_notes, vector_notes

KTEPS = papers.load("kteps")
PRINTED = [(number, scene) for number in KTEPS.tables for scene in KTEPS.scenes if (number, scene) != ("8", "IYY")]


@pytest.mark.parametrize(("number", "scene"), PRINTED)
def test_behind_every_figure_stands_an_experiment(number: str, scene: str) -> None:
    found = papers.tables(KTEPS, [number], scene, ())[number]
    for name, cases in nonempty(papers.cases(KTEPS, found, scene, Scale(), 2, {})):
        assert [case.experiment.seed for case in cases] == [0, 1]
        assert set(found.rows[name].paper[scene]) <= set(found.read)
        rounds = {"FDU": 50, "IYY": 20}[scene]
        assert all(nonempty(case.experiment.training.rounds == rounds for case in cases))
        readings = {*cases[0].experiment.evaluation.personalize.variants(), "Ag"}
        assert set(found.read.values()) <= readings | {"Ap"}


def test_a_figure_that_stands_in_several_tables_is_run_once() -> None:
    made = {
        n: dict(papers.cases(KTEPS, KTEPS.tables[n], "FDU", Scale(), 1, {})) for n in ("2", "3", "4", "5", "6", "7")
    }
    kteps = {made["2"]["KTEPS"][0].id, made["3"]["KTEPS"][0].id}
    assert kteps == {made["4"]["lambda1=0.01 lambda2=0.01"][0].id}
    assert made["5"]["KTEPS"][0].id == made["6"]["KTEPS"][0].id
    assert made["2"]["KTEPS*"][0].id == made["7"]["d1=2 d2=150"][0].id
    assert len({cases[0].id for rows in made.values() for cases in rows.values()}) == 18 + 8 + 7 + 2


@pytest.mark.parametrize("scene", KTEPS.scenes)
def test_kteps_star_differs_from_kteps_in_the_projection_alone(scene: str) -> None:
    table = papers.tables(KTEPS, ["3"], scene, ())["3"]
    made = {row: cases[0].experiment for row, cases in papers.cases(KTEPS, table, scene, Scale(), 1, {})}
    for which in ("", " own"):
        kteps, star = made[f"KTEPS{which}"], made[f"KTEPS*{which}"]
        assert [mechanism.name for mechanism in star.uplink] == ["project", "gaussian"]
        assert star.model_copy(update={"uplink": kteps.uplink}) == kteps
        assert kteps.own_rows == bool(which)
    personalize = made["KTEPS"].evaluation.personalize
    assert personalize is not None
    assert (personalize.steps, personalize.every) == (25, 1), "Z and z of equation 16"


def test_a_table_says_how_often_ap_was_evaluated() -> None:
    def said(number: str, **changes: object) -> list[str]:
        table = papers.tables(KTEPS, [number], "FDU", ())[number]
        return personalization_notes(table, dict(papers.cases(KTEPS, table, "FDU", Scale(), 1, changes)))

    mean = "Ap: the mean of n_Z = 25 accuracies, after every z = 1 of 25 steps of fine-tuning (equation 16)."
    assert said("3") == said("5") == [mean]
    assert said("2") == []
    assert said("3", **{"evaluation.personalize.every": 5}) == [
        mean.replace("25 acc", "5 acc").replace("z = 1", "z = 5")
    ]
    (one,) = said("3", **{"evaluation.personalize.every": 25})
    assert one.startswith("Ap: one accuracy, after every z = 25 of 25 steps")


def test_table_8_has_no_projections_and_no_diversity() -> None:
    for name, (case,) in nonempty(papers.cases(KTEPS, KTEPS.tables["8"], "FDU", Scale(), 1, {})):
        made = case.experiment.method.model_dump()
        assert (made["projection"], made["lambda2"]) == (False, 0.0), name
        assert made["architecture"] == {"A": "classifier", "B": "encoder", "C": "everything"}[name[0]]


def test_what_makes_a_row_is_not_to_be_set() -> None:
    table = KTEPS.tables["4"]
    with pytest.raises(UserError, match=r"method\.lambda1 is not to be set for KTEPS, whose method is what"):
        dict(papers.cases(KTEPS, table, "FDU", Scale(), 1, {"method.lambda1": 0.05}))
    with pytest.raises(UserError, match=r"evaluation\.personalize is not to be set for KTEPS, whose evaluation\.pers"):
        dict(papers.cases(KTEPS, KTEPS.tables["5"], "FDU", Scale(), 1, {"evaluation.personalize": None}))
    dict(papers.cases(KTEPS, table, "FDU", Scale(), 1, {"evaluation.personalize.every": 25, "model.hidden": 8}))
    for key, value in (("training", {"rounds": "many"}), ("training.rounds", "abc"), ("corpus.share", None)):
        with pytest.raises(UserError, match=key.partition(".")[0]):
            dict(papers.cases(KTEPS, table, "FDU", Scale(0.1), 1, {key: value}))
    ((_, (demo,)), *_) = papers.cases(KTEPS, table, "FDU", Scale(0.1), 1, {"corpus": "demo"})
    assert (demo.experiment.corpus.name, demo.experiment.corpus.share) == ("demo", 0.1)


def test_a_scale_shortens_rounds_and_texts_and_nothing_else() -> None:
    row = papers.tables(KTEPS, ["2"], "FDU", ["KTEPS"])["2"]
    ((_, (whole,)),) = papers.cases(KTEPS, row, "FDU", Scale(), 1, {})
    ((_, (short,)),) = papers.cases(KTEPS, row, "FDU", Scale(0.1), 1, {})
    assert (short.experiment.training.rounds, short.experiment.corpus.share) == (5, 0.1)
    assert short.id != whole.id
    ((_, (both,)),) = papers.cases(KTEPS, row, "FDU", Scale(0.1), 1, {"training.rounds": 20, "corpus.share": 0.5})
    assert (both.experiment.training.rounds, both.experiment.corpus.share) == (2, 0.05)
    restored = short.experiment.model_copy(
        update={
            "training": short.experiment.training.model_copy(update={"rounds": 50}),
            "corpus": short.experiment.corpus.model_copy(update={"share": 1.0}),
        }
    )
    assert restored == whole.experiment


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(UserError, match="there is no paper ktep: choose fedatt, fedevocab, kteps, rrldp"):
        papers.load("ktep")
    with pytest.raises(UserError, match="no table 1 of results: choose 2, 3, 4, 5, 6, 7, 8"):
        papers.tables(KTEPS, ["2", "1"], "FDU", ())
    with pytest.raises(UserError, match="table 8 has nothing about IYY"):
        papers.tables(KTEPS, ["8"], "IYY", ())
    for word in ("seeds=4", "tune.scheduler=asha"):
        with pytest.raises(UserError, match=r"--set: (seeds|tune\.scheduler) is not to be set here"):
            papers.changes(["training.rounds=3", word])
    with pytest.raises(UserError, match=r"--methods: table 5 has no FedAvg: choose among KTEPS, KTEPS\*"):
        papers.tables(KTEPS, ["5"], "FDU", ["FedAvg"])
    with pytest.raises(UserError, match="--methods: table 2 and table 3 has no FedPro: choose among Indiv"):
        papers.tables(KTEPS, ["2", "3"], "FDU", ["FedAvg", "FedPro"])
    with pytest.raises(UserError, match="table 2 has none of FedPer: leave it out, or choose among Indiv"):
        papers.tables(KTEPS, ["2", "3"], "FDU", ["FedPer"])


def test_a_system_may_stand_in_one_of_several_tables_only() -> None:
    found = papers.tables(KTEPS, ["2", "3"], "FDU", ["FedAvg", "FedPer"])
    assert {number: list(table.rows) for number, table in found.items()} == {"2": ["FedAvg"], "3": ["FedAvg", "FedPer"]}


def test_rows_are_tested_against_fedavg_or_the_first() -> None:
    found = papers.tables(KTEPS, ["2"], "FDU", ["FedAvg", "KTEPS", "Indiv."])["2"]
    assert set(pairs(KTEPS, found)) == {("KTEPS", "FedAvg"), ("Indiv.", "FedAvg")}
    alone = KTEPS.tables["7"]
    assert {other for _, other in pairs(KTEPS, alone)} == {next(iter(alone.rows))}
    fedatt = papers.load("fedatt")
    table = papers.tables(fedatt, ["II"], "PTB", ())["II"]
    against = {one: other for one, other in pairs(fedatt, table) if other.startswith("FedAvg")}
    assert against["FedAtt spectral C=0.5"] == "FedAvg C=0.5"
    assert "FedSGD" not in against, "all clients take part in its rounds"
    assert not_run(table, "PTB", {"FedSGD", "FedAvg C=0.1", "FedAtt C=0.1", "FedAtt C=0.5"}) == [
        *("FedAtt uniform C=0.1 (not in the paper)", "FedAtt spectral C=0.1 (not in the paper)", "FedAvg C=0.5"),
        *("FedAtt uniform C=0.5 (not in the paper)", "FedAtt spectral C=0.5 (not in the paper)"),
    ]


def test_how_rows_were_trained_is_said() -> None:
    table = papers.tables(papers.load("fedatt"), ["II"], "PTB", (), ["FedSGD", "Fed* C=0.1"])["II"]
    changes = {"training.rounds": 10, "training.optimizer.lr": 0.3}
    first, other = training_notes(dict(papers.cases(papers.load("fedatt"), table, "PTB", Scale(), 1, changes)))
    assert first == (
        "Training, where nothing else is said: SGD, lr 0.3, momentum 0.5, batches of 10, 5 local epochs, 10 rounds, a "
        "share of 0.1 of the clients in each round."
    )
    assert other.startswith(
        "Training of FedSGD: SGD, lr 0.3, momentum 0.5, batches of 10, 1 local epoch, 10 rounds, all"
    )


def test_where_word_vectors_are_from_is_said() -> None:
    def said(paper: str, number: str, scene: str, rows: list[str], **changes: object) -> list[str]:
        table = papers.tables(papers.load(paper), [number], scene, (), rows)[number]
        return vector_notes(dict(papers.cases(papers.load(paper), table, scene, Scale(), 1, changes)))

    (skip_gram,) = said("kteps", "2", "FDU", ["FedAvg", "KTEPS"])
    assert skip_gram == "Word vectors: skip-gram, trained on the corpus's unlabeled texts; 200 numbers each."
    glove = {"model.embedding.init": {"file": {"path": "folder/glove.6B.100d.txt"}}, "model.embedding.dim": 100}
    assert said("kteps", "2", "FDU", ["FedAvg", "KTEPS"], **glove) == [
        "Word vectors: glove.6B.100d.txt; 100 numbers each."
    ]
    assert said("fedatt", "II", "PTB", ["FedAvg C=0.1"]) == []
    rows = ["BiLSTM same init", "BiLSTM different init", "BiLSTM same random init", "DistilBERT same init"]
    several = "one of glove.6B.300d.txt, glove.42B.300d.txt, glove.840B.300d.txt for each client"
    assert said("fedevocab", "fig6", "AG News", rows) == [
        "Word vectors of BiLSTM same init: glove.6B.300d.txt; 300 numbers each.",
        f"Word vectors of BiLSTM different init: {several}; 300 numbers each.",
        "Word vectors of DistilBERT same init: distilbert-base-uncased; 768 numbers each.",
    ]
