"""The law of scale.py, and its server."""

import pytest

from benchmarks.scale import law, server
from tests.loops import nonempty


def test_the_law_of_rounds_that_obey_it_is_found_and_extrapolated() -> None:
    def wall(clients: int, cohort: int, actors: int) -> float:
        return 0.02 + cohort * 0.002 / actors + 1e-6 * clients

    cases = [(10, 10), (100, 100), (1_000, 50), (1_000, 400), (100_000, 100)]
    rows = [{"registered": n, "cohort": k, "wall s": {"median": wall(n, k, 2)}} for n, k in cases]
    (fitted,), paper = law(rows)
    found = [fitted[name] for name in ("fixed, ms", "client, ms", "registered, us")]
    assert found == pytest.approx([20, 2, 1])
    assert fitted["largest error, %"] == pytest.approx(0, abs=1e-9)
    for row in nonempty(paper):
        assert row["s / round"] == pytest.approx(wall(row["registered"], row["cohort"], row["actors"]))
    rows[0]["wall s"]["median"] *= 1.5
    assert law(rows)[0][0]["largest error, %"] > 5


def test_a_server_takes_longer_for_a_larger_update() -> None:
    small, middle = server(quick=True)
    assert small["MB an update"] < middle["MB an update"]
    assert small["ms an update"] > 0
    assert small["updates / s"] == pytest.approx(1e3 / small["ms an update"])
