"""A real Ray cluster of several nodes on one machine, for tests and for trying things out.

Every node is made of Linux namespaces (see namespaces.py) and runs its own ``ray start``, with token authentication::

    with LocalCluster(nodes=2, cpus=2, hide=[Path.cwd()]) as cluster:
        done = cluster.run([sys.executable, "-m", "platform.sweep", "demo.yaml"])

The nodes reach each other and this machine, and nothing else. They share this machine's files unless hidden.
"""

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from cluster import head, namespaces
from cluster.namespaces import available
from fedtext.errors import UserError, writing

__all__ = ["LocalCluster", "available"]

GCS_PORT, DASHBOARD_PORT = 6379, 8265  # each node has its own ports, so clusters never conflict
SOCKET_PATH_LIMIT = 107  # bytes of a Unix socket's path on Linux
RAY_SOCKET = "/0/session_2000-01-01_00-00-00_000000_1000000/sockets/plasma_store.1"  # as long as Ray's become
Env = Mapping[str, str] | None
ENTER = str(Path(__file__).with_name("enter.py"))


class LocalCluster:
    """A Ray cluster of ``nodes`` nodes on this machine. Node 0 is the head.

    Args:
        nodes, cpus, gpus: number of nodes, and each one's logical CPUs and GPUs (GPUs need not exist).
        hide: existing folders that every node but the head finds empty. The running Python stays visible.
        workdir: folder for the nodes' files and logs, ``workdir/0`` and so on, kept afterwards. A short path: Ray puts
            sockets in it. By default a temporary folder, which ``stop`` deletes.
        cwd: where the head works (by default here). The other nodes work in their part of ``workdir``.
        object_store_mb: each node's object store, in megabytes.
        node_env: further environment variables of the nodes, such as Ray's own settings.
        head_options: further options of the head's ``ray start``, such as those of an autoscaler.
        deadline: seconds until every node must have joined.
    """

    def __init__(
        self,
        nodes: int = 2,
        cpus: int = 2,
        gpus: int = 0,
        hide: Sequence[Path] = (),
        workdir: Path | None = None,
        *,
        cwd: Path | None = None,
        object_store_mb: int = 300,
        node_env: Env = None,
        head_options: Sequence[str] = (),
        deadline: float = 120.0,
    ) -> None:
        if not 1 <= nodes <= 200:
            raise UserError(f"a local cluster has 1 to 200 nodes, not {nodes}")
        if cpus < 1 or gpus < 0:
            raise UserError(f"a node needs at least 1 CPU and no fewer than 0 GPUs, not {cpus} and {gpus}")
        if object_store_mb < 80:  # Ray refuses less than 75 MiB
            raise UserError(f"a node's object store needs at least 80 MB, not {object_store_mb}")
        for folder in hide:
            if not folder.is_dir():
                raise UserError(f"the folder to hide does not exist: {folder}")
        self.nodes, self.cpus, self.gpus, self.object_store_mb = nodes, cpus, gpus, object_store_mb
        self.hide = [folder.resolve() for folder in hide]
        self.cwd = (cwd or Path.cwd()).resolve()
        self.deadline = deadline
        self._kept = workdir.resolve() if workdir else None
        self._node_env, self._head_options = dict(node_env or {}), list(head_options)
        self._folder: Path | None = None
        self._switch: namespaces.Switch | None = None
        self._holders: dict[int, subprocess.Popen[bytes]] = {}
        self._commands: list[subprocess.Popen[Any]] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Bring the cluster up; returns when every node has joined and jobs can be submitted.

        Raises:
            UserError: namespaces cannot be used here, or a node did not come up. Nothing is left behind then.
        """
        if self._folder is not None:
            raise UserError("the local cluster is running already")
        reason = available()
        if reason:
            raise UserError(f"a local cluster of several nodes cannot be had here: {reason}")
        until = time.monotonic() + self.deadline
        try:
            self._make_nodes()
            self._await_ray_start([self._ray_start(0)], until)
            self._await_ray_start([self._ray_start(index) for index in range(1, self.nodes)], until)
            head.await_nodes(self.jobs_address, (self._place / "token").read_text(), self.nodes, self.deadline, until)
        except BaseException:  # also Ctrl-C
            self.stop()
            raise

    def stop(self) -> None:
        """Take the cluster down: its processes (and no other), namespaces, interfaces, mounts. May be called twice."""
        for index in list(self._holders):
            self.kill_node(index)
        for process in self._commands:  # they are dead by now; waiting takes their last trace away
            process.wait()
        self._commands.clear()
        if self._switch is not None:
            self._switch.close()
            self._switch = None
        if self._folder is not None:
            (self._folder / "token").unlink(missing_ok=True)
            if self._kept is None:
                shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def kill_node(self, index: int) -> None:
        """Simulate the loss of a node: SIGKILL to all its processes at once. The other nodes stay."""
        namespaces.release(self._holder(index))
        del self._holders[index]

    def cut(self, index: int) -> None:
        """Cut a node off the network. Its processes go on."""
        self._running.connect(index, False)

    def mend(self, index: int) -> None:
        """Connect a node that was cut off."""
        self._running.connect(index, True)

    def pids(self, index: int) -> list[int]:
        """Return the process ids, as seen by this machine, of all processes of a node."""
        return namespaces.processes(self._holder(index).pid)

    def ip(self, index: int) -> str:
        """Return the address of a node."""
        return self._running.address(index)

    @property
    def host_ip(self) -> str:
        """The address of this machine in the nodes' network, for instance of a tracking server that listens on it."""
        return self._running.host

    @property
    def address(self) -> str:
        """The ``ip:port`` for RAY_ADDRESS and ``ray start --address``. Attach from inside a node, with ``run``."""
        return f"{self.ip(0)}:{GCS_PORT}"

    @property
    def jobs_address(self) -> str:
        """The URL of the dashboard and the job server. It can be reached from this machine as well."""
        return f"http://{self.ip(0)}:{DASHBOARD_PORT}"

    def env(self) -> dict[str, str]:
        """The environment variables with which a command attaches to this cluster."""
        direct = ",".join(filter(None, [os.environ.get("no_proxy"), *map(self.ip, range(self.nodes)), self.host_ip]))
        return {
            "RAY_ADDRESS": self.address,
            "RAY_API_SERVER_ADDRESS": self.jobs_address,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self._place / "token"),
            "no_proxy": direct,
            "NO_PROXY": direct,
        }

    def run(
        self, argv: Sequence[str], node: int = 0, cwd: Path | None = None, env: Env = None, timeout: float | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside a node, attached to the cluster.

        Args:
            argv: The command and its arguments.
            node: Number of the node; 0: the head.
            cwd: Its working folder; None: the node's.
            env: More environment variables.
            timeout: Seconds to wait; None: without end.

        Returns:
            The completed process, with its output as text.

        Raises:
            subprocess.TimeoutExpired: after ``timeout`` seconds; the command has been killed.
        """
        process = self.popen(argv, node, cwd, env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            output, errors = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            process.wait()
            raise
        return subprocess.CompletedProcess(list(argv), process.returncode, output, errors)

    def popen(
        self, argv: Sequence[str], node: int = 0, cwd: Path | None = None, env: Env = None, **kwargs: Any
    ) -> subprocess.Popen[Any]:
        """Start a command inside a node, attached to the cluster.

        Signals sent to the process reach the command, and its exit status is the command's (see enter.py).

        Args:
            argv: The command and its arguments.
            node: Number of the node; 0: the head.
            cwd: Its working folder; None: the node's.
            env: More environment variables.
            kwargs: Arguments of ``subprocess.Popen``.
        """
        holder = self._holder(node)
        folder = cwd or (self.cwd if node == 0 else self._place / str(node))
        # Whatever Ray job or cluster we were started from is none of this cluster's business.
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
        # `python` and `ray` in a node are the ones we run with, whether or not their environment is activated here.
        path = os.pathsep.join(filter(None, [str(Path(sys.executable).parent), os.environ.get("PATH")]))
        variables = {**inherited, "PATH": path, **self._node_env, **self.env(), **(env or {})}
        entered = [sys.executable, "-I", "-S", ENTER, str(holder.pid), str(folder), *map(str, argv)]
        process = subprocess.Popen(entered, env=variables, **kwargs)
        self._commands = [other for other in self._commands if other.poll() is None] + [process]
        return process

    @property
    def _running(self) -> namespaces.Switch:
        if self._switch is None:
            raise UserError("the local cluster is not running")
        return self._switch

    @property
    def _place(self) -> Path:
        if self._folder is None:
            raise UserError("the local cluster is not running")
        return self._folder

    def _holder(self, index: int) -> subprocess.Popen[bytes]:
        if index not in self._holders:
            raise UserError(f"node {index} of the local cluster is not running")
        return self._holders[index]

    def _make_nodes(self) -> None:
        """Make the working folder with token and host table, the network, and the empty nodes."""
        if self._kept is not None:
            with writing(self._kept, "--workdir"):
                self._kept.mkdir(parents=True, exist_ok=True)
        folder = self._folder = self._kept or Path(tempfile.mkdtemp(prefix="ft-")).resolve()
        if len(os.fsencode(str(folder))) + len(RAY_SOCKET) > SOCKET_PATH_LIMIT:
            limit = SOCKET_PATH_LIMIT - len(RAY_SOCKET)
            raise UserError(f"the path of the cluster's working folder is longer than {limit} characters: {folder}")
        for hidden in self.hide:
            if folder.is_relative_to(hidden):
                raise UserError(f"cannot hide {hidden}: the cluster's own working folder {folder} lies in it")
        token = os.open(folder / "token", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(token, "w") as file:
            file.write(secrets.token_hex(32))
        self._switch = namespaces.Switch()
        names = [f"{self.ip(index)} node{index}" for index in range(self.nodes)]
        (folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *names, ""]))
        for index in range(self.nodes):
            own = folder / str(index)
            own.mkdir(exist_ok=True)
            hide = self.hide if index > 0 else []
            self._holders[index] = namespaces.hold_node(f"node{index}", folder / "hosts", hide, own)
            self._switch.attach(index, self._holders[index].pid)

    def _ray_start(self, index: int) -> tuple[int, subprocess.Popen[Any], Path]:
        """Begin a node's ``ray start``. Its output goes to a file, since its daemons would hold a pipe open."""
        ray = Path(sys.executable).with_name("ray")
        if not ray.exists():
            raise UserError(f"Ray is not installed beside {sys.executable}: install fedtext's extra 'platform'")
        first = ["--head", f"--port={GCS_PORT}", "--dashboard-host=0.0.0.0", f"--dashboard-port={DASHBOARD_PORT}"]
        first += ["--disable-usage-stats", *self._head_options]
        argv = [str(ray), "start", *(first if index == 0 else [f"--address={self.address}"])]
        argv += [f"--node-ip-address={self.ip(index)}", f"--temp-dir={self._place / str(index)}"]
        argv += [f"--num-cpus={self.cpus}", f"--num-gpus={self.gpus}"]
        argv += [f"--object-store-memory={self.object_store_mb * 10**6}"]
        log = self._place / f"start-{index}.log"
        with log.open("w") as output:
            # Empty addresses: the node is not attached to a cluster yet. The last setting as in actors/cluster.py.
            env = {"RAY_ADDRESS": "", "RAY_API_SERVER_ADDRESS": "", "RAY_free_objects_period_milliseconds": "0"}
            starting = self.popen(argv, index, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        return index, starting, log

    def _await_ray_start(self, starting: list[tuple[int, subprocess.Popen[Any], Path]], until: float) -> None:
        for index, process, log in starting:
            try:
                status = process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise UserError(f"node {index} of the local cluster did not start in {self.deadline:g} s") from None
            if status != 0:
                said = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
                raise UserError(f"node {index} of the local cluster did not start: {said[-1] if said else status}")
