"""Weighted sums of updates: by hand, and with the same bits in any order and grouping."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtext.config.server import ServerSGD
from fedtext.errors import UserError
from fedtext.layout import TABLE, Layout
from fedtext.messages import Update
from fedtext.server.optimizers import step
from fedtext.server.weighted_sum import WeightedSum
from tests.loops import nonempty

STATE = {TABLE: np.zeros((3, 2), np.float32), "head.weight": np.array([1.0, 1.0], np.float32)}
LAYOUT = Layout({name: tensor.shape for name, tensor in STATE.items()})


def updates() -> list[Update]:
    """Two clients with 1 and 3 samples; the first holds rows 0 and 1 of the table, the second rows 0 and 2."""
    first = {TABLE: np.array([[4, 4], [8, 8]], np.float32), "head.weight": np.array([4, 0], np.float32)}
    second = {TABLE: np.array([[0, 4], [4, 0]], np.float32), "head.weight": np.array([0, 4], np.float32)}
    return [Update(0, 1, first, np.array([0, 1], np.int32)), Update(1, 3, second, np.array([0, 2], np.int32))]


def empty(updates: list[Update], uniform: bool = False, holders_only: bool = False) -> WeightedSum:
    scale = float(len(updates) if uniform else sum(update.samples for update in updates))
    return WeightedSum(LAYOUT, scale or 1.0, uniform=uniform, holders_only=holders_only)


def applied(total: WeightedSum) -> dict[str, np.ndarray]:
    """STATE after this sum."""
    mean_N, flat = total.mean(), LAYOUT.pack(STATE)
    return LAYOUT.views(flat if mean_N is None else step(ServerSGD(), flat, mean_N, {})[0])


def averaged(updates: list[Update], **how: bool) -> dict[str, np.ndarray]:
    """STATE after these updates."""
    total = empty(updates, **how)
    for update in updates:
        total.add(update)
    return applied(total)


def test_fedavg_weighs_two_clients_by_their_samples() -> None:
    mean = averaged(updates())
    # head: 1 + (1*4 + 3*0)/4 and 1 + (1*0 + 3*4)/4
    # table: row 0 is held by both, (1*4 + 3*0)/4 and (1*4 + 3*4)/4; rows 1 and 2 were changed by one client each
    assert mean["head.weight"].tolist() == [2, 4]
    assert mean[TABLE].tolist() == [[1, 4], [2, 2], [3, 0]]


def test_uniform_weights_and_rows_averaged_over_their_holders() -> None:
    uniform = averaged(updates(), uniform=True)
    assert uniform["head.weight"].tolist() == [3, 3]
    assert uniform[TABLE].tolist() == [[2, 4], [4, 4], [2, 0]]
    holders = averaged(updates(), holders_only=True)
    assert holders["head.weight"].tolist() == [2, 4]
    assert holders[TABLE].tolist() == [[1, 4], [8, 8], [4, 0]]
    first = replace(updates()[0], samples=1600)  # nobody holds row 2
    assert averaged([first], holders_only=True)[TABLE].tolist() == [[4, 4], [8, 8], [0, 0]]


def test_an_update_too_large_for_an_exact_sum_is_refused_by_name() -> None:
    huge = Update(7, 1, {"head.weight": np.array([0, -1e5], np.float32)})
    with pytest.raises(UserError, match="client 7 changed a parameter by 100000 in one round"):
        averaged([huge])


def large(client: int, sign: int = 1) -> Update:
    """An update whose part in a sum of eight clients is 4095, just within the bound."""
    return Update(client, 1, {"head.weight": np.array([0, 8 * 4095 * sign], np.float32)})


@pytest.mark.parametrize("sign", [1, -1])
def test_large_updates_that_together_leave_no_exact_sum_are_refused_in_any_grouping(sign: int) -> None:
    """Each is accepted. Beyond 2^15 multiples of 2^-38 are not exact, also where later updates have the other sign."""
    total = WeightedSum(LAYOUT, 8.0, uniform=True, holders_only=False)
    for client in range(8):
        total.add(large(client))
    assert total.sum_N.max() == 8 * 4095
    assert total.reach == 8 * 4095
    other = WeightedSum(LAYOUT, 8.0, uniform=True, holders_only=False)
    other.add(large(8, sign))
    sentence = "changes of all clients in one round are together too large for an exact sum"
    for more in nonempty((other, large(8, sign))):
        with pytest.raises(UserError, match=sentence):
            total.merge(more) if isinstance(more, WeightedSum) else total.add(more)


def test_the_reach_of_a_sum_is_that_of_the_farthest_number_of_each_update() -> None:
    total = empty(updates())
    for update in updates():
        total.add(update)
    assert total.reach == 8 / 4 + 3 * 4 / 4
    again = empty(updates())
    again.merge(total)
    assert again.reach == total.reach


def test_a_round_without_participants_changes_nothing() -> None:
    assert {name: tensor.tolist() for name, tensor in averaged([]).items()} == {
        name: tensor.tolist() for name, tensor in STATE.items()
    }


@given(
    st.lists(
        st.tuples(st.integers(1, 5000), st.floats(-1000, 1000, width=32), st.integers(0, 2)), min_size=1, max_size=9
    ),
    st.randoms(use_true_random=False),
)
def test_sums_have_the_same_bits_in_any_order_and_grouping(clients: list[Any], random: Any) -> None:
    rng = np.random.default_rng(0)
    made = [
        Update(
            number,
            samples,
            {
                TABLE: rng.normal(size=(1, 2)).astype(np.float32) * np.float32(value),
                "head.weight": np.array([value, value / 3], np.float32),
            },
            np.array([row], np.int32),
        )
        for number, (samples, value, row) in enumerate(clients)
    ]
    expected = averaged(made)
    random.shuffle(made)
    total, part = empty(made), empty(made)
    for update in made:
        part.add(update)
        if random.random() < 0.5:
            total.merge(part)
            part = empty(made)
    total.merge(part)
    got = applied(total)
    assert all(nonempty(got[name].tobytes() == tensor.tobytes() for name, tensor in expected.items()))
