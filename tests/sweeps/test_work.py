"""Tables of trials that are in a run's folder already: nothing is trained here."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dashboards.store import Store
from dashboards.trial import Outcome
from fedtext.records import RoundRecord
from fedtext.state.checkpoint import Checkpoints
from sweeps import arrange, kept
from sweeps.asked import Asked
from sweeps.places import PLAN
from sweeps.reproduce import reproduce
from sweeps.work import Work
from tune_spaces.cases import Case

ROUNDS = 2
VALUES = (0.5, 0.75, 0.25)  # Ap, by seed


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Table 3 of KTEPS with two rounds, of KTEPS alone."""
    monkeypatch.setenv("FEDTEXT_HOME", str(tmp_path))
    monkeypatch.setattr(kept, "picture", lambda _: b"")  # takes most of the time
    model = "model={embedding: {dim: 4}, hidden: 4, head: {hidden: 4}}"
    changes = (f"training.rounds={ROUNDS}", "corpus={name: demo, clients: 3, train: 20, test: 10}", model)
    return Asked("kteps", ["3"], methods=["KTEPS"], changes=changes, out=tmp_path / "tables")


def test_a_table_has_one_file_however_its_changes_are_typed(asked: Asked) -> None:
    spelled = (
        ["training.batch_size={steps: 9}", "training.optimizer.lr=0.10"],
        [
            "training.optimizer.lr=0.1",
            'training.batch_size={"steps":9}',
        ],
    )
    one, other = (Work.of(replace(asked, changes=(*asked.changes, *words))).stem("3") for words in spelled)
    assert one == other
    assert Work.of(asked).stem("3") != one
    assert Work.of(replace(asked, changes=(*asked.changes, *spelled[0][:1]))).stem("3") != one


def cases(asked: Asked, row: str = "KTEPS") -> list[Case]:
    """The cases of a row, one for each of ``VALUES``."""
    return Work.of(replace(asked, seeds=len(VALUES), again=True)).left(lambda _: None)["3"][row]


def end(asked: Asked, case: Case, value: float, rounds: int | None = None) -> None:
    """A trial as it is left when it has finished; with a checkpoint of ``rounds`` rounds, 0 for none."""
    work = Work.of(asked)
    if not work.folder.path.exists():
        work.folder.create(work.content, work.experiment)
    rounds = case.experiment.training.rounds if rounds is None else rounds
    metrics = {"Ap": value, "train_seconds": 1.0, "bytes_per_client": 8.0}
    records = [RoundRecord(n + 1, 0.0, metrics) for n in range(rounds)]
    if records:
        Checkpoints(work.folder.case(case.id) / "checkpoint", "of a test").save(np.zeros(1, np.float32), {}, records)
    work.folder.record(case.id, Outcome("finished"))


def said(asked: Asked, **changes: Any) -> str:
    """What ``--finished`` prints."""
    lines = list[object]()
    assert reproduce(replace(asked, finished=True, **changes), lines.append) == 0
    return "\n".join(map(str, lines))


def values(asked: Asked, row: str = "KTEPS") -> Sequence[float | None]:
    made = Work.of(asked).kept("3")
    return [] if made is None else next((cell.seeds for cell in made.cells if cell.row == row), [])


@pytest.mark.parametrize("meanwhile", [1, 2, 3])
def test_a_seed_that_another_command_writes_meanwhile_stands_in_the_table_once(asked: Asked, meanwhile: int) -> None:
    first, *_ = three = cases(asked)
    end(asked, first, VALUES[0])
    said(asked)
    slow = Work.of(replace(asked, seeds=3))
    rows = slow.left(lambda _: None)
    assert [case.experiment.seed for case in rows["3"]["KTEPS"]] == [1, 2]
    for case, value in zip(three[1:], VALUES[1:], strict=True):
        end(asked, case, value)
    said(asked, seeds=meanwhile)
    slow.write(rows, slow.finished(rows, print))
    assert values(asked) == [pytest.approx(100 * value) for value in VALUES]
    costs = slow.kept("3")
    assert costs is not None
    assert costs.costs["KTEPS"].seconds == 1.0


def test_later_seeds_are_not_written_as_the_first_ones_if_the_table_is_removed(asked: Asked) -> None:
    three = cases(asked)
    for case, value in zip(three, VALUES, strict=True):
        end(asked, case, value)
    said(asked)
    slow = Work.of(replace(asked, seeds=3))
    rows = slow.left(lambda _: None)
    for file in slow.out.iterdir():
        file.unlink()
    assert slow.write(rows, slow.finished(rows, print)) == ([], [])
    said(asked, seeds=3)
    assert values(asked) == [pytest.approx(100 * value) for value in VALUES]


def test_a_command_with_more_rounds_leaves_the_trials_of_another_one_as_they_are(asked: Asked) -> None:
    """Both share the folder of the data set, and have trials of their own there."""
    short = cases(asked)
    work = Work.of(asked)
    work.folder.create(work.content, work.experiment, cases=short)
    end(asked, short[0], VALUES[0])
    more = replace(asked, changes=["training.rounds=5", *asked.changes[1:]])
    work, (long, *_) = Work.of(more), cases(more)
    assert long.id != short[0].id
    work.folder.create(work.content, work.experiment, cases=[long])
    work.folder.create(work.content, work.experiment, cases=[long])
    assert work.folder.done(work.experiment) == {short[0].id: "finished"}
    plan = json.loads((work.folder.path / PLAN).read_text())
    assert {case: about["rounds"] for case, about in plan["trials"].items()} == {
        **{case.id: ROUNDS for case in short},
        long.id: 5,
    }
    said(asked)
    assert values(asked) == [50.0]


def test_trials_of_other_commands_take_no_place_of_those_that_are_to_run(asked: Asked) -> None:
    three = cases(asked)
    more = replace(asked, changes=["training.rounds=5", *asked.changes[1:]])
    for case in cases(more):
        end(more, case, VALUES[0])
    work = Work.of(asked)
    corpora = arrange.corpora_of(work.experiment, three, None)
    job = arrange.arranged(True, work.experiment, three, corpora, [{"CPU": 64.0}], Store("sqlite://"), work.folder)
    assert {plan.trials for plan in job.plans.values()} == {3}


@pytest.mark.parametrize("rounds", [0, ROUNDS - 1])
def test_a_trial_without_its_last_checkpoint_has_not_finished(asked: Asked, rounds: int) -> None:
    """A command that trains runs it again."""
    first, second, third = cases(asked)
    for case, reached in ((first, ROUNDS), (second, rounds), (third, ROUNDS)):
        end(asked, case, VALUES[0], reached)
    left_out = f"{second.id} is left out: its checkpoint has {rounds} of {ROUNDS} rounds: without --finished"
    assert left_out in said(asked, seeds=3)
    assert values(asked) == [50.0]
    (rows,) = Work.of(replace(asked, seeds=3)).left(print).values()
    assert rows["KTEPS"] == [second, third]
