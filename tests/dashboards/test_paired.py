"""Paired differences between rows: the t test, the paper's order, and the unigram row."""

from dataclasses import replace

import pytest

from dashboards.figures import PERPLEXITY, Cell, Reproduction
from dashboards.paired import Difference, above_unigram, difference, order, p_value
from dashboards.reproduction import markdown


def test_turned_pairs_are_told_from_chance_seed_by_seed() -> None:
    cells = [
        Cell("A", "Ag", 85.0, [80.0, 84.0, 88.0]),
        Cell("B", "Ag", 82.5, [82.0, 86.1, 90.2]),  # always about two points above A, however far the seeds lie apart
        Cell("C", "Ag", 84.0, [82.0, 86.1, 90.2]),
        Cell("D", "Ag", 81.0, [87.0, 84.0, 84.0]),
    ]
    made = Reproduction("T", 1.5, cells, [], {}, ["Said."])
    # B - A = 2.0, 2.1, 2.2 and D - A = 7, 0, -4, whose deviation is 5.6
    assert order(made, "Ag") == [
        "Ag: of 6 pairs of rows that the paper orders, 2 in the paper's order (0 significant), 1 equal here, "
        "3 inverted (2 significant, 1 within noise).",
        "- Inverted, significant, beyond the paper's own noise (2.1 points of a difference): "
        "A - B (+2.5, here -2.1 ± 0.1, p < 0.001).",
        "- Inverted, significant, within the noise of two of the paper's values: "
        "A - C (+1.0, here -2.1 ± 0.1, p < 0.001).",
        "- Inverted, within noise: A - D (+4.0, here -1.0 ± 3.2, p = 0.79).",
    ]
    single = replace(made, cells=[Cell("A", "Ag", 85.0, [84.0]), Cell("B", "Ag", 83.0, [86.0])])
    assert order(single, "Ag") == [
        "Ag: of 1 pairs of rows that the paper orders, 0 in the paper's order, 1 inverted.",
        "- Inverted, of one seed: no test is possible: A - B (+2.0, here -2.0).",
    ]
    (said,) = order(replace(made, cells=cells[2:]), "Ag")
    assert said.endswith("1 in the paper's order (0 significant), 0 inverted.")
    assert order(replace(made, cells=cells[:1]), "Ag") == []


def test_the_paired_t_test_is_that_of_the_textbook() -> None:
    """Differences 1, 2, 3: mean 2, standard error 1 / sqrt(3), t = 3.46 on two degrees of freedom, whose distribution
    function is 1/2 + t / (2 sqrt(2 + t^2)); however far the seeds themselves lie apart."""
    found = difference(Cell("A", "Ag", None, [11.0, 52.0, 33.0]), Cell("B", "Ag", None, [10.0, 50.0, 30.0]))
    t = 2 * 3**0.5
    assert found == Difference(2.0, pytest.approx(3**-0.5), pytest.approx(1 - t / (2 + t * t) ** 0.5))
    assert not found.significant, "p = 0.074"
    equal = difference(Cell("A", "Ag", None, [1.0, 2.0]), Cell("B", "Ag", None, [1.0, 2.0]))
    assert equal == Difference(0.0, 0.0, None)
    apart = difference(Cell("A", "Ag", None, [3.1, 4.2, 5.3]), Cell("B", "Ag", None, [1.1, 2.2, 3.3]))
    assert apart == Difference(pytest.approx(2.0), 0.0, None), "without spread there is no t, but for rounding"
    assert not apart.significant
    assert p_value(apart) == "no test"
    single = difference(Cell("A", "Ag", None, [1.0]), Cell("B", "Ag", None, [3.0]))
    assert single == Difference(-2.0, None, None)
    assert not single.significant


def test_models_that_word_counts_beat_are_no_evidence() -> None:
    cells = [
        Cell("FedAvg", "perplexity", 90.0, [99.0, 101.0], PERPLEXITY),
        Cell("FedAtt", "perplexity", 80.0, [94.0, 96.0], PERPLEXITY),
        Cell("unigram", "perplexity", None, [98.0, 98.0], PERPLEXITY),
    ]
    made = Reproduction("T", 5, cells, [], {}, [])
    assert "1 of 2 models (FedAvg) are NOT BELOW THE UNIGRAM ROW in perplexity" in above_unigram(made)
    assert above_unigram(made) in markdown(made)
    worse = [*cells[:2], replace(cells[2], seeds=[50.0, 50.0])]
    assert above_unigram(replace(made, cells=worse)).startswith("All 2 models are NOT BELOW")
    better = [*cells[:2], replace(cells[2], seeds=[150.0, 150.0])]
    assert above_unigram(replace(made, cells=better)) == "All 2 models are below the unigram row in perplexity."
    assert above_unigram(replace(made, cells=cells[:2])) == ""


def test_each_model_is_compared_with_the_word_counts_of_its_own_texts() -> None:
    """Also where names have commas, and one begins as another does."""
    models = {"FedAvg": 420.0, "FedAvg, small": 590.0, "FedAtt, small": 610.0}
    cells = [Cell(row, "perplexity", None, [value], PERPLEXITY) for row, value in models.items()]
    counted = {"unigram of FedAvg": 430.0, "unigram of FedAvg, small, FedAtt, small": 600.0}
    counts = [Cell(row, "perplexity", None, [value], PERPLEXITY) for row, value in counted.items()]
    said = above_unigram(Reproduction("T", 5, [*cells, *counts], [], {}, []))
    assert said.startswith("1 of 3 models (FedAtt, small) are NOT BELOW")
