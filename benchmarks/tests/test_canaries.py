"""What is measured of canaries."""

from benchmarks import canaries
from fedtext.testing import tiny

CORPUS = tiny.corpus(clients=4, texts=3, vocabulary=1500)


def test_each_guarantee_and_mistake_has_a_row() -> None:
    rows = list(canaries.calibration(1, CORPUS))
    assert [row["guarantee"] for row in rows] == list(canaries.KINDS)
    assert all(row["epsilon_lower larger than epsilon"] == "0 of 1" for row in rows)
    found = {row["mistake"]: row["found"].split()[0] for row in canaries.mistakes(1, CORPUS)}
    sound = {name for name in found if name.startswith("none")}
    assert {name for name in found if found[name] == "0"} == sound
    assert len(sound) == 2
    assert len(found) == 6


def test_the_cost_of_a_round_is_beside_that_without() -> None:
    without, with_ = canaries.cost(2)
    assert without["times"]["median"] == 1
    assert with_["CPU s"]["min"] > 0
