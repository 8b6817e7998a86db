"""Schedulers on the reports of trials: ASHA, and the median stopping rule."""

from typing import Any

from ray.tune.schedulers import TrialScheduler

from actors.schedulers import Sparing, SparingASHA, SparingMedian, scheduler
from fedtext.config.tune import Tune
from fedtext.records import RoundRecord
from tests.loops import nonempty

ASHA = Tune(metric="loss", mode="min", scheduler="asha", grace_rounds=1)


def report(round_: int, loss: float) -> dict[str, Any]:
    """What a trial reports after a round."""
    return {
        "record": RoundRecord(round_, 0.0, {"loss": loss}),
        "restarts": 0,
        "lost": "",
        "unused_gpus": "",
        "uncopied": "",
    }


def order(*histories: list[float], spared: tuple[str, ...] = ()) -> SparingASHA:
    made = scheduler(ASHA, 9, spared)
    assert isinstance(made, SparingASHA)
    records = {
        str(case): [RoundRecord(n + 1, 0.0, {"loss": loss}) for n, loss in enumerate(losses)]
        for case, losses in enumerate(histories)
    }
    made.remember(records)
    return made


class Trial:
    def __init__(self, case: str) -> None:
        self.trial_id, self.config = case, {"case": case}


def test_the_record_of_a_report_alone_decides() -> None:
    asha = order([0.1], [0.2], [0.3], [0.4], spared=("reference",))
    for case, loss, expected in nonempty(
        [
            ("good", 0.05, TrialScheduler.CONTINUE),
            ("bad", 0.9, TrialScheduler.STOP),
            ("reference", 0.9, TrialScheduler.CONTINUE),
        ]
    ):
        asha.on_trial_add(None, Trial(case))
        assert asha.on_trial_result(None, Trial(case), report(1, loss)) == expected, case
        asha.on_trial_complete(None, Trial(case), report(1, loss))


def test_a_report_of_an_error_decides_nothing() -> None:
    asha = order([0.1], [0.2], [0.3], [0.4])
    asha.on_trial_add(None, Trial("failed"))
    failed = {"error": "its loss is not finite", "user_error": False}
    assert asha.on_trial_result(None, Trial("failed"), failed) == TrialScheduler.CONTINUE
    asha.on_trial_complete(None, Trial("failed"), failed)
    asha.on_trial_remove(None, Trial("failed"))


def median(grace_rounds: int = 2, spared: tuple[str, ...] = ()) -> SparingMedian:
    made = scheduler(Tune(metric="loss", scheduler="median", grace_rounds=grace_rounds), 9, spared)
    assert isinstance(made, SparingMedian)
    return made


def decisions(rule: Sparing, case: str, *losses: float) -> list[str]:
    rule.on_trial_add(None, Trial(case))
    return [rule.on_trial_result(None, Trial(case), report(n, loss)) for n, loss in enumerate(losses, 1)]


def test_the_median_rule_stops_what_is_worse_than_the_median_of_three() -> None:
    rule = median(spared=("reference",))
    go_on, stop = TrialScheduler.CONTINUE, TrialScheduler.STOP
    assert decisions(rule, "first", 0.5, 0.4, 0.3) == [go_on] * 3
    assert decisions(rule, "second", 0.9, 0.9, 0.9) == [go_on] * 3, "of two others there is no median"
    assert decisions(rule, "third", 0.6, 0.5, 0.4) == [go_on] * 3
    # Running means from round 2 on: 0.4, 0.9, 0.5. The median is 0.5.
    assert decisions(rule, "bad", 0.9, 0.6) == [go_on, stop]
    assert decisions(rule, "good", 0.9, 0.45) == [go_on, go_on]
    assert decisions(rule, "reference", 0.9, 0.9, 0.9) == [go_on] * 3
    failed = {"error": "its loss is not finite", "user_error": False}
    assert rule.on_trial_result(None, Trial("good"), failed) == go_on
    rule.on_trial_complete(None, Trial("good"), failed)


def test_a_trial_that_was_interrupted_is_judged_anew_by_the_median_rule() -> None:
    rule = median(grace_rounds=1)
    records = {
        case: [RoundRecord(n + 1, 0.0, {"loss": loss}) for n, loss in enumerate(losses)]
        for case, losses in {"a": [0.1, 0.1], "b": [0.2, 0.2], "c": [0.3, 0.3], "slow": [0.9]}.items()
    }
    rule.remember(records)
    assert rule.on_trial_result(None, Trial("slow"), report(2, 0.9)) == TrialScheduler.STOP


def test_the_median_rule_remembers_a_trial_that_went_on_after_it_was_worse() -> None:
    """It was judged before the others had come so far; remembered case by case, it is the last."""
    losses = {"a": [0.1] * 4, "b": [0.2] * 4, "c": [0.15] * 4, "fast": [0.9] * 3}
    rule, go_on = median(grace_rounds=1), TrialScheduler.CONTINUE
    for case in nonempty(["a", "b", "fast", "c"]):
        assert set(decisions(rule, case, *losses[case])) == {go_on}, case
    again = median(grace_rounds=1)
    records = {case: [RoundRecord(n, 0.0, {"loss": x}) for n, x in enumerate(of, 1)] for case, of in losses.items()}
    again.remember(records)
    assert again.on_trial_result(None, Trial("c"), report(5, 0.15)) == go_on
    assert again.on_trial_result(None, Trial("fast"), report(4, 0.9)) == TrialScheduler.STOP


def test_the_median_rule_counts_a_round_that_is_repeated_once() -> None:
    """With checkpoint.every > 1 a trial whose server was lost repeats the rounds since its last checkpoint."""
    rule, go_on = median(grace_rounds=1), TrialScheduler.CONTINUE
    for case, losses in nonempty([("a", [0.2] * 4), ("b", [0.8] * 4), ("repeated", [0.1, 0.9, 0.9])]):
        assert set(decisions(rule, case, *losses)) == {go_on}, case
    again = [rule.on_trial_result(None, Trial("repeated"), report(n, 0.9)) for n in (2, 3)]
    again.append(rule.on_trial_result(None, Trial("repeated"), report(4, 0.1)))
    assert again == [go_on] * 3
    # Running means over rounds 1 to 4: 0.2, 0.5, 0.8. With its rounds 2 and 3 twice the median would be 0.633.
    assert decisions(rule, "near", 0.6, 0.6, 0.6, 0.6)[-1] == TrialScheduler.STOP


def test_the_median_rule_judges_no_round_that_is_repeated_again() -> None:
    rule, go_on = median(grace_rounds=1), TrialScheduler.CONTINUE
    for case, losses in nonempty([("early", [0.9] * 3), ("a", [0.1] * 3), ("b", [0.2] * 3), ("c", [0.15] * 3)]):
        assert set(decisions(rule, case, *losses)) == {go_on}, case
    assert rule.on_trial_result(None, Trial("early"), report(3, 0.9)) == go_on, "it was judged after round 3 before"
    assert rule.on_trial_result(None, Trial("early"), report(4, 0.9)) == go_on, "the others have not come so far"


def test_the_median_rule_counts_the_last_round_of_a_trial_that_has_ended_once() -> None:
    rule = median(grace_rounds=1)
    for case, losses in nonempty([("a", [0.1, 0.1]), ("b", [0.9, 0.1]), ("c", [0.9, 0.9])]):
        decisions(rule, case, *losses)
        rule.on_trial_complete(None, Trial(case), report(2, losses[-1]))
    # Running means over both rounds: 0.1, 0.5, 0.9. With the last round twice the median would be 0.367.
    assert decisions(rule, "near", 0.6, 0.45)[-1] == TrialScheduler.CONTINUE
