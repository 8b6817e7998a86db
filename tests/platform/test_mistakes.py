"""Mistakes that newcomers make: each ends in one sentence on stderr and exit status 2, and leaves nothing behind."""

import fcntl
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedtext.state.checkpoint import Checkpoints, history, recorded
from tests.commands import EXPERIMENT, ROOT, Forked, environment
from tests.disks import fill, mounted
from tests.fedtext.config.content import OF_PLUGIN

HOME = "HOME"  # stands for the test's folder in words and sentences
FILE = "HOME/kteps.yaml"

MISTAKES: dict[str, tuple[list[str], str]] = {
    "no file": (["run"], "name an experiment file, such as demo.yaml"),
    "wrong file name": (["run", "demoo.yaml"], "there is no experiment file demoo.yaml"),
    "a folder for a file": (["run", HOME], "HOME is a folder: name an experiment file in it"),
    "not YAML": (["run", "HOME/text.yaml"], "HOME/text.yaml: an experiment file has keys and values"),
    "missing key": (["run", "HOME/missing.yaml"], "missing.yaml: the key corpus is missing"),
    "typo of a key": (["run", "HOME/key.yaml"], "there is no key training.round; did you mean rounds?"),
    "typo of a value": (
        ["run", "HOME/value.yaml"],
        f"line 3: corpus cannot be 'dmo'{OF_PLUGIN}; did you mean demo?",
    ),
    "duplicate key": (["run", "HOME/twice.yaml"], "the key name is given a second time (first in line"),
    "tab": (["run", "HOME/tab.yaml"], "there is a tab where a key or a value should begin: indent with spaces"),
    "override without =": (["run", FILE, "training.rounds"], "'training.rounds' is not key=value"),
    "space around =": (["run", FILE, "training.rounds", "=", "3"], "'training.rounds' is not key=value"),
    "short key": (["run", FILE, "rounds=3"], "command line: there is no key rounds; did you mean training.rounds?"),
    "wrong type": (["run", FILE, "training.rounds=ten"], "should be a valid integer, but here it is 'ten'"),
    "unknown method": (
        ["run", FILE, "method=fedavgg"],
        f"command line: method cannot be 'fedavgg'{OF_PLUGIN}; did you mean fedavg?",
    ),
    "order of mechanisms": (["run", FILE, "uplink=[randomized_response, clip]"], "command line: uplink"),
    "unknown option": (["run", FILE, "--nume", "3"], "unrecognized arguments: --nume 3; did you mean --name? python"),
    "an option's old name": (["run", FILE, "--plan"], "--plan is called --dry-run"),
    "an option of runs without Ray": (["run", FILE, "--device", "cpu"], "--device is for runs with --no-ray"),
    "an option of runs on Ray": (["run", FILE, "--no-ray", "--name", "a"], "--name is for runs on Ray"),
    "a sweep without Ray": (["sweep", FILE, "--no-ray"], "--no-ray is for one run (python -m platform.run"),
    "seed": (["run", FILE, "--seed", "one"], "argument --seed: invalid int value: 'one'"),
    "two seeds": (["run", FILE, "--seed", "3", "seed=4"], "--seed 3 and seed=4 both set the seed: leave out one of"),
    "no CPUs": (["run", FILE, "--num-cpus", "0"], "argument --num-cpus: '0' is no number of CPUs"),
    "slash in the name": (["run", FILE, "--name", "a/b"], "--name: 'a/b' cannot be a folder's name"),
    "a run that exists": (["run", FILE, "--name", "begun"], "the run begun exists: continue it by"),
    "unknown run": (["run", "--resume", "gone"], "--resume: there is no run gone in HOME/runs; the latest there are"),
    "another place of a run": (
        ["run", "--resume", "begun", "storage=HOME/elsewhere"],
        "--resume: begun goes on in its own folder, and storage has no effect: leave it out (a run elsewhere is named",
    ),
    "another experiment": (
        ["run", FILE, "--resume", "begun", "method.lambda1=9"],
        "begun was begun otherwise (method.lambda1 0.01 -> 9.0)",
    ),
    "quite another experiment": (
        ["run", "demo.yaml", "--resume", "begun"],
        'begun was begun otherwise (name "kteps" -> "demo", corpus.validation 0.25 -> 0.2, corpus.clients 4 -> 8, '
        "corpus.train 40 -> 200 and ",
    ),
    "and what to do": (
        ["run", "demo.yaml", "--resume", "begun"],
        " more keys): continue it by python -m platform.run --",
    ),
    "runs at a URI are not listed": (
        ["ls", "--storage", "s3://bucket/runs"],
        "--storage: s3://bucket/runs is on an object store, and folders of this machine are listed: python -m",
    ),
    "a run at a URI is not listed": (["ls", "s3://bucket/runs/a"], "ls: s3://bucket/runs/a is on an object store"),
    "no folder to list": (["ls", "--storage", "file:///nowhere"], "--storage: there is no folder /nowhere"),
    "a second command": (["run", "--resume", "busy"], "the run busy is being worked on by another command"),
    "wrong --data": (["run", FILE, "--data", "HOME/nowhere"], "--data: there is no folder HOME/nowhere"),
    "--data is a file": (["run", FILE, "--data", FILE], "--data: there is no folder HOME/kteps.yaml"),
    "missing corpus": (["run", "kteps.yaml", "--data", HOME], "HOME"),
    "storage in a file": (["run", FILE, "storage=HOME/text.yaml"], "(Not a directory): a part of that path is a file"),
    "storage read-only": (["run", FILE, "storage=/proc/here"], "storage: /proc/here/kteps-"),
    "MLflow is away": (["run", FILE, "tracking.uri=http://127.0.0.1:9"], "MLflow server at http://127.0.0.1:9 cannot"),
    "MLflow in a folder that is none": (
        ["run", FILE, "tracking.uri=sqlite:////proc/a.db"],
        "/proc/a.db cannot be writ",
    ),
    "address of a client": (["run", FILE, "--address", "ray://127.0.0.1:10001"], "is a Ray client address"),
    "address of no cluster": (["run", FILE, "--address", "127.0.0.1:9"], "no Ray cluster answers at 127.0.0.1:9"),
}


def changed(**changes: Any) -> str:
    return yaml.safe_dump({key: value for key, value in (EXPERIMENT | changes).items() if value is not None})


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Experiment files with a mistake each, a run that has begun, and one that another process works on."""
    home = tmp_path_factory.mktemp("mistakes")
    whole = changed()
    files = {
        "kteps": whole,
        "text": "An experiment about clients.\n",
        "missing": changed(corpus=None),
        "key": whole.replace("rounds:", "round:"),
        "value": changed(corpus="dmo"),
        "twice": f"{whole}name: again\n",
        "tab": whole.replace("  dim:", "\tdim:").replace("  batch_size", "\tbatch_size"),
    }
    for name, text in files.items():
        (home / f"{name}.yaml").write_text(text)
    content = {k: v for k, v in EXPERIMENT.items() if k not in ("space", "baselines")}
    for run in ("begun", "busy"):
        (home / "runs" / run).mkdir(parents=True)
        plan = {"content": content, "command": "run", "data": None}
        (home / "runs" / run / "plan.json").write_text(json.dumps(plan))
    with open(home / "runs" / "busy" / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield home


def refused(done: "subprocess.CompletedProcess[str]", sentence: str) -> None:
    assert done.returncode == 2, done.stdout + done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: "), line
    assert sentence in line


@pytest.mark.parametrize(("words", "sentence"), MISTAKES.values(), ids=list(MISTAKES))
def test_a_mistake_is_one_sentence(words: list[str], sentence: str, home: Path) -> None:
    before = sorted(home.rglob("*"))
    done = Forked(home, *(word.replace(HOME, str(home)) for word in words)).wait(60)
    refused(done, sentence.replace(HOME, str(home)))
    new = [path for path in home.rglob("*") if path not in before and path.name != "mlflow.db"]  # which is empty
    assert not new


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 8 MB."""
    with mounted(tmp_path / "disk", "8m") as folder:
        yield folder


def test_a_disk_that_cannot_hold_a_run_is_one_sentence(disk: Path, home: Path) -> None:
    words = ["run", str(home / "kteps.yaml"), "--name", "new"]
    small = Forked(disk, *words, "model.embedding.dim=4000").wait(60)
    refused(small, f"storage: {disk}/runs/new has")
    assert "MB free, and the checkpoints of this run take at least 1" in small.stderr
    fill(disk)
    refused(Forked(disk, *words).wait(60), "runs/new cannot be written (No space left on device): free space")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    refused(Forked(disk, *words).wait(60), "runs/new cannot be written (Read-only file system): make it writable, or")
    assert not (disk / "runs").exists()


@pytest.mark.slow
@pytest.mark.ray
def test_a_disk_that_fills_up_leaves_the_last_checkpoint(disk: Path, home: Path) -> None:
    words = ["run", str(home / "kteps.yaml"), "--name", "new", "training.rounds=50", "model.embedding.dim=200"]
    driver, checkpoint = Forked(disk, *words), disk / "runs" / "new" / "00-kteps" / "checkpoint"
    until = time.monotonic() + 200
    while not list(checkpoint.glob("round-*")):
        assert driver.poll() is None, driver.wait().stderr
        assert time.monotonic() < until
        time.sleep(0.02)
    fill(disk)
    done = driver.wait()
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert "cannot be written (No space left on device): free space on that disk" in done.stdout
    assert not list(checkpoint.glob(".draft-*"))
    rows = history(checkpoint)
    assert f"the last checkpoint is that of round {len(rows)}" in done.stdout
    fingerprint = recorded(checkpoint)
    assert fingerprint is not None
    snapshot = Checkpoints(checkpoint, fingerprint).load()
    assert snapshot is not None
    assert snapshot.round == len(rows)


def test_a_token_that_is_missing_is_one_sentence(home: Path) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        alone = environment(home) | {"HOME": str(home), "RAY_AUTH_MODE": "token"}
        alone = {name: value for name, value in alone.items() if name not in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")}
        argv = [sys.executable, "-m", "platform.run", str(home / "kteps.yaml"), "--address", address]
        refused(
            subprocess.run(argv, cwd=ROOT, env=alone, capture_output=True, text=True), "RAY_AUTH_MODE and its token"
        )


@pytest.mark.ray
def test_more_than_the_machine_has_is_one_sentence(home: Path) -> None:
    done = Forked(home, "run", str(home / "kteps.yaml"), "resources.cpus_per_actor=999").wait()
    refused(done, "resources: no node has 999 CPUs for a client actor; the cluster has")


def test_the_commands_run_in_other_folders(tmp_path: Path) -> None:
    script = "import sys; from fedtext.commands import main; sys.exit(main())"
    for words, sentence in (
        (["run", "nothing.yaml"], "there is no experiment file nothing.yaml, neither here nor in tune_spaces/"),
        (["sweeep"], "there is no command sweeep; did you mean sweep? fedtext --help"),
    ):
        away = environment(tmp_path) | {"PYTHONPATH": str(ROOT)}
        argv = [sys.executable, "-P", "-c", script, *words]
        refused(subprocess.run(argv, cwd=tmp_path, env=away, capture_output=True, text=True), sentence)


def test_a_library_without_the_repository_says_where_the_commands_are(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "fedtext", tmp_path / "fedtext", ignore=shutil.ignore_patterns("__pycache__"))
    argv = [sys.executable, "-m", "fedtext", "run", "demo.yaml"]
    done = subprocess.run(argv, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True)
    refused(done, f"{tmp_path} has the library of fedtext without its commands: install the repository")
