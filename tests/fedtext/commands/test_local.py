"""A run without Ray: what it prints before and after its rounds, when it is interrupted, and at wrong options."""

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedtext.__main__ import main
from fedtext.commands import guarded, local
from fedtext.commands.parser import Parser
from tests import ROOT
from tests.loops import nonempty

SMALL = ["demo.yaml", "method=fedavg", "training.rounds=1", "corpus.clients=2", "corpus.train=20", "corpus.test=5"]
CENTRAL = ["uplink=[clip]", "server.weights=uniform", "server.noise={multiplier: 1}"]


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[list[str], list[str]]:
    """Return the lines that a run prints before its first round, and those from there on."""
    assert main([*SMALL, *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    first = next(place for place, line in enumerate(lines) if line.startswith("round 1/"))
    return lines[:first], lines[first:]


def test_what_a_run_reveals_and_its_ledger_are_printed_before_it_starts(capsys: pytest.CaptureFixture[str]) -> None:
    before, after = printed(capsys, *CENTRAL, "audits=[embedding_rows]")
    for start in nonempty(
        (
            "the server sees each clipped update as it is: ",
            "audits write words of clients, and texts as far as they were recovered, ",
            "ledger: server.noise: epsilon = ",
            "ledger: with or without a client ",
            "server.noise: independent: the noise in the sum ",
        )
    ):
        assert sum(line.startswith(start) for line in before) == 1, start
    assert not [line for line in after if line.startswith("ledger: ")], "it was printed"


def test_what_a_single_run_leaves_aside_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    said = "one run: the experiment's space, baselines and seeds are left aside ("
    before, _ = printed(capsys)
    assert before[0].startswith(said)
    before, after = printed(capsys, "space={}", "baselines=[]")
    assert not [line for line in before + after if "left aside" in line]


def test_a_run_that_is_complete_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = "1 of 1 rounds were completed before: nothing was trained"
    for again in nonempty((False, True)):
        assert main([*SMALL, "--out", str(tmp_path)]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert (said in lines, any(line.startswith("round 1/") for line in lines)) == (again, not again)


def test_a_run_that_is_refused_leaves_no_folder_but_one_that_was_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, kept, used = (tmp_path / name for name in ("made", "kept", "used"))
    kept.mkdir()
    used.mkdir()
    (used / "notes.txt").write_text("mine")
    for folder in nonempty((made, kept, used)):
        assert main(["kteps.yaml", "--data", str(tmp_path), "--out", str(folder)]) == 2
        assert f"corpus fdu: no fdu_mtl.parquet, nor fdu_mtl/fdu_mtl.parquet, in {tmp_path}" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["kept", "notes.txt", "used"]


def test_a_folder_of_an_unset_variable_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for option in nonempty(("--out", "--data")):
        assert main([*SMALL, option, ""]) == 2
        assert capsys.readouterr().err == f"error: {option}: '' is no folder: name one\n"
    assert not list(tmp_path.iterdir())


def test_a_seed_is_given_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--seed", "3", "seed=4"]) == 2
    assert capsys.readouterr().err == "error: --seed 3 and seed=4 both set the seed: leave out one of them\n"


def test_a_ledger_is_printed_before_runs_that_share_everything_or_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for method in nonempty(("pooled", "local_only")):
        before, _ = printed(capsys, f"method={method}")
        assert sum(line.startswith(f"ledger: {method}: no guarantee") for line in before) == 1


def test_what_was_measured_is_all_that_the_ledger_says_after_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    before, after = printed(capsys, *CENTRAL, "privacy.canaries={clients: 50}")
    (measured,) = [line for line in after if line.startswith("ledger: ")]
    assert "server.noise: measured in the run: epsilon is at least " in measured
    assert measured not in before


class Interrupting:
    """A ``print`` that is interrupted like a process at Ctrl-C, once the first round is told."""

    def __init__(self, at: str) -> None:
        self.at = at

    def __call__(self, line: str, **_: object) -> None:
        if line.startswith(self.at):
            raise KeyboardInterrupt


@pytest.mark.parametrize("kept", [True, False])
def test_an_interrupted_run_says_how_it_is_continued(
    kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*SMALL, "training.rounds=2", *(["--out", str(tmp_path)] if kept else [])]
    with monkeypatch.context() as patched:
        patched.setattr(local, "print", Interrupting("round 1/"), raising=False)
        # As python -m platform.run is guarded, whose runs on Ray are continued otherwise
        assert guarded(lambda _: local.main(words), "--resume RUN continues it")() == 130
    nothing = "nothing was kept: --out FOLDER keeps each round, and the same command then continues the run"
    assert capsys.readouterr().err == f"interrupted; {'the same command continues it' if kept else nothing}\n"
    if kept:
        assert main(words) == 0
        told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("round ")]
        assert [line.split()[1] for line in told] == ["2/2"], "it goes on behind the first round"
        assert len(json.loads((tmp_path / "rows.json").read_text())) == 2


def test_ctrl_c_in_a_process_that_trains(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "fedtext", *SMALL, "training.rounds=100000", "evaluation.every=1000"]
    argv += ["--out", str(tmp_path)]
    process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert any(line.startswith("round 2/") for line in process.stdout)
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, err) == (130, "interrupted; the same command continues it\n")


def refused(capsys: pytest.CaptureFixture[str], parser: argparse.ArgumentParser, *words: str) -> str:
    """Return the sentence with which a parser refuses words."""
    with pytest.raises(SystemExit):
        parser.parse_intermixed_args(list(words))
    return capsys.readouterr().err


def test_an_option_with_the_name_of_a_key_is_one_sentence_with_the_key(capsys: pytest.CaptureFixture[str]) -> None:
    for words, meant in nonempty(
        {
            "--rounds 3": "training.rounds=3",
            "--rounds=3": "training.rounds=3",
            "--rounds": "training.rounds=VALUE",
            "--rounds --device cpu": "training.rounds=VALUE",
            "--rounds method=kteps": "training.rounds=VALUE",
            "--training.rounds 3 method=kteps": "training.rounds=3",
            "--method kteps": "method=kteps",
            "--clients 3": "corpus.clients=3 or evaluation.clients=3",
            "--batch-size 3": "training.batch_size=3",
            "--lr 0.1": "training.optimizer.lr=0.1 or server.optimizer.lr=0.1",
            "--devise cpu": "--device",
        }.items()
    ):
        assert f"; did you mean {meant}? " in refused(capsys, local.parser(), "demo.yaml", *words.split()), words
    for name in nonempty(("size", "zzz")):  # too many keys, and none
        assert f"{name}=3" not in refused(capsys, local.parser(), "demo.yaml", f"--{name}", "3")


def test_a_command_without_changes_to_an_experiment_proposes_options_alone(capsys: pytest.CaptureFixture[str]) -> None:
    made = Parser("x")
    made.add_argument("--around")
    assert "; did you mean --around? " in refused(capsys, made, "--rounds", "3")


def test_an_option_of_runs_on_ray_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    sentence = "error: --name is for runs on Ray: leave it out, or leave out --no-ray\n"
    assert refused(capsys, local.parser(), "demo.yaml", "--no-ray", "--name", "first") == sentence
