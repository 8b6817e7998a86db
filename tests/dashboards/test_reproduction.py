"""Tables of reproductions as Markdown: differences from the paper, costs, tests, and what was not run."""

import csv
import io
from dataclasses import replace

import pytest

from dashboards.figures import Cell, Cost, Reproduction, cost
from dashboards.paired import differs
from dashboards.reproduction import markdown
from dashboards.reproduction_csv import table_csv
from dashboards.trial import Outcome
from tests.planned import rows


def test_a_report_has_differences_in_bold_where_noise_does_not_explain_them() -> None:
    cells = [
        Cell("A", "Ag", 85.0, [83.6, 84.0, 84.4]),
        Cell("B", "Ag", 84.0, [86.4, 87.0, 87.6]),  # 1.5 + 4.3 * 0.6 / sqrt(3) = 2.99 from the paper's, and not more
        Cell("C", "Ag", None, [50.0]),
        Cell("D", "Ag", 83.0, []),
    ]
    assert [differs(cell, 1.5) for cell in cells] == [False, True, False, False]
    assert not differs(cells[1], 1.52)
    made = Reproduction("T", 1.5, cells, [Cell("dvd", "A", 80.0, [80.9, 81.1])], {"A": Cost(2.0, 3.0, 5e6)}, ["Said."])
    text = markdown(made)
    assert "| A | 85.0 | 84.0 ± 0.4 | -1.0 | 2.0 | 3.0 | 5.0 |" in text
    assert "| B | 84.0 | 87.0 ± 0.6 | **+3.0** |" in text
    assert "| dvd | 80.0 / 81.0 ± 0.1 |" in text
    assert "times FedAvg" not in text
    said, first, *others = csv.DictReader(io.StringIO(table_csv(made)))
    assert (said["part"], said["text"]) == ("about", "Said.")
    assert float(first.pop("deviation")) == pytest.approx(0.4)
    assert list(first.values()) == ["mean", "A", "Ag", "%", "85.0", "84.0", "3", "83.6 84 84.4", ""]
    assert [line["part"] for line in others] == ["mean", "mean", "mean", "client", "cost", "cost", "cost"]


def test_costs_stand_beside_those_of_fedavg() -> None:
    cells = [Cell("FedAvg", "Ag", 85.0, [84.0]), Cell("KTEPS", "Ag", 85.0, [84.0]), Cell("New", "Ag", None, [84.0])]
    costs = {"FedAvg": Cost(9.0, 4.0, 1e6), "KTEPS": Cost(1.0, 6.0, 2e6), "New": Cost(1.0, None, 2e6)}
    text = markdown(Reproduction("T", 1.5, cells, [], costs, ["Said."]))
    assert "| s / round | CPU s | times FedAvg | MB / client |" in text
    assert "| KTEPS | 85.0 | 84.0 | -1.0 | 1.0 | 6.0 | 1.50 | 2.0 |" in text
    assert "| New |  | 84.0 |  | 1.0 |  |  | 2.0 |" in text


def test_small_costs_have_two_digits() -> None:
    costs = {"FedAvg": Cost(0.004, 40.0, 1234.0), "KTEPS": Cost(0.96, 0.031, 0.0), "New": Cost(0.5, 0.5, 9.99e5)}
    cells = [Cell(name, "Ag", None, [84.0]) for name in costs]
    text = markdown(Reproduction("T", 1.5, cells, [], costs, ["Said."]))
    assert "| FedAvg | 84.0 | 0.004 | 40.0 | 1.00 | 0.0012 |" in text
    assert "| KTEPS | 84.0 | 0.96 | 0.031 | 0.00077 | 0.0 |" in text
    assert "| New | 84.0 | 0.5 | 0.5 | 0.013 | 1.0 |" in text


def test_what_runs_have_written_stands_below_the_figures() -> None:
    cells, shown = [Cell("A", "Ag", None, [70.0])], {"A": "# Texts of dvd\n\nGood **film**.\n"}
    text = markdown(Reproduction("T", 1.5, cells, [], {}, ["Said."], shown=shown))
    assert text.endswith("\n\n## A: Texts of dvd\n\nGood **film**.\n")


def test_no_word_is_hidden_as_an_html_tag() -> None:
    said, shown = ["More words are <unk>, as `<unk>` is; 1 < 2."], {"A": "# Texts\n\nGood.<br />\n<!-- so -->\n<b>\n"}
    text = markdown(Reproduction("T", 1.5, [Cell("A", "Ag", None, [70.0])], [], {}, said, shown=shown))
    assert "More words are `<unk>`, as `<unk>` is; 1 < 2.  \n" in text
    assert text.endswith("\n\nGood.&lt;br />\n&lt;!-- so -->\n`<b>`\n")


def test_a_table_says_what_was_tested_and_what_was_not_run() -> None:
    cells = [Cell("FedAvg", "Ag", 85.0, [80.0, 82.0, 84.0]), Cell("KTEPS", "Ag", 86.0, [81.0, 83.1, 85.2])]
    made = Reproduction("T", 1.5, cells, [], {}, ["Said."], [("KTEPS", "FedAvg")], missing=["LG.", "FS"])
    text = markdown(made)
    assert "Rows of the table that were not run: LG., FS." in text
    assert "|  | Ag | p |" in text
    assert "| KTEPS - FedAvg | **+1.1 ± 0.1** | 0.003 |" in text
    assert "paired t test over 3 seeds, not corrected" in text
    single = replace(made, cells=[replace(cell, seeds=cell.seeds[:1]) for cell in cells], missing=[])
    text = markdown(single)
    assert "were not run: none." in text
    assert "| KTEPS - FedAvg | +1.0 |" in text
    assert "One seed: no test is possible." in text
    assert "±" not in text


def test_costs_are_means_over_rounds() -> None:
    made = rows(3)
    for record in made:
        record.metrics |= {"train_seconds": 2.0 * record.round}
    outcome = Outcome("finished", tuple(made))
    assert cost([outcome]) == Cost(4.0, None, 0.0)
    for record in made:
        record.metrics |= {"train_cpu_seconds": 1.0 * record.round, "bytes_per_client": 6.0}
    assert cost([outcome, outcome]) == Cost(4.0, 2.0, 6.0)
    assert cost([]) is None


def test_the_legend_says_what_each_cost_is() -> None:
    """The bytes are both ways, as ``bytes_per_client`` is."""
    records = [replace(one, metrics=one.metrics | {"bytes_per_client": 3e6, "train_seconds": 1.0}) for one in rows(2)]
    spent = cost([Outcome("finished", tuple(records))])
    assert spent is not None
    text = markdown(Reproduction("t", 0.0, [Cell("FedAvg", "Ag", None, [80.0])], [], {"FedAvg": spent}, []))
    assert "| MB / client |" in text
    assert "| 3.0 |" in text
    assert "MB / client: sent and received by a client in a round." in text
