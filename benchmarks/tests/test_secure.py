"""The benchmark of secure aggregation."""

from benchmarks import secure
from tests.loops import nonempty


def test_a_small_measurement_has_each_kind_of_sum_beside_the_exact_one() -> None:
    rows = secure.measured(6, 2, 2, 0.0)
    assert [row["sum"] for row in rows] == ["exact sum", "integers", "masks"]
    assert rows[0]["times exact"] == {"median": 1.0, "min": 1.0, "max": 1.0, "runs": 2}
    assert all(row["CPU s"]["min"] > 0 for row in nonempty(rows))
