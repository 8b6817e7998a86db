"""The benchmark of canaries: they find mistakes in the noise."""

import logging

import pytest

from benchmarks import canaries
from fedtext.testing import tiny
from tests.loops import nonempty

CORPUS = tiny.corpus(clients=4, texts=3, vocabulary=1500)


@pytest.mark.slow
def test_each_guarantee_and_mistake_has_a_row() -> None:
    rows = list(canaries.calibration(1, CORPUS))
    assert [row["guarantee"] for row in rows] == list(canaries.KINDS)
    assert all(row["epsilon_lower larger than epsilon"] == "0 of 1" for row in nonempty(rows))
    found = {row["mistake"]: row["found"].split()[0] for row in canaries.mistakes(1, CORPUS)}
    sound = {name for name in found if name.startswith("none")}
    assert {name for name in found if found[name] == "0"} == sound
    assert len(sound) == 2
    assert len(found) == 6


def test_the_cost_of_a_round_is_beside_that_without() -> None:
    without, with_ = canaries.cost(2, 100)
    assert without["times"]["median"] == 1
    assert with_["CPU s"]["min"] > 0


@pytest.mark.parametrize("mistake", [name for name in canaries.MISTAKES if name != "none"])
def test_a_mistake_is_told_in_a_warning(mistake: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert not canaries.too_large(4, canaries.MISTAKES["none"], CORPUS)
        assert not caplog.messages
        assert canaries.too_large(4, canaries.MISTAKES[mistake], CORPUS)
    assert any("more than the" in message and "of the ledger" in message for message in caplog.messages)


def test_noise_that_two_trials_share_is_found() -> None:
    assert not canaries.of_two_trials(5, canaries.MISTAKES["none"], CORPUS)
    assert canaries.of_two_trials(5, canaries.shared_noise, CORPUS)
