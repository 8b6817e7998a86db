"""Tables of trials that are in a run's folder already: nothing is trained here."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dashboards.trial import Outcome
from fedtext.records import RoundRecord
from fedtext.state.checkpoint import Checkpoints
from sweeps.reproduce import reproduce
from sweeps.work import Asked, Work
from tune_spaces.cases import Case

ROUNDS = 2
VALUES = (0.5, 0.75, 0.25)  # Ap, by seed


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Table 3 of KTEPS with two rounds, of KTEPS alone."""
    monkeypatch.setenv("FEDTEXT_HOME", str(tmp_path))
    changes = (f"training.rounds={ROUNDS}", "corpus={name: demo}")
    return Asked("kteps", ["3"], methods=["KTEPS"], changes=changes, out=tmp_path / "tables")


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
    kept = Work.of(asked).kept("3")
    return [] if kept is None else next((cell.seeds for cell in kept.cells if cell.row == row), [])


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
    slow.write(rows, slow.finished())
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
    assert slow.write(rows, slow.finished()) == ([], [])
    said(asked, seeds=3)
    assert values(asked) == [pytest.approx(100 * value) for value in VALUES]
