"""The order of trials: ASHA on the reports of trials."""

from typing import Any

from ray.tune.schedulers import TrialScheduler

from actors.sweep import SparingASHA, scheduler
from fedtext.config.sections import Tune
from fedtext.records import RoundRecord
from tests.loops import nonempty

ASHA = Tune(metric="loss", mode="min", scheduler="asha", grace_rounds=1)


def report(round_: int, loss: float) -> dict[str, Any]:
    """What a trial reports after a round."""
    return {"record": RoundRecord(round_, 0.0, {"loss": loss}), "restarts": 0, "lost": "", "unused_gpus": ""}


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
