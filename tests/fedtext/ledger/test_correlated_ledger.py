"""The privacy ledger of correlated noise, and of independent noise where participations are apart."""

import math
from typing import Any

import pytest

from fedtext.accounting import composition
from fedtext.config.noise import strategy_of
from fedtext.ledger import ledger, noise_multiplier, spent
from fedtext.ledger.central import round_multiplier
from fedtext.matrix_noise import Tree
from tests.fedtext.ledger.noisy import ROUNDS, central
from tests.loops import nonempty

pytest.importorskip("dp_accounting")
APART: dict[str, Any] = {"fraction": 0.1, "sampling": "separated", "separation": 8}
MECHANISMS = ("tree", {"banded": {"bands": 4}}, {"blt": {"buffers": 2}}, {"bisr": {"bands": 4}})


def entries(mechanism: Any, rounds: int = ROUNDS, participation: Any = APART, **noise: Any) -> Any:
    made = central(0.1, {"mechanism": mechanism, **(noise or {"multiplier": 2.0})}, participation=participation)
    return ledger(made, 100, 1000, rounds)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_correlated_noise_is_one_gaussian_mechanism(mechanism: Any) -> None:
    each, run = entries(mechanism)
    assert run.epsilon == pytest.approx(composition.gaussian(2.0, 1, 1e-5))
    assert "to 4 of 25 rounds, 8 apart" in run.how
    assert each.epsilon < run.epsilon
    so_far = [spent(entries(mechanism, rounds))["epsilon"] for rounds in range(1, ROUNDS + 1)]
    assert so_far == pytest.approx(sorted(so_far), rel=1e-12)
    assert so_far[-1] == run.epsilon
    assert so_far[0] < so_far[-1]
    for entry in nonempty([each, run]):
        assert entry.assumptions.startswith("with a client's updates or with zeros in their place")
        assert "amplifies nothing" in entry.assumptions
        assert "unknown for the sample" not in entry.assumptions


def test_a_part_of_the_rounds_of_a_tree_by_hand() -> None:
    """Noise is drawn for 25 rounds, 8 apart: 4 rounds of a client, in 16 nodes of one each (3 levels up to 4 rounds
    and one of 8, which has 3 complete nodes) ..., of which one round alone changes one."""
    whole, one = Tree(ROUNDS, 8).sensitivity(), 1.0
    # levels 1, 2, 4: 4, 3 (only 24 rounds are in complete nodes of 2), 3; of 8: 3; of 16: 2 rounds in one node, 4
    assert whole == pytest.approx(math.sqrt(4 + 3 + 3 + 3 + 4))
    made = central(0.1, {"mechanism": "tree", "multiplier": 2.0}, participation=APART)
    assert round_multiplier(made) == pytest.approx(2.0 * whole)
    assert spent(ledger(made, 100, 1000, 1))["epsilon"] == pytest.approx(
        composition.gaussian(2.0 * whole / one, 1, 1e-5)
    )


def test_an_upper_bound_is_called_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "tree, sensitivity 4" in entries("tree")[1].how
    monkeypatch.setattr("fedtext.matrix_noise.tree.affordable", lambda *_: False)
    strategy_of.cache_clear()
    assert "tree, sensitivity <= " in entries("tree", participation=APART | {"separation": 7})[1].how
    strategy_of.cache_clear()


@pytest.mark.parametrize("mechanism", ["independent", *MECHANISMS])
@pytest.mark.parametrize("target", [1.0, 8.0])
def test_a_target_is_met_under_each_mechanism(mechanism: Any, target: float) -> None:
    assert 0.999 * target < spent(entries(mechanism, target_epsilon=target))["epsilon"] <= target


@pytest.mark.parametrize(
    ("participation", "count"),
    [
        (APART, 4),
        ({"fraction": 0.1, "sampling": "epochs"}, 3),
        (APART | {"separation": 25}, 1),
        ({"fraction": 1.0}, 25),
    ],
)
def test_independent_noise_composes_over_the_rounds_of_one_client(participation: dict[str, Any], count: int) -> None:
    each, run = entries("independent", participation=participation)
    assert run.epsilon == pytest.approx(composition.gaussian(2.0, count, 1e-5))
    assert each.epsilon == pytest.approx(composition.gaussian(2.0, 1, 1e-5))
    assert f"{count} of 25 rounds" in run.how or count == 25
    made = central(0.1, {"target_epsilon": 2.0}, participation=participation)
    assert noise_multiplier(made) == composition.multiplier_for(2.0, 1.0, count, 1e-5)


@pytest.mark.parametrize("mechanism", ["independent", "tree"])
def test_a_simulated_cohort_claims_nothing_for_this_run(mechanism: Any) -> None:
    """100 of 1,000 clients take part, and 2,000 are simulated: the noise of this run is a twentieth."""
    each, run, simulated = entries(mechanism, multiplier=40.0, cohort_size=2000)
    weak_each, weak_run = entries(mechanism, multiplier=2.0)
    _, whole = entries(mechanism, multiplier=40.0)
    assert (each.epsilon, run.epsilon) == pytest.approx((weak_each.epsilon, weak_run.epsilon))
    assert spent([each, run, simulated])["epsilon"] == run.epsilon
    assert simulated.epsilon == pytest.approx(whole.epsilon)
    assert (simulated.mechanism, simulated.unit) == ("server.noise.cohort_size", "run")
    assert simulated.assumptions.startswith("simulated: of a run with 2000 clients a round")
    assert not run.assumptions.startswith("simulated")


def test_everybody_in_every_round_is_add_remove_also_with_correlated_noise() -> None:
    _, run = entries("tree", participation={"fraction": 1.0})
    assert run.assumptions.startswith("with or without a client (add-remove)")
    assert run.epsilon == pytest.approx(composition.gaussian(2.0, 1, 1e-5))
