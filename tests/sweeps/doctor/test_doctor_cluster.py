"""The doctor's checks of a Ray cluster."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweeps.doctor import Asked, examine, software
from sweeps.doctor import cluster as checks
from sweeps.doctor.cluster import Survey, begin, free, lacking, surveyed, token, versions, without
from sweeps.doctor.finding import exit_status
from tests import ROOT
from tests.tracking import free_port


def test_a_cluster_that_is_away_is_a_problem() -> None:
    port = free_port()
    found = list(surveyed("there", begin(f"127.0.0.1:{port}").result()))
    assert exit_status(found) == 2
    assert f"no Ray cluster answers at 127.0.0.1:{port}" in found[0].message


def test_a_driver_that_ends_or_hangs_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "PATIENCE_S", 0.2)
    assert "did not answer in 0.2 s" in begin("127.0.0.1:9").result()["error"]
    monkeypatch.setattr(checks, "PATIENCE_S", 60.0)
    survey = begin("127.0.0.1:9")
    survey.process.kill()
    assert "ended without an answer" in survey.result()["error"]


@pytest.mark.parametrize("torch", ["2.0", None])
def test_the_survey_ends_with_the_command(torch: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted after its first line, or without torch."""
    begun: list[Survey] = []
    monkeypatch.setattr(checks, "begin", lambda address: begun.append(begin(address)) or begun[0])
    monkeypatch.setattr(software, "version_of", lambda name: torch if name == "torch" else "1")
    findings = examine(Asked(address=f"127.0.0.1:{free_port()}"))
    next(findings)
    assert begun[0].process.poll() is None
    if torch is None:
        list(findings)
    else:
        findings.close()
    assert begun[0].process.returncode is not None


def test_the_token_is_looked_for_where_ray_does(tmp_path: Path) -> None:
    file = tmp_path / "token"
    environment = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(file)}
    assert token(environment).status == "problem"
    assert token(environment | {"RAY_AUTH_TOKEN": "abc"}).status == "ok"
    file.write_text("abc")
    file.chmod(0o600)
    assert token(environment).status == "ok"
    file.chmod(0o640)
    assert token(environment).remedy == f"chmod 600 {file}"
    assert "can run code on it" in token({"RAY_AUTH_MODE": "disabled"}).message
    assert token({"RAY_AUTH_TOKEN_PATH": str(tmp_path / "none")}).status == "warning"
    assert "abc" not in repr([token(environment), token(environment | {"RAY_AUTH_TOKEN": "abc"})])


def test_versions_free_resources_and_what_nodes_lack_are_said() -> None:
    here = {"python": "3.11.7", "ray": "2.60.0", "fedtext": "0.1.0"}
    like = {"address": "10.0.0.1", "versions": here}
    assert versions({"versions": here}, [like]).status == "ok"
    assert versions({"versions": here}, [like | {"versions": here | {"ray": "2.59.0"}}]).message == (
        "versions differ: ray 2.59.0 on 10.0.0.1, 2.60.0 here"
    )
    bare = {name: version for name, version in here.items() if name != "fedtext"}
    assert versions({"versions": here}, [like | {"versions": bare}]).status == "ok", "jobs bring the code along"
    assert (
        "fedtext 0.0.9 on" in versions({"versions": here}, [like | {"versions": here | {"fedtext": "0.0.9"}}]).message
    )
    total = {"CPU": 8.0, "GPU": 2.0, "object_store_memory": 4e9}
    found = free(total, {"CPU": 3.0, "object_store_memory": 4e9})
    assert (found.status, found.message) == (
        "ok",
        "free: 3 of 8 CPUs, 0 of 2 GPUs, 4.0 GB of 4.0 GB of the object store",
    )
    assert free(total, {}).status == "warning"
    fine = {"compile_problem": "", "no_cuda": "torch has no CUDA", "disk_free": 1e10, "shared_free": 1e10}
    node = {"address": "10.0.0.1", "resources": {"CPU": 4.0}} | fine
    assert list(lacking([node])) == []
    poor = node | {"resources": {"GPU": 1.0}, "compile_problem": "no C compiler", "disk_free": 1e8, "shared_free": 1e7}
    messages = [finding.message for finding in lacking([node, poor, poor | {"address": "10.0.0.2"}])]
    assert len(messages) == 4
    assert messages[0] == "node 10.0.0.1 (and 1 more) cannot use engine native (no C compiler)"
    broken = {
        "nodes": [node | {"error": "No module named 'torch'"}],
        "driver": {"versions": here},
        "total": {},
        "free": {},
    }
    assert "node 10.0.0.1 cannot run a task: No module named 'torch'" in [f.message for f in surveyed("there", broken)]


NO_RAY = """
import importlib.metadata as metadata, importlib.util as util, sys

class Hidden:  # an environment in which Ray is not installed
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "ray":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
version, find_spec = metadata.version, util.find_spec
def hidden(name):
    if name == "ray":
        raise metadata.PackageNotFoundError(name)
    return version(name)
metadata.version = hidden
util.find_spec = lambda name, *words: None if name == "ray" else find_spec(name, *words)
import platform.doctor
sys.exit(platform.doctor.main(sys.argv[1:]))
"""


def test_without_ray_it_says_so_and_looks_at_all_else(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", NO_RAY, "demo.yaml"]
    environment = os.environ | {"FEDTEXT_HOME": str(tmp_path)}
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning  Ray is not installed: sweeps need it" in done.stdout
    assert (
        "warning  its sweep needs Ray, which is not installed: python -m fedtext demo.yaml runs one case" in done.stdout
    )
    assert "corpus demo: 8 clients" in done.stdout
    assert list(tmp_path.iterdir()) == []


FIRST = """
import sys
from sweeps.doctor import Asked, examine
for finding in examine(Asked()):
    if finding.section == "machine":
        break
print("torch" in sys.modules, "ray" in sys.modules)
"""


def test_the_first_lines_do_not_wait_for_torch(tmp_path: Path) -> None:
    environment = os.environ | {"FEDTEXT_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", FIRST], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "False"], done.stderr


def test_where_no_cluster_is_named_ray_starts_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    assert without().message == "none is named: Ray starts on this machine"
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("10.0.0.1:6379")
    assert "--address auto joins the one at 10.0.0.1:6379" in without().message
