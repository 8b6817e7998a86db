"""The area under the ROC curve over all clients' texts: its figure, and that it does not depend on who hosts whom."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedtext.client.local_fleet import LocalFleet
from fedtext.corpora import CORPORA
from fedtext.corpora.prepare import prepare
from fedtext.corpora.types import Corpus
from fedtext.errors import UserError
from fedtext.evaluation import Evaluated, pooled
from fedtext.evaluation.classes import Scored, area
from fedtext.models.bag import BagEmbedding
from fedtext.parameters import initial
from fedtext.server.fit import check_classes
from tests import tiny
from tests.loops import nonempty
from tune_spaces.objectives import check_metric

LOGISTIC = {"name": "logistic", "embedding": {"dim": 1}}


def scored(zeros: list[float], ones: list[float]) -> Scored:
    return Scored(np.array([*zeros, *ones], np.float32), np.array([False] * len(zeros) + [True] * len(ones)))


@pytest.mark.parametrize(
    ("zeros", "ones", "expected"),
    [
        ([0], [1], 1),
        ([1], [0], 0),
        ([1], [1], 0.5),
        ([0, 1], [1, 2], 3.5 / 4),
        ([0, 0, 0, 5], [0, 5, 9], (1.5 + 3.5 + 4) / 12),  # ties in both places
        ([-math.inf, 0.0], [-0.0, math.inf], 3.5 / 4),
        ([3, 3], [3, 3, 3], 0.5),
    ],
)
def test_the_area_by_hand(zeros: list[float], ones: list[float], expected: float) -> None:
    assert area([scored(zeros, ones)]) == expected


def test_the_area_is_the_share_of_pairs_in_order() -> None:
    rng = np.random.default_rng(0)
    labels = rng.random(60) < 0.3
    scores: NDArray[np.float32] = rng.integers(0, 9, 60).astype(np.float32)
    pairs = [(a > b) + 0.5 * (a == b) for a, b in itertools.product(scores[labels], scores[~labels])]
    whole = area([Scored(scores, labels)])
    assert whole == sum(pairs) / len(pairs)
    parts = [Scored(scores[part], labels[part]) for part in (slice(40, 60), slice(0, 7), slice(7, 40))]
    assert area(parts) == whole


def test_a_class_without_texts_has_no_area() -> None:
    assert area([scored([1, 2], [])]) is None
    assert area([scored([1], [math.nan])]) is None
    one, other = (
        Evaluated({}, {"Ag": scored([1], [])}),
        Evaluated({}, {"Ag": scored([], [2]), "Ag_val": scored([], [1])}),
    )
    assert pooled([one, other]) == {"AUC": 1.0}


def run(corpus: Corpus, **changes: Any) -> list[dict[str, Any]]:
    experiment = tiny.experiment(**({"model": LOGISTIC, "evaluation": {"personalize": None}} | changes))
    return list(tiny.federation(experiment, corpus).run())


def demo(**options: Any) -> Corpus:
    config = CORPORA["demo"].model_validate({"name": "demo", **options})
    return prepare(config, BagEmbedding(), 0, None)


def test_two_classes_from_texts_to_the_area() -> None:
    training = {"rounds": 3, "local_epochs": 2, "batch_size": 16, "optimizer": {"lr": 0.3}}
    rows = run(demo(validation=0.2), training=training)
    for record in nonempty(rows):
        assert {"Ag", "Ag_val", "AUC", "AUC_val", "loss"} <= record.metrics.keys()
        assert all(nonempty(figures.keys() == {"Ag", "Ag_val"} for figures in record.clients.values())), (
            "scores are not kept"
        )
    last = rows[-1].metrics
    assert 0.6 < last["Ag"] < last["AUC"] < 1
    assert 0.6 < last["AUC_val"] < 1


@pytest.mark.parametrize(
    ("method", "named"), [("pooled", "AUC"), ("kteps", "AUC"), ("fedper", "AUC_0"), ("local_only", "AUC")]
)
def test_every_kind_of_method_has_an_area(method: str, named: str) -> None:
    rows = run(tiny.corpus(), method=method, evaluation={"personalize": {"steps": 2}})
    found = {name for name in rows[-1].metrics if name.startswith("AUC")}
    assert found == {named}


def test_three_classes_have_none() -> None:
    corpus = tiny.corpus()
    three = Corpus(**{**corpus.__dict__, "classes": 3})
    assert not any(nonempty(name.startswith("AUC") for name in run(three, model={"hidden": 3})[-1].metrics))
    with pytest.raises(UserError, match=r"tune\.metric: AUC needs 2 classes, and the corpus has 3"):
        check_classes("tune.metric", "AUC", three)
    check_classes("tune.metric", "AUC", corpus)
    check_classes("tune.metric", "Ag", three)


def test_a_sweep_by_the_area_needs_a_shared_model_and_held_out_texts() -> None:
    check_metric(tiny.experiment(tune={"metric": "AUC"}))
    with pytest.raises(UserError, match="what fedper shares is no complete model: sort by Ap"):
        check_metric(tiny.experiment("fedper", tune={"metric": "AUC"}))
    with pytest.raises(UserError, match="or sort by AUC, which is evaluated on the test split"):
        check_metric(tiny.experiment(tune={"metric": "AUC_val"}))


def test_scores_do_not_depend_on_who_is_read_with_whom() -> None:
    corpus, experiment = tiny.corpus(), tiny.experiment(model={"hidden": 4, "output": "sigmoid"})
    shared, private = initial(experiment, corpus)
    worker = LocalFleet(experiment, corpus, private).worker
    flat = worker.shared.pack(shared)
    together = worker.evaluate(flat, 1, [0, 1, 2], False)
    for client in (2, 0, 1):
        alone = worker.evaluate(flat, 1, [client], False)[client]
        for name, one in nonempty(together[client].pooled.items()):
            assert one.scores_N.tobytes() == alone.pooled[name].scores_N.tobytes()
            assert one.labels_N.tolist() == (corpus.clients[client].test.labels_N == 1).tolist()
