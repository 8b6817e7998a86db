"""Perplexities and thresholds in tables of papers: units, noise, and what was not reached."""

import csv
import io
import math

from dashboards.figures import PERPLEXITY, ROUNDS, Cell, Reproduction, unit
from dashboards.paired import difference, differs, order
from dashboards.reproduction import markdown, picture
from dashboards.reproduction_csv import table_csv
from tests.loops import nonempty
from tune_spaces import papers

FEDATT = papers.load("fedatt")


def test_what_a_number_is_follows_from_what_is_read() -> None:
    assert unit("perplexity").of(90.5) == 90.5
    assert unit("perplexity_p90").of(math.inf) is None
    assert unit("top3").of(0.25) == unit("AUC").of(0.25) == 25
    assert unit("rounds_to_perplexity_val_300").of(7.0) == 7
    assert unit("rounds_to_perplexity_val_300").of(None) is None
    assert unit("bytes_to_Ag_val_0.8").of(5e6) == 5


def _shown() -> Reproduction:
    cells = [
        Cell("FedAvg", "perplexity", 100.0, [200.0, 210.0, 190.0], PERPLEXITY),
        Cell("FedAtt", "perplexity", 80.0, [203.0, 213.5, 193.5], PERPLEXITY),
        Cell("Worse", "perplexity", None, [None, 3e9, 2e9], PERPLEXITY),
        Cell("FedAvg", "to 300", None, [4.0, 5.0, None], ROUNDS),
        Cell("FedAtt", "to 300", None, [None, None, None], ROUNDS),
        Cell("Worse", "to 300", None, [], ROUNDS),
    ]
    return Reproduction("T", 5, cells, [], {}, ["Said."], [("FedAtt", "FedAvg")])


def test_perplexities_are_shown_as_they_are_and_what_was_not_reached_is_said() -> None:
    text = markdown(_shown())
    assert "|  | perplexity: paper | ours | difference | to 300: ours | s / round" in text
    assert "| FedAvg | 100.0 | 200.0 ± 10.0 | **+100.0** | 4.5 ± 0.7 (2 of 3) |" in text
    assert "| FedAtt | 80.0 | 203.3 ± 10.0 | **+123.3** | not reached |" in text
    assert "| Worse |  | 2.5e+09 ± 7.1e+08 (2 of 3) |  |  |" in text
    assert "Perplexity (perplexity), less is better; Rounds (to 300), less is better; ours: mean" in text
    assert "noise (5% of it)" in text
    assert "| FedAtt - FedAvg | **+3.3 ± 0.2** | 0.002 | not reached |  |" in text


def test_of_perplexities_less_is_better_and_their_noise_is_relative() -> None:
    made = _shown()
    (_, turned) = order(made, "perplexity")
    assert turned == (
        "- Inverted, significant, beyond the paper's own noise (5% of each value): "
        "FedAtt - FedAvg (-20.0, here +3.3 ± 0.2, p = 0.002)."
    )
    assert order(made, "to 300") == []
    single = Cell("A", "perplexity", 100.0, [104.0], PERPLEXITY)
    assert made.noise_of(single) == 5
    assert not differs(single, made.noise_of(single))
    worse = Cell("B", "perplexity", 98.0, [105.0], PERPLEXITY)
    close = Reproduction("T", 5, [single, worse], [], {}, [])
    assert order(close, "perplexity")[1:] == ["- Inverted, of one seed: no test is possible: B - A (-2.0, here +1.0)."]
    assert difference(single, Cell("C", "perplexity", None, [None], PERPLEXITY)) is None


def test_the_other_forms_have_the_units_too() -> None:
    made = _shown()
    lines = list(csv.DictReader(io.StringIO(table_csv(made))))
    assert [(line["unit"], line["ours"], line["seeds"], line["values"]) for line in lines][-3:] == [
        ("rounds", "4.5", "3", "4 5 -"),
        ("rounds", "", "3", "- - -"),
        ("rounds", "", "0", ""),
    ]
    nowhere = Reproduction("T", 5, made.cells[-2:], [], {}, ["Said."])  # nothing to plot, and no legend of it
    assert all(len(picture(each)) > 5_000 for each in nonempty([made, nowhere]))
