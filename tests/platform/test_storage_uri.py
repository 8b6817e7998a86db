"""A run whose storage is on an object store: killed, and continued on another machine to the same weights."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.commands import EXPERIMENT, Forked, environment, runs, states, undisturbed, write
from tests.loops import nonempty
from tests.stores import SECRET, Store, object_store

pytestmark = pytest.mark.ray


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Store]:
    with object_store(monkeypatch, tmp_path / "cache") as store:
        yield store


def test_a_uri_that_cannot_be_used_is_one_sentence(store: Store, tmp_path: Path) -> None:
    file = write(tmp_path)
    for uri, said in {
        f"s3://me:{SECRET}@bucket/runs": "error: storage: the URI of s3 contains credentials",
        store.uri("runs").replace("fedtext-tests", "no-such-bucket"): "storage: s3://no-such-bucket/runs",
        "s3:///runs": "names no bucket",
    }.items():
        done = Forked(tmp_path, "run", str(file), f"storage={uri}").wait()
        assert done.returncode == 2, done.stderr
        assert said in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
        assert SECRET not in done.stdout + done.stderr
        assert not (tmp_path / "runs").exists()
    done = Forked(tmp_path, "run", "--resume", store.uri("runs/none")).wait()
    assert (done.returncode, "there is no run at s3://fedtext-tests/runs/none" in done.stderr) == (2, True)


def copied(store: Store) -> int:
    """The last round of which the store has a whole checkpoint."""
    lists = [name for name in store.files("runs/cut") if name.endswith("/SHA256SUMS")]
    return max((int(name.split("/")[-2].removeprefix("round-")) for name in lists), default=0)


@pytest.mark.slow
def test_a_killed_run_is_continued_on_another_machine(store: Store, tmp_path: Path) -> None:
    """Before it is killed, the store refuses its files for a while."""
    rounds, here, there = 8, tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    file = write(tmp_path, space={}, baselines=[])
    tracked = {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}
    words = ["run", str(file), f"training.rounds={rounds}", "--name", "cut", f"storage={store.uri('runs')}"]
    argv = [sys.executable, "-m", f"platform.{words[0]}", *words[1:]]
    log = (tmp_path / "log").open("w")
    driver = subprocess.Popen(argv, env=environment(here) | tracked, stdout=log, stderr=log)
    deadline = time.monotonic() + 300

    def wait(ready: Callable[[], object]) -> None:
        while not ready():
            assert driver.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline, store.files()
            time.sleep(0.1)

    wait(lambda: copied(store) >= 2)
    store.denied.add("PUT")
    wait(lambda: store.refused)
    before = copied(store)
    store.denied.clear()
    wait(lambda: copied(store) > before)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    log.close()
    shutil.rmtree(here)  # the machine is gone

    argv = [sys.executable, "-m", "platform.run", "--resume", store.uri("runs/cut")]
    done = subprocess.run(argv, env=environment(there) | tracked, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    content = EXPERIMENT | {"training": EXPERIMENT["training"] | {"rounds": rounds}}
    (final,) = states(there / "runs" / "cut").values()
    assert final == undisturbed(content, tmp_path)
    names = store.files("runs/cut")
    (kept,) = {name.partition("/")[0] for name in names if "/checkpoint/" in name}
    units = {name.split("/")[2] for name in names if name.startswith(f"{kept}/checkpoint/round-")}
    assert units == {"round-000007", "round-000008"}
    assert {f"{kept}/outcome.json", f"{kept}/model/model.safetensors", "plan.json", "owner.json"} <= set(names)
    for name in nonempty(name for name in names if f"{kept}/checkpoint/round-000008/" in name):
        assert store.get(f"runs/cut/{name}") == (there / "runs" / "cut" / name).read_bytes()
    (run,) = runs(tmp_path)
    assert run.info.status == "FINISHED", "the MLflow run of before was continued"
    told = done.stdout + done.stderr + (tmp_path / "log").read_text() + str(run.data)
    assert SECRET not in told
    assert not [name for name in names if SECRET.encode() in store.get(f"runs/cut/{name}")]
