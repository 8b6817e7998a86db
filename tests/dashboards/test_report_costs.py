"""The table of costs: simulated time, and what it took to reach a value, beside bytes and seconds."""

from dashboards.report.collect import Row, Sample, Sweep
from dashboards.report.contents import cost_table
from fedtext.config.files import validate
from tests.reported import BASE

REACHED = "simulated_seconds_to_Ag_val_0.8"


class Given(Sweep):
    """A sweep with these rows."""

    rows: list[Row]  # type: ignore[assignment]

    def __init__(self, *rows: Row) -> None:
        super().__init__("given", validate(BASE), (), {}, {})
        self.__dict__["rows"] = list(rows)


def row(label: str, *seeds: dict[str, float]) -> Row:
    made = tuple(Sample(label, seed, "finished", (), values) for seed, values in enumerate(seeds))
    return Row(label, label, label, False, {}, {}, made)


def test_simulated_time_and_thresholds_stand_beside_the_costs() -> None:
    sync = row("sync", {"rounds": 3, "simulated_seconds_total": 90, REACHED: 70}, {"simulated_seconds_total": 110})
    always = row("buffer", {"updates_begun_total": 60, REACHED: 20}, {"updates_begun_total": 62, REACHED: 30})
    found = cost_table(Given(sync, always, row("unigram", {"perplexity": 5.0})))
    assert found is not None
    assert found.heads == ["method", "rounds", "simulated_seconds_total", REACHED, "updates_begun_total"]
    texts = [[field.text for field in line] for line in found.rows]
    assert texts == [
        ["sync", "3 (1 of 2 seeds)", "1 min 40 s ± 14 s", "1 min 10 s (1 of 2 seeds)", "-"],
        ["buffer", "-", "-", "25 s ± 7.1 s", "61 ± 1.414"],
    ]
    assert any("of the seeds that have reached it" in line for line in found.notes)
