"""How long the server waits for client actors."""

import pytest

from actors.patience import allowed, expected, told


@pytest.mark.parametrize(
    ("expected_s", "seconds"), [(None, 3600.0), (0.0, 60.0), (2.5, 85.0), (353.9, 3599.0), (400.0, 3600.0)]
)
def test_it_waits_for_a_multiple_of_what_is_expected(expected_s: float | None, seconds: float) -> None:
    assert allowed(expected_s, 60.0, 3600.0) == seconds


def test_the_slowest_actor_is_expected_and_unknown_clients_are_as_slow_as_any() -> None:
    seconds = {0: 1.0, 1: 2.0, 2: 4.0}
    assert expected({}, [[0], [1]]) is None
    assert expected(seconds, [[0, 1], [2]]) == 4.0
    assert expected(seconds, [[0, 1], [7, 1], []]) == 6.0


@pytest.mark.parametrize(("names", "sentence"), [("a", "a"), ("abc", "a, b, c"), ("abcde", "a, b, c and 2 more")])
def test_not_all_names_are_told(names: str, sentence: str) -> None:
    assert told(list(names)) == sentence
