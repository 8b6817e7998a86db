"""Sensitivities and errors of strategies against dense matrices, made by what their streams do."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedtext.matrix_noise import Banded, Buffered, InverseBanded, Tree, inverse_square_root, tree_patterns
from fedtext.matrix_noise.square_root import square_root
from fedtext.matrix_noise.strategy import participations
from fedtext.matrix_noise.toeplitz import Toeplitz, first_pattern
from fedtext.matrix_noise.tree_patterns import affordable, largest_square
from tests.fedtext.matrix_noise.dense import KINDS, brute_force, matrix, noise_rows, patterns, strategies
from tests.loops import nonempty

pytest.importorskip("scipy")
SIZES = [(1, 1), (7, 1), (9, 2), (12, 3), (13, 4), (11, 5), (12, 20), (12, 10**18)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rounds", "separation"), SIZES)
def test_the_stream_releases_prefix_sums_of_what_the_sensitivity_is_of(kind: str, rounds: int, separation: int) -> None:
    """B C = A, and no pattern with this separation has a larger norm."""
    made = strategies(rounds, separation)[kind]
    c, (rows, _) = matrix(made), noise_rows(made)
    b = np.cumsum(rows, axis=0)
    assert np.allclose(b @ c, np.tri(rounds), atol=1e-9)
    assert np.allclose(made.variances(), np.square(b).sum(axis=1))
    largest = brute_force(c, separation)
    assert made.sensitivity() == pytest.approx(largest, rel=1e-9) if made.exact else made.sensitivity() >= largest
    assert made.exact, "also of the small trees here"
    assert made.alone() == pytest.approx(np.linalg.norm(c, axis=0).max())
    errors = made.errors()
    assert errors.max == pytest.approx(made.sensitivity() * np.linalg.norm(b, axis=1).max())
    assert errors.mean == pytest.approx(made.sensitivity() * np.linalg.norm(b) / math.sqrt(rounds))


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_first_rounds_release_has_the_sensitivity_of_their_part_of_the_matrix(kind: str) -> None:
    made = strategies(12, 4)[kind]
    c, (_, places) = matrix(made), noise_rows(made)
    for rounds in range(1, 13):
        until = [row for row, (round_, _) in enumerate(places) if round_ < rounds]
        found = brute_force(c[until][:, :rounds], 4)
        assert made.sensitivity(rounds) == pytest.approx(found, rel=1e-9)


@settings(deadline=None, max_examples=40)
@given(
    rounds=st.integers(1, 11),
    separation=st.integers(1, 12),
    falls=st.lists(st.floats(0, 1), min_size=0, max_size=10),
)
def test_the_first_pattern_is_the_worst_if_coefficients_do_not_increase(
    rounds: int, separation: int, falls: list[float]
) -> None:
    column = np.zeros(rounds)
    column[: len(falls) + 1] = np.cumprod([1.0, *falls])[:rounds]
    made = Banded(rounds, separation, tuple(column.tolist()))
    assert made.sensitivity() == pytest.approx(brute_force(_toeplitz(column), separation))


@settings(deadline=None, max_examples=40)
@given(separation=st.integers(1, 6), others=st.lists(st.floats(-2, 2), max_size=5), rounds=st.integers(1, 10))
def test_it_is_the_worst_for_any_coefficients_of_columns_that_never_meet(
    separation: int, others: list[float], rounds: int
) -> None:
    bands = (1.0, *others)[:separation]
    made = Banded(rounds, separation, bands)
    assert made.sensitivity() == pytest.approx(brute_force(_square_of_apart(made, separation), separation))


def _toeplitz(column: np.ndarray) -> np.ndarray:
    count = len(column)
    return np.array([[column[i - j] if i >= j else 0.0 for j in range(count)] for i in range(count)])


def _square_of_apart(made: Toeplitz, separation: int) -> np.ndarray:
    """C with the signs taken out: columns that are apart have no row in common, so that signs do not matter."""
    c = _toeplitz(made.column)
    for chosen in nonempty(patterns(made.rounds, separation)):
        gram = c[:, chosen].T @ c[:, chosen]
        assert np.array_equal(gram, np.diag(np.diag(gram)))
    return np.abs(c)


@settings(deadline=None, max_examples=60)
@given(rounds=st.integers(1, 13), separation=st.integers(1, 14))
def test_the_sensitivity_of_a_tree_is_exact_and_its_bound_holds(rounds: int, separation: int) -> None:
    made = Tree(rounds, separation)
    largest = brute_force(matrix(made), separation)
    assert made.exact
    assert made.sensitivity() == pytest.approx(largest)
    assert math.sqrt(largest_square(rounds, separation)) == pytest.approx(largest)
    made.exact = False
    assert largest - 1e-9 <= made.sensitivity() <= 1.25 * largest
    if made.reached:
        assert made.sensitivity() == pytest.approx(largest)


@pytest.mark.parametrize(
    ("rounds", "separation"), [(23, 3), (24, 3), (28, 5), (31, 5), (38, 6), (40, 7), (44, 9), (47, 11)]
)
def test_it_is_exact_for_trees_with_many_patterns(rounds: int, separation: int) -> None:
    """Thousands of patterns, by the definition of a tree."""
    sizes = [1 << level for level in range(rounds.bit_length())]
    nodes = [range(first, first + size) for size in sizes for first in range(0, rounds - size + 1, size)]
    covered = np.array([[round_ in node for round_ in range(rounds)] for node in nodes], float)
    assert largest_square(rounds, separation) == pytest.approx(brute_force(covered, separation) ** 2)


def test_a_tree_of_many_rounds_and_a_long_separation_has_a_bound_alone() -> None:
    assert not Tree(20_000, 1001).exact
    assert Tree(20_000, 1024).exact
    assert Tree(1000, 100).exact
    assert Tree(20_000, 1001).sensitivity() > Tree(20_000, 1024).sensitivity()
    assert Tree(20_000, 1).exact
    assert Tree(1001, 1001).exact, "one participation"


@pytest.mark.parametrize(
    ("rounds", "separation", "additions"),
    [
        # halves of 1, 2 and 4 rounds with 1, 1 and 2 participations at most; 3 x 3 calls of numpy, 3,000 additions each
        (11, 3, 3 * 3000 * (1 + 1 + 4)),
        # halves of 1, 2, ..., 64 rounds; 60^2 additions take longer than a call
        (200, 60, 60 * 60**2 * (6 + 4)),
    ],
)
def test_a_search_is_made_if_its_additions_are_worth_it(
    rounds: int, separation: int, additions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_patterns, "_MOST", additions)
    assert affordable(rounds, separation)
    monkeypatch.setattr(tree_patterns, "_MOST", additions - 1)
    assert not affordable(rounds, separation)


def test_tables_of_a_row_of_trees_have_no_more_rows_than_are_asked_for() -> None:
    """The row so far begins with the first round: only f = 0 is of interest."""
    row = tree_patterns._joined([np.zeros((1, 3))], tree_patterns._table(2, 3), 4)
    assert {table.shape for table in row} == {(1, 3)}


def test_the_bound_of_a_tree_by_hand() -> None:
    """Three rounds apart, by size of node: 8 + 8 + (3 x 2^2 + 1) + 2 x 3^2 + 6^2, and with 28 rounds for 23
    10 + 10 + 5 x 2^2 + (2 x 3^2 + 2^2) + 6^2."""
    for rounds, squared in nonempty([(23, 83), (28, 98)]):
        made = Tree(rounds, 3)
        made.exact = False
        assert made.sensitivity() == pytest.approx(math.sqrt(squared))


def test_numbers_of_a_tree_by_hand() -> None:
    """Eight rounds: 15 nodes, four of them on a round's path. With all rounds 8 + 4 x 2^2 + 2 x 4^2 + 8^2 = 120."""
    assert Tree(8, 8).sensitivity() == 2 == Tree(8, 1).alone()
    assert Tree(8, 1).sensitivity() == pytest.approx(math.sqrt(120))
    assert Tree(8, 4).sensitivity() == pytest.approx(math.sqrt(2 + 2 + 2 + 4))
    assert Tree(7, 8).sensitivity() == pytest.approx(math.sqrt(3))
    variances = Tree(8, 8).variances()
    assert variances == pytest.approx([1, 2 / 3, 5 / 3, 4 / 7, 11 / 7, 2 / 3 + 4 / 7, 5 / 3 + 4 / 7, 8 / 15])


@settings(deadline=None, max_examples=30)
@given(count=st.integers(2, 40), rounds=st.integers(1, 60))
def test_the_banded_inverse_square_root_has_coefficients_that_fall(count: int, rounds: int) -> None:
    made = InverseBanded(rounds, 3, inverse_square_root(count))
    assert (np.diff(made.column) <= 0).all()
    assert (made.column > 0).all()
    both = min(count, rounds)
    assert made.column[:both] == pytest.approx(square_root(both))


@pytest.mark.parametrize("kind", ["banded", "blt", "bisr"])
def test_a_long_column_times_its_inverse_is_one(kind: str) -> None:
    made = strategies(3000, 50)[kind]
    assert isinstance(made, Toeplitz)
    assert np.convolve(made.column, made.inverse())[:3000] == pytest.approx(np.eye(1, 3000)[0], abs=1e-12)


def test_the_square_root_squared_adds_up() -> None:
    whole = square_root(30)
    assert np.convolve(whole, whole)[:30] == pytest.approx(np.ones(30))
    assert np.convolve(whole, inverse_square_root(30))[:30] == pytest.approx(np.eye(30)[0], abs=1e-12)


def test_what_has_no_sensitivity_is_refused() -> None:
    for column in nonempty([(1.0, 0.2, 0.4), (1.0, -0.2, 0.1), (1.0, 1.2, 0.1)]):
        with pytest.raises(ValueError, match="no sensitivity is known for participations 2 rounds apart"):
            Banded(5, 2, column)
        assert Banded(5, 3, column).sensitivity() > 0
    with pytest.raises(ValueError, match="must begin with 1"):
        Banded(5, 5, (0.5, 0.2))
    with pytest.raises(ValueError, match="no sensitivity is known"):
        Buffered(5, 1, (0.9, 0.5), (0.8, 0.3))


@pytest.mark.parametrize(("rounds", "separation", "count"), [(10, 1, 10), (10, 3, 4), (10, 10, 1), (10, 99, 1)])
def test_a_client_takes_part_as_often_as_the_separation_allows(rounds: int, separation: int, count: int) -> None:
    assert participations(rounds, separation) == count
    assert max(map(len, patterns(rounds, separation))) == count
    assert first_pattern(np.eye(rounds)[0], separation) == pytest.approx(math.sqrt(count)), "independent noise"


@pytest.mark.parametrize("rounds", [1, 7, 8, 100])
def test_the_tree_of_one_participation_agrees_with_dp_accounting(rounds: int) -> None:
    dp = pytest.importorskip("dp_accounting")
    multiplier, made, replaced = 3.0, Tree(rounds, rounds), dp.NeighboringRelation.REPLACE_SPECIAL
    tree, one = dp.rdp.RdpAccountant(None, replaced), dp.rdp.RdpAccountant(None, replaced)
    tree.compose(dp.SingleEpochTreeAggregationDpEvent(multiplier, [rounds]))
    one.compose(dp.GaussianDpEvent(multiplier / made.sensitivity()))
    assert made.sensitivity() == math.sqrt(rounds.bit_length())
    assert one.get_epsilon(1e-6) == pytest.approx(tree.get_epsilon(1e-6), rel=1e-9)
