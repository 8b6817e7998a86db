"""The sbatch files on a real Slurm of two nodes, where Slurm is installed and namespaces can be made."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT
from tests.cluster import slurm as local

FILES = ROOT / "cluster" / "slurm"


@pytest.fixture(scope="module")
def slurm() -> Iterator[local.Slurm]:
    if reason := local.missing():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="sl-") as folder, local.slurm(Path(folder)) as running:
        yield running


@pytest.fixture
def home(slurm: local.Slurm) -> Path:
    """A folder for runs and outputs."""
    return Path(tempfile.mkdtemp(dir=slurm.folder))


def submitted(slurm: local.Slurm, home: Path, file: str, *options: str, **variables: str) -> str:
    """Submit a file as it is; ``variables`` are those at its top. Returns the output once all has ended."""
    set_ = {"FEDTEXT_REPOSITORY": str(ROOT), "FEDTEXT_HOME": str(home), **variables}
    export = ",".join(["--export=ALL", *(f"{name}={value}" for name, value in set_.items())])
    environment = Path(local.sys.executable).parent.parent
    job = slurm.submit(f"{export},FEDTEXT_VENV={environment}", *options, str(FILES / file), cwd=home)
    states = slurm.ended(job)
    text = "".join(path.read_text() for path in sorted(home.glob("*.out")))
    assert set(states) == {"COMPLETED"}, text
    return text


def with_overrides(folder: Path, file: str, overrides: str) -> "subprocess.CompletedProcess[str]":
    """Run a script as it is, with commands in the place of ``python`` and Slurm's that print their words."""
    (folder / "bin").mkdir()
    for name in ("python", "srun", "scontrol"):
        command = folder / "bin" / name
        last = "shift $(($# - 1))" if name == "scontrol" else ":"  # the list of nodes
        command.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exec {sys.executable} "$@"\n{last}\nprintf "%s\\n" "$@"\n')
        command.chmod(0o755)
    (folder / "trials.txt").write_text(f"seed=0\n{overrides}\n")
    given = {"PATH": os.environ["PATH"], "FEDTEXT_VENV": str(folder), "SLURM_ARRAY_TASK_ID": "2"}
    given |= {"SLURM_JOB_NAME": "fedtext", "SLURM_ARRAY_JOB_ID": "7", "SLURM_SUBMIT_DIR": str(folder)}
    given |= {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "localhost", "SLURM_JOB_NUM_NODES": "1"}
    given |= {"FEDTEXT_TRIALS": str(folder / "trials.txt"), "FEDTEXT_HOME": str(folder), "FEDTEXT_OVERRIDES": overrides}
    return subprocess.run(
        ["bash", str(FILES / file)], env=given, cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize("file", ["array.sbatch", "ray.sbatch"])
def test_words_in_quotes_stay_together(file: str, tmp_path: Path) -> None:
    line = """seed=1 uplink='[{clip: {norm: 0.5}}, gaussian]' name="a b" """
    done = with_overrides(tmp_path, file, line)
    assert done.returncode == 0, done.stderr
    words = done.stdout.splitlines()
    assert words[words.index("seed=1") :][:3] == ["seed=1", "uplink=[{clip: {norm: 0.5}}, gaussian]", "name=a b"]


@pytest.mark.parametrize("file", ["array.sbatch", "ray.sbatch"])
def test_blanks_are_no_word(file: str, tmp_path: Path) -> None:
    done = with_overrides(tmp_path, file, "  ")
    assert done.returncode == 0, done.stderr
    words = done.stdout.splitlines()
    assert words[words.index("demo.yaml") + 1] == "--name"


@pytest.mark.parametrize("file", ["array.sbatch", "ray.sbatch"])
def test_a_quotation_mark_without_its_other_one_starts_nothing(file: str, tmp_path: Path) -> None:
    done = with_overrides(tmp_path, file, "seed=1 corpus.path=don't.csv training.rounds=3")
    assert (done.returncode, done.stdout) == (2, "")
    assert "a quotation mark without its other one: put quotes of the other kind around it" in done.stderr


def test_an_empty_line_is_no_trial(tmp_path: Path) -> None:
    done = with_overrides(tmp_path, "array.sbatch", "")
    assert (done.returncode, done.stdout) == (2, "")
    assert "trials.txt has nothing in line 2: trials in it: 1; submit the numbers of their lines" in done.stderr


@pytest.mark.parametrize("file", ["array.sbatch", "ray.sbatch"])
def test_outside_of_slurm_it_says_how_it_is_submitted(file: str) -> None:
    argv = ["bash", str(FILES / file)]
    given = {"PATH": os.environ["PATH"]}
    done = subprocess.run(argv, env=given, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (2, f"this is a batch file of Slurm: sbatch {FILES / file}\n")


@pytest.mark.parametrize("file", ["array.sbatch", "ray.sbatch"])
def test_an_environment_that_was_not_made_is_one_sentence(file: str, tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash
    given = {"PATH": str(tmp_path), "SLURM_SUBMIT_DIR": str(tmp_path)}
    argv = [bash, str(FILES / file)]
    done = subprocess.run(argv, env=given, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stderr == (
        f"there is no Python in {tmp_path}/.venv/bin: make install in {tmp_path}, or set FEDTEXT_VENV\n"
    )


@pytest.mark.ray
@pytest.mark.slow
def test_an_array_runs_one_trial_in_each_task(slurm: local.Slurm, home: Path) -> None:
    trials = home / "trials.txt"
    trials.write_text("seed=0 training.rounds=1\nseed=1 training.rounds=1\n")
    options = ("--array=1-2", "--mem=2G", "--cpus-per-task=2")
    text = submitted(slurm, home, "array.sbatch", *options, FEDTEXT_TRIALS=str(trials))
    assert "trial 1 on node" in text
    assert "trial 2 on node" in text
    runs = sorted(path.parent.name for path in home.glob("runs/*/plan.json"))
    assert len(runs) == 2
    assert [run.rpartition("-")[2] for run in runs] == ["1", "2"]
    assert len(list(home.glob("runs/*/*/checkpoint/round-000001/SHA256SUMS"))) == 2
    assert len(list(home.glob("runs/*.db"))) == 2, "each trial its own database"


@pytest.mark.ray
@pytest.mark.slow
def test_a_sweep_runs_over_all_nodes_of_a_job(slurm: local.Slurm, home: Path) -> None:
    text = submitted(
        slurm,
        home,
        "ray.sbatch",
        "--nodes=2",
        FEDTEXT_OVERRIDES="training.rounds=1 space={} baselines=[] resources.cpus_per_actor=0.5",
    )
    assert ": 2 nodes" in text
    assert "fedtext-" in text
    assert len(list(home.glob("runs/*/*/checkpoint/round-000001/SHA256SUMS"))) == 1
    assert not list(Path("/tmp").glob("ray-[0-9]*-node*")), "each node removes Ray's folder"
    assert "node" in slurm.run("sinfo", "--noheader", "-o", "%N")
