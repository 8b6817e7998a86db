"""Samples that depend on earlier ones: participations that are some rounds apart, and epochs."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtext.errors import UserError
from fedtext.server.clock import available
from fedtext.server.repeats import check_sizes, repeatable
from fedtext.server.sampling import sampled
from tests import tiny
from tests.fedtext.server.test_sampling import SHOWN, cohorts
from tests.loops import nonempty


def _gaps(taken: np.ndarray) -> list[int]:
    """The number of rounds between consecutive participations, over all clients."""
    return [int(gap) for client in taken.T for gap in np.diff(np.flatnonzero(client))]


@settings(deadline=None, max_examples=30)
@given(clients=st.integers(2, 20), separation=st.integers(1, 6), seed=st.integers(0, 99), share=st.floats(0.05, 1))
def test_participations_are_as_many_rounds_apart_as_asked(
    clients: int, separation: int, seed: int, share: float
) -> None:
    keys = {"fraction": share, "sampling": "separated", "separation": separation}
    experiment = tiny.experiment(participation=keys)
    size = max(1, round(share * clients))
    if size * separation > clients:
        with pytest.raises(UserError, match="lower separation, fraction or over_selection"):
            check_sizes(experiment, clients)
        return
    check_sizes(experiment, clients)
    taken = cohorts(clients, 40, seed=seed, **keys)
    assert taken.sum(1).tolist() == [size] * 40
    assert min(_gaps(taken), default=separation) >= separation
    assert taken.any(0).all() or size * 40 < 6 * clients, "nobody is forgotten"


def test_who_is_free_is_drawn_by_the_seed_and_any_round_can_be_asked_for_first() -> None:
    keys = {"fraction": 0.1, "sampling": "separated", "separation": 4}
    taken = cohorts(50, 60, seed=3, **keys)
    assert len(set(_gaps(taken))) > 5, "clients come back at different times"
    assert (cohorts(50, 60, seed=4, **keys) != taken).any()
    experiment = tiny.experiment(participation=keys, seed=3)
    for round_ in (60, 7, 1):
        assert sampled(experiment, range(50), round_, SHOWN) == np.flatnonzero(taken[round_ - 1]).tolist()


def test_unavailable_clients_are_left_out_and_the_others_still_wait() -> None:
    keys: dict[str, Any] = {"fraction": 0.2, "sampling": "separated", "separation": 4}
    keys["availability"] = {"day": 6, "night": 0.0}
    experiment = tiny.experiment(participation=keys)
    taken = cohorts(30, 60, **keys)
    for round_, row in nonempty(enumerate(taken, start=1)):
        there = available(experiment.participation.availability, 0, round_, 30)
        assert not (row & ~there).any()
    assert min(_gaps(taken)) >= 4
    assert len(set(taken.sum(1).tolist())) > 1, "a round has fewer clients if fewer are free"


@pytest.mark.parametrize(("clients", "fraction", "epoch"), [(12, 0.25, 4), (13, 0.25, 4), (9, 0.333, 3), (5, 1.0, 1)])
def test_in_an_epoch_each_client_comes_once_and_the_order_is_repeated(
    clients: int, fraction: float, epoch: int
) -> None:
    keys = {"fraction": fraction, "sampling": "epochs"}
    taken = cohorts(clients, 3 * epoch, **keys)
    assert (taken[:epoch].sum(0) == 1).all()
    assert np.array_equal(taken, np.tile(taken[:epoch], (3, 1)))
    assert set(taken.sum(1).tolist()) <= {clients // epoch, -(-clients // epoch)}
    if epoch > 1:
        assert (cohorts(clients, epoch, seed=1, **keys) != taken[:epoch]).any()
        assert not np.array_equal(np.sort(np.argmax(taken, 0)), np.argmax(taken, 0)), "shuffled"


def test_drop_outs_are_counted_as_participants_and_come_back_no_sooner() -> None:
    for keys in nonempty([{"fraction": 0.25, "sampling": "epochs"}, SEPARATED]):
        whole, part = cohorts(8, 40, **keys), cohorts(8, 40, dropout=0.4, **keys)
        assert not (part & ~whole).any()
        assert 0 < part.sum() < whole.sum()


SEPARATED: dict[str, Any] = {"fraction": 0.25, "sampling": "separated", "separation": 3}


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"sampling": "separated"}, "set separation"),
        ({"separation": 3}, "set sampling: separated, or leave separation out"),
        ({"sampling": "epochs", "fraction": 0.3}, "an epoch is 1 / fraction rounds, which for 0.3 is no whole number"),
        ({"sampling": "epochs", "fraction": 0.25, "availability": {}}, "availability: with sampling: epochs"),
        (
            {"sampling": "epochs", "fraction": 0.25, "pace": {}, "over_selection": 1.5},
            "over_selection: with sampling: epochs",
        ),
    ],
)
def test_keys_that_contradict_each_other_are_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tiny.experiment(participation=keys)


def test_more_clients_than_there_are_can_be_had_by_no_fraction() -> None:
    few = tiny.experiment(participation={"fraction": 0.5, "min_clients": 4})
    with pytest.raises(UserError, match=r"at most 3 of 6 clients: lower it, or raise participation.fraction$"):
        check_sizes(few, 6)
    with pytest.raises(UserError, match=r"at most 2 of 3 clients: lower it, or take a corpus with more clients$"):
        check_sizes(few, 3)


def test_too_few_clients_for_an_epoch_are_refused_and_no_round_is_repeated() -> None:
    epochs = tiny.experiment(participation={"fraction": 0.25, "sampling": "epochs"})
    with pytest.raises(UserError, match="an epoch of 4 rounds needs as many clients, and there are 3"):
        check_sizes(epochs, 3)
    check_sizes(epochs, 4)
    assert not repeatable(epochs, 8)
    assert not repeatable(tiny.experiment(participation=SEPARATED), 12)
    assert repeatable(tiny.experiment(participation={"fraction": 0.25}), 12)
