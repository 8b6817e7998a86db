"""The sentence of a sweep's report on the guarantee of all its trials together."""

import pytest

from dashboards.report.collect import Sweep
from fedtext.accounting import composition
from fedtext.config.files import validate
from tests.fedtext.ledger.noisy import ROUNDS, central
from tune_spaces.cases import cases


def test_the_trials_of_a_sweep_have_a_guarantee_together() -> None:
    pytest.importorskip("dp_accounting")
    keys = central(1.0, {"multiplier": 2.0}, baselines=[{"name": "pooled"}], tune={"metric": "Ap"})
    content = keys.model_dump(mode="json") | {"space": {"server.noise.multiplier": {"grid": [2.0, 3.0]}}}
    experiment = validate(content)
    swept = Sweep("swept", experiment, cases(content, experiment, "test"), {}, {})
    (sentence,) = swept.guarantees()
    epsilon = composition.gaussian((ROUNDS / 4 + ROUNDS / 9) ** -0.5, 1, 1e-5)
    assert sentence.startswith("all 2 of 3 trials that have server.noise")
    assert f"together: epsilon = {epsilon:.4g} at delta = 1e-05" in sentence
    changing = experiment.model_copy(update={"tune": experiment.tune.model_copy(update={"scheduler": "pbt"})})
    assert Sweep("swept", changing, swept.cases, {}, {}).guarantees() == []
