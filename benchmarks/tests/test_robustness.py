"""Tables of sweeps of adversaries."""

from pathlib import Path

import pytest

from benchmarks.robustness import read, tables

HEAD = "#,method,attack,fraction,aggregation,Ag (%),Ag (%) sd,backdoor_success (%)"
ROWS = ["1,fedavg,label_flip,0,mean,85,0.5,", "2,fedavg,label_flip,0.1,mean,80.04,1.26,"]


@pytest.mark.parametrize("status", [None, "finished", "failed"])
def test_rows_of_trials_that_have_finished_become_cells(tmp_path: Path, status: str | None) -> None:
    """A report has no column for what all rows have in common."""
    lines = [HEAD, *ROWS] if status is None else [f"{HEAD},status", *(f"{row},{status}" for row in ROWS)]
    file = tmp_path / "results.csv"
    file.write_text("\n".join(lines))
    rows = read([file])
    if status == "failed":
        assert rows == {}
    else:
        assert "| mean | 85.0 ± 0.5 | 80.0 ± 1.3 |" in tables(rows)
