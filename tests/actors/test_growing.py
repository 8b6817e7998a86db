"""A sweep that runs while its cluster grows."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import tune
from ray.tune import TuneConfig
from ray.tune.search import ConcurrencyLimiter, Searcher
from ray.tune.search.basic_variant import BasicVariantGenerator

from actors import sweep

CASES = ("a", "b", "c")


class Listed(Searcher):
    """The cases, one after the other."""

    def __init__(self) -> None:
        super().__init__(metric="met", mode="max")
        self.left = list(CASES)

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        return {"case": self.left.pop(0)} if self.left else Searcher.FINISHED

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        pass

    def save(self, checkpoint_path: str) -> None:
        pass

    def restore(self, checkpoint_path: str) -> None:
        pass


class Met(tune.Callback):
    """Collects whether each trial has met another one."""

    def __init__(self) -> None:
        self.found: dict[str, bool] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
        self.found[trial.config["case"]] = result["met"]


@pytest.fixture(scope="module")
def started() -> Iterator[None]:
    """A Ray for the tests of this file."""
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.mark.ray
@pytest.mark.usefixtures("started")
@pytest.mark.parametrize("searched", [False, True])
@pytest.mark.parametrize(("then", "met"), [(1, False), (2, True)])
def test_more_trials_run_at_the_same_time_once_there_is_room_for_them(
    searched: bool, then: int, met: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first trial waits for the second one, which starts only if the limit is raised while the first one runs."""
    monkeypatch.setattr(sweep, "LOOK_S", 0.1)
    patience = 60.0 if met else 3.0  # with a limit of one nobody comes
    folder, cases = str(tmp_path), CASES

    def trainable(config: dict[str, Any]) -> None:
        me, there = Path(folder, config["case"]), [Path(folder, case) for case in cases]
        me.touch()
        until = time.monotonic() + patience
        while config["case"] == "a" and not there[1].exists() and time.monotonic() < until:
            time.sleep(0.05)
        tune.report({"met": there[1].exists()})

    def concurrent() -> int:
        return then if (tmp_path / "a").exists() else 1

    made = ConcurrencyLimiter(Listed(), max_concurrent=1) if searched else BasicVariantGenerator(max_concurrent=1)
    config = TuneConfig(search_alg=made, num_samples=len(CASES) if searched else 1)
    space = {} if searched else {"case": tune.grid_search(list(CASES))}
    seen = Met()
    given = tune.with_resources(trainable, {"cpu": 1})
    sweep._fit(given, space, config, [sweep.Growing(made, concurrent), seen], 0)
    assert set(seen.found) == set(CASES)
    assert seen.found["a"] == met
