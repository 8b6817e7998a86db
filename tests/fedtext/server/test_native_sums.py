"""The server's passes over whole models in C: the bits of numpy's."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedtext.config.server import ServerSGD
from fedtext.errors import UserError
from fedtext.layout import TABLE, Layout
from fedtext.messages import Update
from fedtext.runtime.compiled import compile_problem
from fedtext.server import native_sums
from fedtext.server.optimizers import step
from fedtext.server.weighted_sum import WeightedSum
from tests.loops import nonempty

pytestmark = pytest.mark.skipif(bool(compile_problem()), reason=compile_problem())

VOCABULARY, WIDTH = 2000, 37
LAYOUT = Layout({"first": (3,), TABLE: (VOCABULARY, WIDTH), "head.weight": (180, 200)})


def numbers(*shape: int, seed: int) -> NDArray[np.float32]:
    """Numbers of all sizes, zeros of either sign and denormal ones among them."""
    rng = np.random.default_rng(seed)
    drawn = (rng.standard_normal(shape) * 10.0 ** rng.integers(-46, 4, shape)).astype(np.float32)
    drawn.flat[::7], drawn.flat[3::11] = 0.0, -0.0
    return drawn


def update(client: int, rows: int | None) -> Update:
    """An update of the whole table, or of so many of its rows."""
    rng = np.random.default_rng(client)
    chosen = None if rows is None else rng.choice(VOCABULARY, rows, replace=False).astype(np.int32)
    table = numbers(VOCABULARY if rows is None else rows, WIDTH, seed=client)
    tensors = {"first": numbers(3, seed=7), TABLE: table, "head.weight": numbers(180, 200, seed=client + 1)}
    return Update(client, client + 3, tensors, chosen)


def summed(updates: list[Update], **how: Any) -> WeightedSum:
    total = WeightedSum(LAYOUT, 19.0, **{"uniform": False, "holders_only": False} | how)
    for each in updates:
        total.add(each)
    return total


def in_numpy(monkeypatch: pytest.MonkeyPatch, function: Any) -> Any:
    """What a function returns on a machine without a C compiler."""
    with monkeypatch.context() as patched:
        patched.setattr(native_sums, "_library", lambda: None)
        return function()


@pytest.mark.parametrize("how", [{}, {"inward": True}, {"holders_only": True}, {"uniform": True}])
def test_sums_have_the_bits_of_numpys(how: dict[str, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    updates = [update(1, 1000), update(2, None), update(3, 5), update(4, VOCABULARY)]
    assert native_sums.add_parts(np.zeros(VOCABULARY * WIDTH), updates[1].tensors[TABLE], 1.0, False) is not None
    found, expected = summed(updates, **how), in_numpy(monkeypatch, lambda: summed(updates, **how))
    assert found.sum_N.tobytes() == expected.sum_N.tobytes()
    assert found.reach == expected.reach
    assert np.count_nonzero(found.sum_N) > VOCABULARY * WIDTH / 2


def test_arrays_that_are_small_or_do_not_fit_are_left_to_numpy() -> None:
    sums, delta = np.zeros(VOCABULARY * WIDTH), numbers(WIDTH, VOCABULARY, seed=1)
    rows = np.arange(VOCABULARY, dtype=np.int32)
    for other, of in nonempty(
        [
            (delta.T, None),
            (delta[:2], None),
            (delta.astype(np.float64), None),
            (delta.reshape(VOCABULARY, WIDTH), rows + 1),
            (delta.reshape(VOCABULARY, WIDTH), rows - 1),
            (delta.reshape(VOCABULARY, WIDTH), rows.astype(np.int64)),
            (delta.reshape(VOCABULARY, WIDTH), rows[1:]),
            (delta.reshape(VOCABULARY, WIDTH), rows[:0]),
            (delta.reshape(VOCABULARY, WIDTH)[1:], rows),
            (numbers(VOCABULARY + 1, WIDTH, seed=1), None),
        ]
    ):
        assert native_sums.add_parts(sums, other, 1.0, False, of) is None
        assert not sums.any()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, -4096.0 * 19])
def test_what_is_too_large_is_refused_wherever_it_stands(wrong: float) -> None:
    for place in nonempty([(0, 0), (501, 3), (999, WIDTH - 1)]):
        made = update(0, 1000)
        made.tensors[TABLE][place] = wrong
        with pytest.raises(UserError, match=r"client 0 changed a parameter by .* in one round"):
            summed([made], uniform=True)


@pytest.mark.parametrize("optimizer", [ServerSGD(), ServerSGD(lr=0.3), ServerSGD(lr=0.7, momentum=0.9)])
def test_a_step_has_the_bits_of_numpys(optimizer: ServerSGD, monkeypatch: pytest.MonkeyPatch) -> None:
    flat_N, change_N = numbers(90_001, seed=5), numbers(90_001, seed=6) * np.pi
    moments = {"m": numbers(90_001, seed=8)} if optimizer.momentum else {}
    assert native_sums.moved(flat_N, change_N.astype(np.float64), 1.0) is not None

    def stepped() -> Any:
        return step(optimizer, flat_N, change_N.astype(np.float64), moments)

    (found, kept), (expected, others) = stepped(), in_numpy(monkeypatch, stepped)
    assert found.tobytes() == expected.tobytes()
    assert {name: each.tobytes() for name, each in kept.items()} == {
        name: each.tobytes() for name, each in others.items()
    }
