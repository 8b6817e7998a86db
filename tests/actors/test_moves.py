"""What moves, and how much at a time."""

import numpy as np

from actors.moves import batches, better, by_actor, estimated
from actors.placement import Dealt


def test_clients_that_have_not_trained_take_what_their_tokens_take() -> None:
    assert estimated({2: 3.0, 0: 1.0}, np.array([10, 5, 30, 0])) == {0: 1.0, 1: 0.5, 2: 3.0, 3: 0.0}
    assert estimated({1: 2.0}, np.array([4, 0])) == {0: 8.0, 1: 2.0}, "one without tokens took what it took"


def test_clients_move_to_an_actor_without_any_if_it_gains_enough() -> None:
    home = dict.fromkeys(range(4), 0)
    assert better(dict.fromkeys(range(4), 1.0), home, 2, 1) == [[0, 2], [1, 3]]
    assert better(dict.fromkeys(range(4), 0.01), home, 2, 1) is None
    assert better({0: 1.0, 1: 0.05, 2: 0.05, 3: 0.05}, home, 2, 1) is None


def test_states_leave_in_batches_of_few_bytes() -> None:
    sizes = [{0: 4, 2: 5, 4: 20}, {}, {1: 1, 3: 9}]
    assert list(batches(sizes, 9)) == [[[0, 2], [], []], [[4], [], []], [[], [], [1]], [[], [], [3]]]
    assert list(batches(sizes, 100)) == [[[0, 2, 4], [], [1, 3]]]
    assert list(batches([{}, {}], 9)) == []


def test_the_clients_of_each_actor_come_in_their_order() -> None:
    assert by_actor([5, 0, 4, 1], Dealt(2, 2), 2) == [[5, 0, 4, 1], []]
    assert by_actor([2, 1], {1: 1, 2: 0}, 3) == [[2], [1], []]
