"""The several-node cluster on one machine, really started."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from cluster import namespaces
from cluster.local import LocalCluster, available
from fedtext.errors import UserError
from tests import ROOT

REASON = available()
needs_namespaces = pytest.mark.skipif(REASON is not None, reason=f"no cluster of several nodes here: {REASON}")

# Runs on one node, places an actor on the other, and prints what both see.
DRIVER = """
import json, os, socket, sys
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as Affinity

def seen(folder):
    context = ray.get_runtime_context()
    node = next(node for node in ray.nodes() if node["NodeID"] == context.get_node_id())
    return {"host": socket.gethostname(), "ip": node["NodeManagerAddress"], "cwd": os.getcwd(),
            "folder": sorted(os.listdir(folder)), "gpus": ray.cluster_resources().get("GPU", 0)}

@ray.remote(num_cpus=0)
class Eyes:
    def seen(self, folder):
        return seen(folder)

ray.init(log_to_driver=False)
here = ray.get_runtime_context().get_node_id()
there = next(node["NodeID"] for node in ray.nodes() if node["NodeID"] != here)
actor = Eyes.options(scheduling_strategy=Affinity(there, soft=False)).remote()
print(json.dumps([seen(sys.argv[1]), ray.get(actor.seen.remote(sys.argv[1]), timeout=60)]))
"""


def network_namespaces(pids: Iterable[int]) -> set[str]:
    """Those that these processes are in."""
    found = set()
    for pid in pids:
        try:
            found.add(os.readlink(f"/proc/{pid}/ns/net"))
        except OSError:  # it ended meanwhile
            continue
    return found


def held_namespaces() -> set[str]:
    """Every network namespace that some process of this machine is in."""
    return network_namespaces(int(path.name) for path in Path("/proc").glob("[0-9]*"))


def interfaces(prefix: str) -> list[str]:
    return [path.name for path in Path("/sys/class/net").iterdir() if path.name.startswith(prefix)]


def assert_nothing_left(pids: list[int], spaces: set[str], names: set[str], folder: Path) -> None:
    assert pids
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
    assert spaces.isdisjoint(held_namespaces())
    assert len(names) == 1
    assert names.isdisjoint(interfaces("ft"))
    assert str(folder) not in Path("/proc/self/mountinfo").read_text()
    assert not folder.exists()


def ask(cluster: LocalCluster, path: str, headers: dict[str, str]) -> Any:
    """The dashboard's answer to a request from outside the cluster, whatever proxy this machine has."""
    request = urllib.request.Request(cluster.jobs_address + path, headers=headers)
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as answer:
        return json.load(answer)


def node_states(cluster: LocalCluster) -> list[str]:
    token = Path(cluster.env()["RAY_AUTH_TOKEN_PATH"]).read_text()
    answer = ask(cluster, "/api/v0/nodes", {"Authorization": f"Bearer {token}"})
    return sorted(node["state"] for node in answer["data"]["result"]["result"])


def eventually(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "it did not happen in a minute"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("secret")
    (folder / "file").write_text("only the head sees me")
    return folder


@pytest.fixture(scope="module")
def cluster(secret: Path) -> Iterator[LocalCluster]:
    # Hiding the Python environment as well: it must stay usable, as where .venv lies in the repository.
    environment = [Path(sys.prefix)] if sys.prefix != sys.base_prefix else []
    hide = [secret, ROOT, *environment]
    # By default Ray gives a silent node half a minute.
    patience = {"initial_delay": 1000, "period": 500, "timeout": 2000}  # milliseconds
    node_env = {f"RAY_health_check_{name}_ms": str(value) for name, value in patience.items()}
    with LocalCluster(nodes=2, cpus=1, gpus=2, hide=hide, cwd=secret, node_env=node_env) as cluster:
        yield cluster


@needs_namespaces
@pytest.mark.ray
@pytest.mark.slow
class TestTwoNodes:
    @pytest.mark.parametrize("node", [0, 1])
    def test_an_actor_on_the_other_node_is_elsewhere(self, cluster: LocalCluster, secret: Path, node: int) -> None:
        done = cluster.run(["python", "-c", DRIVER, str(secret)], node=node, timeout=120)
        assert done.returncode == 0, done.stderr
        driver, actor = json.loads(done.stdout.splitlines()[-1])
        assert (driver["host"], actor["host"]) == (f"node{node}", f"node{1 - node}")
        assert (driver["ip"], actor["ip"]) == (cluster.ip(node), cluster.ip(1 - node))
        by_host = {driver["host"]: driver, actor["host"]: actor}
        assert by_host["node0"]["folder"] == ["file"]
        assert by_host["node1"]["folder"] == []
        assert driver["gpus"] == 4

    def test_the_repository_is_hidden_on_the_second_node_only(self, cluster: LocalCluster) -> None:
        look = ["python", "-c", f"import os; print(os.path.exists({str(ROOT / 'pyproject.toml')!r}))"]
        assert [cluster.run(look, node=node).stdout.strip() for node in (0, 1)] == ["True", "False"]
        assert cluster.run(["pwd"]).stdout.strip() == str(cluster.cwd)
        assert not Path(cluster.run(["pwd"], node=1).stdout.strip()).is_relative_to(ROOT)

    def test_a_job_is_submitted_with_the_token(self, cluster: LocalCluster) -> None:
        job = "import os; print('the job ran on', os.uname().nodename)"
        done = cluster.run(["ray", "job", "submit", "--", "python", "-c", job], timeout=120)
        assert done.returncode == 0, done.stderr
        assert "the job ran on node0" in done.stdout

    def test_a_wrong_token_is_refused(self, cluster: LocalCluster, tmp_path: Path) -> None:
        wrong = tmp_path / "token"
        wrong.write_text("0" * 64)
        done = cluster.run(["ray", "job", "list"], env={"RAY_AUTH_TOKEN_PATH": str(wrong)}, timeout=120)
        assert done.returncode != 0
        assert "authentication" in (done.stdout + done.stderr).lower()
        for headers in ({}, {"Authorization": f"Bearer {wrong.read_text()}"}):
            with pytest.raises(urllib.error.HTTPError) as refused:
                ask(cluster, "/api/jobs/", headers)
            assert refused.value.code in (401, 403)

    def test_the_user_s_own_token_is_not_used(self, cluster: LocalCluster) -> None:
        token = Path(cluster.env()["RAY_AUTH_TOKEN_PATH"])
        assert not token.is_relative_to(Path.home() / ".ray")
        assert token.stat().st_mode & 0o077 == 0

    def test_commands_get_their_signals_and_give_their_status(self, cluster: LocalCluster) -> None:
        assert cluster.run(["sh", "-c", "echo out; echo err >&2; exit 5"]).returncode == 5
        assert cluster.run(["no-such-command"]).returncode == 127
        assert cluster.run(["sh", "-c", "kill -9 $$"]).returncode == -signal.SIGKILL
        with pytest.raises(subprocess.TimeoutExpired):
            cluster.run(["sleep", "1000"], timeout=0.2)
        polite = (
            "import signal, sys; signal.signal(15, lambda *_: sys.exit(9)); print('on', flush=True); signal.pause()"
        )
        process = cluster.popen(["python", "-c", polite], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "on\n"
        process.terminate()
        process.communicate()
        assert process.returncode == 9

    def test_a_lost_node_is_noticed_and_a_failing_body_leaves_nothing_behind(self, cluster: LocalCluster) -> None:
        """The last test of this cluster."""
        busy = cluster.popen(["sh", "-c", "echo on; sleep 1000"], node=1, stdout=subprocess.PIPE, text=True)
        assert busy.stdout is not None
        assert busy.stdout.readline() == "on\n"
        folder = Path(cluster.env()["RAY_AUTH_TOKEN_PATH"]).parent
        pids, lost = cluster.pids(0) + cluster.pids(1), cluster.pids(1)
        spaces, names = network_namespaces(pids), set(interfaces(f"ft{os.getpid()}"))
        assert len(spaces) == 2

        def fail_in_the_middle() -> None:
            with ExitStack() as body:
                body.push(cluster)
                cluster.kill_node(1)
                busy.communicate()
                assert busy.returncode == -signal.SIGKILL
                assert [pid for pid in lost if Path(f"/proc/{pid}").exists()] == []
                with pytest.raises(UserError, match="node 1 of the local cluster is not running"):
                    cluster.run(["true"], node=1)
                eventually(lambda: node_states(cluster) == ["ALIVE", "DEAD"])
                raise RuntimeError("the body failed")

        with pytest.raises(RuntimeError, match="the body failed"):
            fail_in_the_middle()
        assert_nothing_left(pids, spaces, names, folder)
        cluster.stop()  # a second time: nothing to do
        with pytest.raises(UserError, match="not running"):
            cluster.run(["true"])


@needs_namespaces
def test_a_killed_owner_leaves_no_process_and_no_interface() -> None:
    owner = """
import json, pathlib, sys, tempfile, time
from cluster import namespaces
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "hosts").touch()
switch = namespaces.Switch()
node = namespaces.hold_node("node0", folder / "hosts", [], folder)
switch.attach(0, node.pid)
print(json.dumps([switch.interface, switch.holder.pid, node.pid]), flush=True)
time.sleep(1000)
"""
    process = subprocess.Popen([sys.executable, "-c", owner], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    interface, *holders = json.loads(process.stdout.readline())
    assert interfaces(interface) == [interface]
    process.kill()
    process.communicate()
    eventually(lambda: not any(Path(f"/proc/{holder}").exists() for holder in holders))
    eventually(lambda: interfaces(interface) == [])


def command(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "cluster", *arguments], cwd=cwd, env=env, capture_output=True, text=True
    )


@needs_namespaces
@pytest.mark.ray
def test_the_command_passes_output_and_status_through(tmp_path: Path) -> None:
    done = command("--nodes", "1", "--cpus", "1", "--", "sh", "-c", "pwd; echo $RAY_ADDRESS; exit 3", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert done.stdout.splitlines()[0] == str(tmp_path)
    assert re.fullmatch(r"[\d.]+:6379", done.stdout.splitlines()[1])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "no command: put it after --"),
        (["--nodes", "two", "--", "ls"], "invalid int value: 'two'"),
        (["--nodes", "0", "--", "ls"], "a local cluster has 1 to 200 nodes, not 0"),
        (["--gpus", "-1", "--", "ls"], "at least 1 CPU and no fewer than 0 GPUs"),
        (["--hide", "/no/such/folder", "--", "ls"], "the folder to hide does not exist: /no/such/folder"),
        (["--node", "2", "--hyde", ".", "--", "ls"], "unrecognized arguments: --hyde ."),
    ],
)
def test_bad_arguments_are_one_sentence(arguments: list[str], says: str) -> None:
    done = command(*arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


@needs_namespaces
def test_a_working_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = command("--workdir", str(tmp_path / "file"), "--", "ls")
    assert done.returncode == 2
    assert f"--workdir: {tmp_path}/file cannot be written (" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_python_in_a_hidden_folder_is_mounted_from_a_path_with_blanks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", "/hidden part/venv")
    lines = namespaces.hiding([Path("/hidden part")], Path("/my work"))
    assert [shlex.split(line) for line in lines] == [
        ["mkdir", "-p", "/my work/python0"],
        ["mount", "--bind", "/hidden part/venv", "/my work/python0"],
        ["mount", "-t", "tmpfs", "tmpfs", "/hidden part"],
        ["mkdir", "-p", "/hidden part/venv"],
        ["mount", "--bind", "/my work/python0", "/hidden part/venv"],
    ]


@needs_namespaces
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"workdir": Path("/tmp") / ("long" * 20)}, "is longer than"),
        ({"hide": [Path("/tmp")], "workdir": Path("/tmp/ft-hidden")}, "own working folder"),
    ],
)
def test_a_cluster_that_cannot_start_says_why(options: dict[str, Any], says: str) -> None:
    try:
        with pytest.raises(UserError, match=says):
            LocalCluster(**options).start()
    finally:
        Path(options["workdir"]).rmdir()  # asked for, so it is kept; it is empty
