"""Many trials with real failures are ranked as one after the other."""

from pathlib import Path

import pytest

from benchmarks.search import EVERY, KILLED, RAISES, alone, content, swept
from tests.loops import nonempty

TRIALS = 40  # of which one raises and one is killed; python -m benchmarks.search has 200
SMALL = {
    "corpus": {"name": "demo", "clients": 3, "train": 20, "test": 10, "validation": 0.2},
    "model": {"embedding": {"dim": 4}, "hidden": 4, "head": {"hidden": 4}},
}


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(3600)
def test_trials_of_which_one_in_twenty_fails_are_ranked_as_one_after_the_other(tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in ("swept", "alone", "marks")}
    for folder in places.values():
        folder.mkdir()
    found = swept(content(TRIALS, 1, places["marks"], **SMALL), places["swept"], cpus=3)
    reference = alone(content(TRIALS, 1, None, **SMALL), places["alone"])
    raised = {number / 1000 for number in range(TRIALS) if number % EVERY == RAISES}
    killed = {number / 1000 for number in range(TRIALS) if number % EVERY == KILLED}
    assert len(raised) + len(killed) == TRIALS / 20
    assert set(found.errors) == raised
    assert all(nonempty("an injected failure" in error for error in found.errors.values()))
    assert {float(mark.name) for mark in places["marks"].iterdir()} == killed
    both = sorted(set(reference.losses) - raised)
    assert len(both) == len(found.losses) == TRIALS - len(raised)
    assert found.ranking(both) == reference.ranking(both)
    assert found.losses == {mu: reference.losses[mu] for mu in both}
    warnings = (places["swept"] / "stderr").read_text()
    assert warnings.count("began again, without a checkpoint, since it lost a client actor") == len(killed)
    assert (places["swept"] / "stdout").read_text().count("an injected failure") >= 2 * len(raised), "said, and listed"
