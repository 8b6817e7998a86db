"""Centered clipping: against its algorithm over rounds, its limits, and what attackers do to it."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load

from fedtext.aggregations.centered_clipping import CenteredClipping
from fedtext.layout import TABLE
from fedtext.messages import Update
from fedtext.state.checkpoint import MOMENTS, Checkpoints
from fedtext.testing.runs import final
from tests import tiny
from tests.fedtext.aggregations.test_aggregations import CORPUS, SIZE, STATE, cohort, vector
from tests.loops import nonempty


def flat(tensors: Any) -> np.ndarray:
    return np.concatenate([tensors[name].ravel() for name in STATE]).astype(np.float64)


def by_definition(
    v: np.ndarray, updates: list[Update], weights: list[float], radius: float, iterations: int
) -> tuple[np.ndarray, float]:
    """Algorithm 2 of the paper, one update at a time; and the share of updates that the last iteration clipped."""
    clipped = 0
    for _ in range(iterations):
        step, clipped = np.zeros_like(v), 0
        for update, weight in zip(updates, weights, strict=True):
            apart = vector(update) - v
            length = float(np.sqrt((apart**2).sum()))
            clipped += length > radius
            step += weight / sum(weights) * apart * (radius / length if length > radius else 1.0)
        v = v + step
    return v, clipped / len(updates)


@given(st.integers(1, 6), st.sampled_from([0.1, 1.5, 3.0, 50.0]), st.integers(1, 4), st.booleans(), st.integers(0, 99))
def test_rounds_follow_the_algorithm(clients: int, radius: float, iterations: int, equal: bool, seed: int) -> None:
    aggregation = CenteredClipping(radius=radius, iterations=iterations)
    kept, state, v, x = aggregation.server_state(STATE, clients), STATE, np.zeros(SIZE), flat(STATE)
    for round_ in range(4):
        updates = cohort(clients, seed=10 * seed + round_)
        weights = [1.0 if equal else float(update.samples) for update in updates]
        weight = {"weight": lambda update: 1.0} if equal else {}
        state, metrics, kept = aggregation.server_step(kept, state, iter(updates[::-1]), **weight)
        v, share = by_definition(v, updates, weights, radius, iterations)
        x += v
        assert np.allclose(flat(kept), v, rtol=1e-5, atol=1e-6)
        assert np.allclose(flat(state), x, rtol=1e-5, atol=1e-5)
        assert metrics == {"centered_scaled": share}


def test_two_clients_by_hand() -> None:
    """One number, radius 1: from 0 the pulls are 0.5 and 1, of which v has the mean; then it begins at that."""
    state = {"w": np.zeros(1, np.float32)}
    updates = [Update(k, 1, {"w": np.array([delta], np.float32)}) for k, delta in enumerate((0.5, 8.0))]
    once, twice = CenteredClipping(radius=1.0), CenteredClipping(radius=1.0, iterations=2)
    first, _, kept = once.server_step(once.server_state(state, 2), state, updates)
    assert first["w"] == pytest.approx(0.75)
    second, _, kept = once.server_step(kept, first, updates)
    assert kept["w"] == pytest.approx(0.75 + (-0.25 + 1) / 2)
    assert second["w"] == pytest.approx(0.75 + 1.125)
    assert twice.aggregate(state, updates)[0]["w"] == pytest.approx(1.125)
    assert CenteredClipping(radius=8.0).aggregate(state, updates)[1] == {"centered_scaled": 0}, "at the radius, in full"


def test_a_radius_that_no_update_reaches_is_the_mean_whatever_is_kept() -> None:
    wide = CenteredClipping(radius=1e9)
    kept, updates = wide.server_state(STATE, 4), cohort(4)
    for _ in range(2):
        state, metrics, kept = wide.server_step(kept, STATE, updates)
        mean = np.average([vector(update) for update in updates], 0, [update.samples for update in updates])
        assert np.allclose(flat(state), flat(STATE) + mean, rtol=1e-6)
        assert metrics == {"centered_scaled": 0}


def test_a_round_moves_the_centre_by_no_more_than_its_radius_and_only_what_was_sent() -> None:
    aggregation = CenteredClipping(radius=0.5, iterations=3)
    begun = aggregation.server_step(aggregation.server_state(STATE, 3), STATE, cohort(3))[2]
    far = [Update(k, 1, {"w": np.full(2, 1e6, np.float32)}) for k in range(3)]
    state, _, kept = aggregation.server_step(begun, STATE, far)
    assert np.array_equal(state[TABLE], STATE[TABLE])
    assert np.array_equal(kept[TABLE], begun[TABLE])
    assert np.linalg.norm(kept["w"] - begun["w"]) == pytest.approx(3 * 0.5, rel=1e-4)
    assert np.allclose(state["w"], STATE["w"] + kept["w"])


def test_it_takes_the_memory_that_is_stated() -> None:
    state = {TABLE: np.zeros((50_000, 20), np.float32), "w": np.zeros(500_000, np.float32)}
    updates = [Update(k, 1, {name: np.full_like(t, k) for name, t in state.items()}) for k in range(8)]
    aggregation, size = CenteredClipping(radius=1.0, iterations=2), sum(tensor.nbytes for tensor in state.values())
    kept = aggregation.server_state(state, 8)
    tracemalloc.start()
    aggregation.server_step(kept, state, updates)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (2 * 2 + 1) * size + 5 * 2**21, "two points in float64, what is kept in float32, pieces of 2 MB"


CENTERED: dict[str, Any] = {"centered_clipping": {"radius": 0.1}}


def moved(aggregation: Any, adversaries: Any = None, seed: int = 0) -> np.ndarray:
    """What four rounds of ten clients change."""
    run = tiny.Finished(
        "fedavg",
        tiny.corpus(clients=10),
        seed=seed,
        training=tiny.TRAINING | {"rounds": 4},
        server={"aggregation": aggregation, "weights": "uniform"},
        adversaries=adversaries,
    )
    return run.flat - run.before


@pytest.mark.parametrize("attack", [{"scaled": {"factor": 10}}, {"sign_flip": {"factor": 10}}], ids=str)
def test_two_of_ten_attackers_take_the_mean_away_and_not_this(attack: dict[str, Any]) -> None:
    """Beside the runs without them, in whose direction this one still goes."""
    for seed in (0, 1):
        share = {"adversaries": {"fraction": 0.2, "attack": attack}, "seed": seed}
        honest, attacked = moved(CENTERED, seed=seed), moved(CENTERED, **share)
        mean, taken = moved("mean", seed=seed), moved("mean", **share)
        assert np.linalg.norm(attacked - honest) < 0.7 * np.linalg.norm(honest)
        assert np.linalg.norm(taken - mean) > 5 * np.linalg.norm(mean)
        assert attacked @ honest > 0.5 * np.linalg.norm(attacked) * np.linalg.norm(honest)


def test_the_centre_is_in_a_checkpoint_and_a_continued_run_ends_with_the_same_bits(tmp_path: Path) -> None:
    made = tiny.experiment(training=tiny.TRAINING | {"rounds": 4}, server={"aggregation": CENTERED})
    whole = final(made, CORPUS)
    final(made, CORPUS, tmp_path, rounds=2)
    written = load((Checkpoints(tmp_path, "").folder / "round-000002" / MOMENTS).read_bytes())
    federation = tiny.federation(made, CORPUS)
    assert {name: array.shape for name, array in written.items()} == {
        f"#aggregation/{name}": tensor.shape for name, tensor in federation.state.items()
    }
    assert all(nonempty(array.any() for array in written.values()))
    assert final(made, CORPUS, tmp_path) == whole


def test_parameters_move_by_the_centre() -> None:
    federation = tiny.federation(
        tiny.experiment(training=tiny.TRAINING | {"rounds": 3}, server={"aggregation": CENTERED}), CORPUS
    )
    before = federation.state
    for record in nonempty(federation.run()):
        after, kept = federation.state, federation.step.aggregation_state.arrays
        assert all(nonempty(np.allclose(after[n], before[n] + kept[n], atol=1e-6) for n in after))
        assert 0 < record.metrics["centered_scaled"] <= 1
        before = after
