"""What a run's folder keeps of how it was begun, and what each command says of going on."""

import json
import os
import subprocess
import sys
from pathlib import Path
from platform import _words  # type: ignore[attr-defined]
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dashboards.losses import Lost
from dashboards.store import Store
from dashboards.trial import Outcome
from fedtext.config import files
from fedtext.errors import OwnershipLostError, UserError
from fedtext.records import RoundRecord
from fedtext.state.checkpoint import Checkpoints
from fedtext.state.outage import Outage
from fedtext.state.seal import VARIABLE
from sweeps import trials
from sweeps.folder import RunFolder
from sweeps.job import Job
from sweeps.places import LOSSES, PLAN
from sweeps.training import _ended
from tests.commands import EXPERIMENT, ROOT, Forked, write
from tests.loops import nonempty
from tune_spaces.cases import Case

FILE = "FILE"  # stands for the experiment file


OTHERWISE: dict[str, dict[str, Any]] = {
    "asha": {"tune": {"metric": "loss", "scheduler": "asha"}},
    "chosen": {"method": "fedavg", "space": {}, "evaluation": {"select": "Ag_val", "personalize": {"steps": 2}}},
    "grid": {"space": {"training.rounds": {"grid": [2, 3]}}},
}


def begin(run: Path, **plan: Any) -> None:
    """A run's folder as a command leaves it that is killed before its first round."""
    run.mkdir(parents=True)
    (run / "plan.json").write_text(json.dumps({"content": EXPERIMENT} | plan))


def said_by(home: Path, cases: list[tuple[list[str], str]]) -> None:
    """Each command is to be refused with one sentence that contains the one beside it."""
    file = str(write(home))
    for words, sentence in nonempty(cases):
        done = Forked(home, *(file if word == FILE else word for word in words)).wait()
        assert done.returncode == 2, (words, done.stderr)
        assert sentence in done.stderr, words
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_a_run_goes_on_as_it_was_begun_or_says_why_not(tmp_path: Path) -> None:
    runs, far = tmp_path / "runs", tmp_path / "elsewhere" / "far"
    begin(runs / "swept", command="sweep", data=None)
    begin(runs / "moved", command="sweep", data=str(tmp_path / "gone"))
    begin(runs / "old")
    begin(runs / "mixed", command="sweep", data=None)
    begin(far, command="sweep", data=None)
    for name, changes in OTHERWISE.items():
        begin(runs / name, command="sweep", data=None, content=EXPERIMENT | changes)
    mixed = runs / "mixed" / "02-kteps"
    Checkpoints(mixed / "checkpoint", "of other texts").save(np.zeros(1, np.float32), {}, [RoundRecord(1, 0.0, {})])
    begun = "swept was begun otherwise (training.rounds 3 -> 2): continue it"
    cases = [
        (["run", "--resume", "swept"], "began swept: continue it by python -m platform.sweep --resume swept"),
        (["run", FILE, "--resume", "swept"], "platform.sweep began swept"),
        (["sweep", "--resume", "swept", "training.rounds=2"], begun),
        (["sweep", "--resume", "swept", "training.rounds=2"], "by python -m platform.sweep --resume swept, or start"),
        (["sweep", FILE, "--resume", "swept", "training.rounds=2"], begun),
        (["sweep", FILE, "--resume", "old", "training.rounds=2"], "with the experiment it was begun with, or start"),
        (["sweep", "--resume", str(far), "training.rounds=2"], f"by python -m platform.sweep --resume {far}, or"),
        (["sweep", "--resume", "swept", "--seed", "4"], "was begun otherwise (seed 0 -> 4): continue"),
        (["sweep", "--resume", "swept", "method.lambda1=1"], "begun otherwise (method.lambda1 0.01 -> 1.0)"),
        (["sweep", "--resume", "swept", "training.rounds=4", "seed=1"], "(seed 0 -> 1, training.rounds 3 -> 4)"),
        (["sweep", "--resume", "swept", "method=fedavg"], 'method.name "kteps" -> "fedavg", method.'),
        (["sweep", "--resume", "asha", "training.rounds=9"], "asha cannot have more rounds: tune.scheduler: asha has"),
        (["sweep", "--resume", "chosen", "training.rounds=9"], "chosen cannot have more rounds: evaluation.select has"),
        (["sweep", "--resume", "grid", "training.rounds=9"], "grid cannot have more rounds: its space has training.r"),
        (["sweep", "--resume", "swept", "--name", "mine"], "leave out --name"),
        (["sweep", "--resume", "swept", "training.round=9"], "there is no key training.round; did you mean rounds?"),
        (["sweep", "--resume", "swept", "tracking.uri=http://127.0.0.1:9"], "http://127.0.0.1:9 cannot be reached"),
        (["sweep", "--resume", "old"], "old does not record how it was begun: name its experiment"),
        (["sweep", "--resume", "moved"], f"was begun with --data {tmp_path}/gone, and there is no such folder now"),
        (["sweep", "--resume", "moved", "--data", "nowhere"], "--data: there is no folder nowhere"),
        (["sweep", "--resume", "mixed"], f"{mixed} was made from other data"),
    ]
    said_by(tmp_path, cases)


def test_a_run_goes_on_with_the_data_it_was_begun_with_unless_others_are_named(tmp_path: Path) -> None:
    for name in ("first", "second"):  # files that are found, and too narrow
        (tmp_path / name).mkdir()
        (tmp_path / name / "vectors.txt").write_text("superb 1 2 3\n")
    init = "model.embedding.init={file: {path: vectors.txt}}"
    model = {"embedding": {"dim": 8, "init": {"file": {"path": "vectors.txt"}}}, "hidden": 8, "head": {"hidden": 8}}
    begin(tmp_path / "runs/kept", content=EXPERIMENT | {"model": model}, command="sweep", data=str(tmp_path / "first"))
    begin(tmp_path / "runs/none", content=EXPERIMENT | {"model": model}, command="sweep", data=None)
    cases = [
        (["sweep", "--resume", "kept"], f"{tmp_path}/first/vectors.txt"),
        (["sweep", FILE, init, "--resume", "kept"], f"{tmp_path}/first/vectors.txt"),
        (["sweep", "--resume", "kept", "--data", str(tmp_path / "second")], f"{tmp_path}/second/vectors.txt"),
        (["sweep", "--resume", "none"], "no word vectors at vectors.txt"),
    ]
    said_by(tmp_path, cases)


@pytest.mark.parametrize("where", ["first outcome", "second outcome", PLAN])
def test_a_command_that_is_killed_while_it_makes_a_run_longer_does_so_when_it_is_repeated(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is killed, no trial passes for finished that has the rounds of the shorter run."""
    whole = EXPERIMENT | {"training": EXPERIMENT["training"] | {"rounds": 5}}
    folder = RunFolder(tmp_path / "run")
    folder.create(EXPERIMENT, files.validate(EXPERIMENT), "sweep")
    for case in ("01-kteps", "02-kteps", "03-kteps"):
        folder.record(case, Outcome("stopped" if case == "03-kteps" else "finished"))
    unlink, replace, removed = Path.unlink, os.replace, list[Path]()

    def killed_at_outcome(path: Path, missing_ok: bool = False) -> None:
        if path.name == "outcome.json":
            removed.append(path)
            if len(removed) == (1 if where == "first outcome" else 2):
                raise KeyboardInterrupt
        unlink(path, missing_ok)

    def killed_at_plan(draft: Path, file: Path) -> None:
        if Path(file).name == PLAN:
            raise KeyboardInterrupt
        replace(draft, file)

    with monkeypatch.context() as killed:
        if where == PLAN:
            killed.setattr(os, "replace", killed_at_plan)
        else:
            killed.setattr(Path, "unlink", killed_at_outcome)
        with pytest.raises(KeyboardInterrupt):
            folder.create(whole, files.validate(whole), "sweep")
    assert folder.longer(files.validate(whole))
    folder.create(whole, files.validate(whole), "sweep")
    assert not folder.longer(files.validate(whole))
    assert folder.ended() == {"03-kteps": "stopped"}


def test_a_trial_is_finished_only_with_all_rounds_that_it_has_to_run(tmp_path: Path) -> None:
    """Whatever is recorded: an outcome may be one of the run before it was made longer."""
    folder, experiment = RunFolder(tmp_path), files.validate(EXPERIMENT)
    reached = {"finished-2": 2, "finished-3": 3, "stopped-2": 2, "finished-0": 0}
    for case in reached:
        folder.record(case, Outcome("stopped" if case == "stopped-2" else "finished"))
    cases = [Case(case, case, "", False, {}, experiment) for case in [*reached, "new"]]
    job = Job(True, experiment, cases, {}, {}, {}, [], Store("sqlite://"), folder)
    records = {case: [RoundRecord(n + 1, 0.0, {}) for n in range(count)] for case, count in reached.items()}
    assert _ended(job, records) == {"finished-3": "finished", "stopped-2": "stopped"}


class Copied:
    """A copy at a URI that fails in one way."""

    def __init__(self, error: BaseException) -> None:
        self.error, self.recorded, self.outage = error, list[bool](), Outage()

    def record(self) -> None:
        self.recorded.append(True)

    def push(self) -> None:
        self.outage.copy(self._fail)

    def complete(self) -> None:
        self.outage.copy(self._fail, last=True)

    def _fail(self) -> None:
        raise self.error


def test_a_copy_that_fails_for_a_while_ends_nothing_but_is_said_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    away: Any = Copied(UserError("storage: s3://bucket/runs/first cannot be written (denied)"))
    folder = RunFolder(tmp_path, "fedtext run --resume first", away)
    folder.record("01-kteps", Outcome("finished"))
    folder.record("02-kteps", Outcome("finished"))
    assert capsys.readouterr().err.count("(denied); it is tried again later, and at the end") == 1
    with pytest.raises(
        UserError, match=rf"\(denied\); the run is whole in {tmp_path}, its copy is not: complete it he"
    ):
        folder.complete_copy()
    RunFolder(tmp_path).complete_copy()


def test_a_copy_is_completed_also_if_the_table_cannot_be_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    completed = []
    job = SimpleNamespace(folder=SimpleNamespace(complete_copy=lambda: completed.append(True)))
    monkeypatch.setattr(trials, "run", lambda _: None)

    def closed(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(_words, "_print_end", closed)
    with pytest.raises(BrokenPipeError):
        _words._run(job)
    assert completed == [True]


def test_a_command_that_has_lost_its_run_records_nothing_more(tmp_path: Path) -> None:
    lost: Any = Copied(OwnershipLostError("another command has continued the run"))
    folder = RunFolder(tmp_path, copy=lost)
    for what in (lambda: folder.record("01-kteps", Outcome("finished")), folder.copy_files, folder.complete_copy):
        with pytest.raises(OwnershipLostError, match=r"^another command has continued the run$"):
            what()


def test_a_run_that_is_killed_as_it_begins_knows_its_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would go on without one."""
    away: Any = Copied(KeyboardInterrupt())
    folder = RunFolder(tmp_path / "run", copy=away)
    with pytest.raises(KeyboardInterrupt):
        folder.create(EXPERIMENT, files.validate(EXPERIMENT), "sweep")
    assert (tmp_path / "run" / PLAN).is_file()
    assert away.recorded


def test_an_interrupted_command_says_what_continues_it() -> None:
    script = """
import argparse, contextlib, io, platform, runpy

def interrupted(*words):
    raise KeyboardInterrupt

argparse.ArgumentParser.parse_args = argparse.ArgumentParser.parse_intermixed_args = interrupted
for name in ("sweep", "run", "reproduce", "corpora"):
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            runpy.run_module(f"platform.{name}", run_name="__main__")
        except SystemExit as ended:
            print(name, ended.code, said.getvalue(), end="")
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "sweep 130 interrupted; if it had begun (fedtext ls lists it), --resume RUN continues it",
        "run 130 interrupted; if it had begun (fedtext ls lists it), --resume RUN continues it",
        "reproduce 130 interrupted; the same command continues it",
        "corpora 130 interrupted",
    ]


def test_a_run_goes_on_with_the_key_that_it_was_begun_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever trials it has begun: a sweep is encrypted as a whole."""
    pytest.importorskip("cryptography")
    folder = RunFolder(tmp_path / "run")
    monkeypatch.setenv(VARIABLE, "ab" * 32)
    folder.create(EXPERIMENT, files.validate(EXPERIMENT), "sweep")
    folder.claim()
    assert "ab" * 32 not in (folder.path / PLAN).read_text()
    for value, words in (("", "is encrypted: set"), ("cd" * 32, "is encrypted with another key")):
        monkeypatch.setenv(VARIABLE, value)
        with pytest.raises(UserError, match=f"{folder.path} {words}"):
            folder.claim()
    plain = RunFolder(tmp_path / "plain")
    monkeypatch.delenv(VARIABLE)
    plain.create(EXPERIMENT, files.validate(EXPERIMENT), "sweep")
    plain.claim()
    monkeypatch.setenv(VARIABLE, "ab" * 32)
    with pytest.raises(UserError, match=f"{plain.path} was written without a key: unset FEDTEXT_STATE_KEY"):
        plain.claim()


def test_damaged_losses_are_said_and_counted_from_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, lost = RunFolder(tmp_path), Lost(2, 3.5, ("it hung",))
    assert folder.lost("one") == Lost()
    folder.case("one").mkdir()
    folder.keep_lost("one", lost)
    assert folder.lost("one") == lost
    assert not capsys.readouterr().err
    (tmp_path / "one" / LOSSES).write_text('{"restarts": "two"}')
    assert folder.lost("one") == Lost()
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].endswith("; restarts of one are counted from zero")
    assert LOSSES in said[0]
