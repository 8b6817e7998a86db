"""The cost of processes that died or hung: what is told, and what stays in the records."""

from dashboards.losses import TOLD, Losses, Lost
from fedtext.records import RoundRecord


def record(round_: int, time: float) -> RoundRecord:
    return RoundRecord(round_, time, {"round_seconds": 2.0})


def test_time_is_lost_from_the_round_before_to_the_one_that_is_complete_again() -> None:
    losses, records = Losses(), [record(1, 100.0), record(2, 102.0)]
    assert losses.regained("one", records[:1], records[1]) == (records[1], "")
    losses.add("one", "since it lost its server (it died)", 2)
    losses.add("one", "since it lost a client actor (it hung)", 2)
    found, sentence = losses.regained("one", records, record(3, 114.5))
    assert found.metrics == {"round_seconds": 2.0, "restarts": 2.0, "seconds_lost": 10.5}
    assert sentence == (
        "went back to its last checkpoint, since it lost its server (it died); since it lost a client actor (it hung): "
        "round 3 was complete 10.5 s later"
    )
    losses.add("one", "since it lost its server (again)", 2)
    found, sentence = losses.regained("one", [*records, found], record(4, 120.5))
    assert sentence.endswith("round 4 was complete 4.0 s later; until now 3 restarts have cost 14.5 s")
    assert found.metrics == {"round_seconds": 2.0, "restarts": 3.0, "seconds_lost": 14.5}
    found, sentence = losses.regained("one", [*records, found], record(5, 122.5))
    assert (found.metrics["restarts"], found.metrics["seconds_lost"], sentence) == (3.0, 14.5, "")
    assert losses.regained("other", [], record(1, 5.0))[0].metrics == {"round_seconds": 2.0}


def test_before_the_first_round_no_time_is_known() -> None:
    losses = Losses()
    losses.add("one", "since it lost its server (it died)", 0)
    found, sentence = losses.regained("one", [], record(1, 5.0))
    assert found.metrics == {"round_seconds": 2.0, "restarts": 1.0, "seconds_lost": 0.0}
    assert sentence == "began again, without a checkpoint, since it lost its server (it died)"


def test_a_later_command_counts_on() -> None:
    kept: dict[str, Lost] = {}
    first = Losses(lambda case: kept.get(case, Lost()), kept.__setitem__)
    first.add("one", "since it lost its server (it died)", 2)
    first.regained("one", [record(1, 100.0)], record(2, 106.0))
    first.keep("one")
    first.keep("other")
    assert kept == {"one": Lost(1, 4.0, first.of("one").sentences)}
    later = Losses(lambda case: kept.get(case, Lost()), kept.__setitem__)
    found, sentence = later.regained("one", [record(2, 106.0)], record(3, 200.0))
    assert (found.metrics["restarts"], found.metrics["seconds_lost"], sentence) == (1.0, 4.0, "")
    later.add("one", "since it lost a client actor (it hung)", 2)
    found, sentence = later.regained("one", [record(3, 200.0)], record(4, 205.0))
    assert (found.metrics["restarts"], found.metrics["seconds_lost"]) == (2.0, 7.0)
    assert sentence.endswith("round 4 was complete 3.0 s later; until now 2 restarts have cost 7.0 s")
    for round_ in range(5, 30):
        later.add("one", f"since {round_}", 2)
        later.regained("one", [], record(round_, 0.0))
    later.keep("one")
    assert kept["one"].restarts == 27
    assert len(kept["one"].sentences) == TOLD
    assert "since 29" in kept["one"].sentences[-1]
