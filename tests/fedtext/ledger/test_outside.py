"""What a ledger and the privacy report say of data that no guarantee covers."""

import pytest

from fedtext.ledger.outside import outside
from fedtext.ledger.report import reveals
from tests import tiny
from tests.loops import nonempty

TABLE = {"name": "table", "path": "reviews.csv"}


def test_what_no_guarantee_covers_is_listed() -> None:
    always = [
        *(
            "its name, beside its metrics",
            "the number of its texts",
            "its training losses",
            "the time that its local updates take",
        ),
        "how many clients take part in a round or fail in it",
    ]
    counts, classes = (
        "its word counts, for the vocabulary and word vectors",
        "its accuracies in evaluations, and of two classes each text's score and label",
    )
    words = [
        "its perplexities and token counts in evaluations",
        "the unigram baseline's perplexity, from all word counts",
    ]
    chosen = "the choice of the round, which these make (evaluation.select)"
    selecting = {"corpus": {"name": "demo", "validation": 0.2}, "evaluation": {"select": "Ag_val", "personalize": None}}
    project = [{"project": {"d1": 1, "d2": 3}}]
    word2vec = {"word2vec": {"corpus": "unlabeled"}}
    vectors = {"embedding": {"dim": 5, "init": word2vec}, "hidden": 4}
    mixed = {"embedding": {"dim": 5, "init": {"each": {"sources": [{"random": {"std": 1.0}}, word2vec]}}}, "hidden": 4}
    lg_fedavg = {"name": "lg_fedavg", "shared": "encoder"}
    unlabeled = "its unlabeled texts, on which word vectors are trained in one place"
    labels = "the labels of its texts, which with those of all others are the classes of the model"
    union = "its test texts or its model, to evaluate each client's model on all texts (evaluation.union)"
    saved = "its private parameters, in the model folder (save.model: clients)"
    for experiment, listed in (
        (tiny.experiment(model=vectors), [counts, unlabeled, *always, classes]),
        (tiny.experiment(lg_fedavg, model=mixed), [counts, unlabeled, *always, classes]),
        (tiny.experiment(), [counts, *always, classes]),
        (tiny.experiment("fedevocab"), [*always, classes]),
        (tiny.experiment(audits=["membership"]), [counts, *always, classes, "what audits write"]),
        (tiny.experiment(uplink=project), [counts, *always, "what project reports", classes]),
        (tiny.experiment(**selecting), [counts, *always, classes, chosen]),
        (tiny.language_model(), [counts, *always, *words]),
        (tiny.experiment(corpus=TABLE), [counts, labels, *always, classes]),
        (tiny.experiment(corpus=TABLE | {"classes": ["bad", "good"]}), [counts, *always, classes]),
        (tiny.experiment(evaluation={"union": {}}), [counts, *always, classes, union]),
        (tiny.experiment(save={"model": "clients"}), [counts, *always, classes, saved]),
    ):
        assert outside(experiment) == "outside of it: " + ", ".join(listed)


@pytest.mark.parametrize("method", ["fedavg", "local_only"])
def test_what_leaves_clients_for_an_evaluation_and_with_a_saved_model_is_said(method: str) -> None:
    """A client's own model is evaluated on the texts of all, and saved; a class may be a label that only it has."""
    plain, asked = (
        reveals(tiny.experiment(method, **sections))
        for sections in ({}, {"corpus": TABLE, "evaluation": {"union": {}}, "save": {"model": "clients"}})
    )
    beginnings = (
        "evaluation.union: each client's own model",
        "save.model: clients: the model folder has",
        "the classes",
    )
    for beginning in beginnings:
        assert sum(sentence.startswith(beginning) for sentence in asked) == 1
        assert not any(sentence.startswith(beginning) for sentence in nonempty(plain))
    assert (", and what follows" in asked[0]) == (method == "local_only")
    assert ", and what follows" not in plain[0]
    vectors = {"embedding": {"dim": 4, "init": {"word2vec": {"corpus": "unlabeled"}}}, "hidden": 4}
    own = reveals(tiny.experiment("local_only", corpus={"name": "demo", "own_vocabularies": True}, model=vectors))
    assert "beside its own a client reads" in own[1]
    assert (", and what follows" in own[0]) == (len(own) > 2)
