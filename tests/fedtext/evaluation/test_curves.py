"""Accuracies while models are fine-tuned, and after every evaluated round."""

import json

import numpy as np
import pytest

import fedtext
from fedtext.evaluation import Evaluated, averaged, curves
from fedtext.records import RoundRecord
from tests.loops import nonempty

SMALL = ["training.rounds=3", "corpus.clients=2", "corpus.train=20", "corpus.test=10", "baselines=[]", "space={}"]
ASKED = "evaluation={personalize: {steps: 6, every: 2, lr_multiplier: 1.0}"


def test_a_curve_is_the_mean_over_clients_of_each_step() -> None:
    one = averaged([Evaluated({"Ap": 0.25}), Evaluated({"Ap": 0.75})])
    two = averaged([Evaluated({"Ap": 0.5, "Ap_val": 0.0}), Evaluated({"Ap": 1.0, "Ap_val": 0.5})])
    assert one.metrics == {"Ap": 0.5}
    assert curves([one, two], every=5) == {"Ap": {5: 0.375, 10: 0.875}, "Ap_val": {5: 0.0, 10: 0.5}}


def test_ap_is_the_mean_of_the_curve_of_the_last_round() -> None:
    result = fedtext.run("demo.yaml", *SMALL, f"{ASKED}}}")
    *before, last = result.history
    assert [record.curves for record in nonempty(before)] == [{}, {}]
    assert ["Ap" in record.metrics for record in before] == [False, False]
    assert set(last.curves) == {"Ap", "Ap_val"}
    for name, curve in nonempty(last.curves.items()):
        assert list(curve) == [2, 4, 6]
        assert last.metrics[name] == pytest.approx(np.mean(list(curve.values())))
    assert RoundRecord.from_json(json.loads(json.dumps(last.to_json()))) == last


def test_ap_after_every_evaluated_round_leaves_training_as_it_is() -> None:
    once = fedtext.run("demo.yaml", *SMALL, f"{ASKED}}}")
    each = fedtext.run("demo.yaml", *SMALL, f"{ASKED}, personalize_at: evaluated, every: 2}}")
    assert ["Ap" in record.metrics for record in each.history] == [False, True, True]
    assert [bool(record.curves) for record in each.history] == [False, False, True]
    assert each.metrics["Ap"] == once.metrics["Ap"]
    assert once.state.keys() == each.state.keys()
    for name, tensor in nonempty(once.state.items()):
        assert np.array_equal(tensor, each.state[name]), name
