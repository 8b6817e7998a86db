"""How long the head of a cluster has been silent."""

from actors.alive import ANSWER_S, LOOK_S, Silence
from actors.pulse import BEAT_S
from tests.loops import nonempty


def test_the_time_that_a_look_without_an_answer_takes_counts() -> None:
    """A look at a head whose packets are dropped lasts until its time is over."""
    now = [100.0]
    silence = Silence(lambda: now[0])
    for number in nonempty(range(1, 8)):
        now[0] += BEAT_S + ANSWER_S
        assert silence.after(False) == number * 7.0
    now[0] += BEAT_S
    assert silence.after(True) == 0.0
    now[0] += BEAT_S
    assert silence.after(False) == BEAT_S


def test_a_machine_that_slept_has_lost_no_head() -> None:
    now = [0.0]
    silence = Silence(lambda: now[0])
    now[0] += 3600.0
    assert silence.after(False) == LOOK_S
