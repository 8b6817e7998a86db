"""The local cluster's use of Linux: nodes made of namespaces, and the switch between them.

A node has its own network, processes, mounts, host name and shared memory, so two nodes share no port, no socket, no
process list and, where asked, no folder. Namespaces have no names in the system: each lives exactly as long as its
holder, a small process that reads a pipe from its owner and ends when the pipe closes. So the kernel removes the whole
cluster, interfaces and mounts included, even when the owner is killed with -9.
"""

import ipaddress
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fedtext.errors import UserError

TOOLS = ("ip", "unshare", "nsenter", "mount", "hostname")
POOLS = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "198.18.0.0/15")  # private, and the one for benchmarks
RELEASE_SECONDS = 20.0  # how long the kernel may take to end a node's processes before it is an error
NODE = ("--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc")

# The node's process 1. SIGCHLD ignored: the kernel then reaps the daemons that `ray start` leaves to it.
INIT = (
    "import signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
    "print('ready', flush=True); sys.stdin.buffer.read()"
)


def available() -> str | None:
    """Return why nodes cannot be made of namespaces on this machine; None if they can."""
    if sys.platform != "linux":
        return "network namespaces need Linux"
    if os.geteuid() != 0:
        return "making network namespaces needs root"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"the command {' and '.join(missing)} is missing (packages iproute2, util-linux, hostname)"
    trial = "ip link add name trial0 type veth peer name trial1 && ip link add name trial2 type bridge"
    done = subprocess.run(["unshare", *NODE, "sh", "-c", trial], capture_output=True, text=True)
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return f"namespaces are not permitted here ({said})"
    return None


def command(*argv: str) -> str:
    """Run a system command and return its output.

    Raises:
        UserError: it failed; the message is its own last line.
    """
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise UserError(f"the local cluster could not run '{shlex.join(argv)}': {said}")
    return done.stdout


def free_network() -> ipaddress.IPv4Network:
    """Draw a private /24 at random that no address and no route of this machine overlaps.

    Raises:
        UserError: Every one overlaps.
    """
    taken = []
    for route in json.loads(command("ip", "-j", "-4", "route", "show", "table", "all")):
        if route["dst"] not in ("default", "0.0.0.0/0"):
            taken.append(ipaddress.ip_network(route["dst"], strict=False))
    draw = random.SystemRandom()  # never the seeded generator of an experiment
    for pool in map(ipaddress.IPv4Network, POOLS):
        for _ in range(100):
            start = int(pool.network_address) + 256 * draw.randrange(pool.num_addresses // 256)
            network = ipaddress.IPv4Network((start, 24))
            if not any(network.overlaps(other) for other in taken):
                return network
    raise UserError(
        "no private address range is free for the local cluster: every one overlaps a route of this machine"
    )


def hold(*argv: str) -> subprocess.Popen[bytes]:
    """Start a holder and wait until it says that it is ready.

    Raises:
        UserError: it could not be set up; the message is its own last line.
    """
    pipe = subprocess.PIPE
    # A session of its own: Ctrl-C in a terminal goes to the command in the cluster, not to the cluster.
    holder = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
    assert holder.stdout is not None
    assert holder.stderr is not None
    try:
        if holder.stdout.readline().strip() != b"ready":
            said = (holder.stderr.read().decode(errors="replace").strip().splitlines() or ["no message"])[-1]
            raise UserError(f"a node of the local cluster could not be set up: {said}")
    except BaseException:
        release(holder)
        raise
    holder.stdout.close()
    holder.stderr.close()
    return holder


def release(holder: subprocess.Popen[bytes]) -> None:
    """End a holder and with it everything in its namespaces (SIGKILL by the kernel); returns when all of it is gone.

    Raises:
        UserError: processes did not end in time.
    """
    for pipe in (holder.stdin, holder.stdout, holder.stderr):
        if pipe is not None:
            pipe.close()
    try:
        holder.wait(RELEASE_SECONDS)
    except subprocess.TimeoutExpired:
        holder.kill()
        raise UserError(f"the processes of a cluster node (holder {holder.pid}) did not end when killed") from None


def hiding(folders: Sequence[Path], keep: Path) -> list[str]:
    """Shell lines that put an empty folder over each of ``folders`` for a node.

    The Python that runs the cluster stays where it is even inside a hidden folder (a repository's own .venv): ``keep``
    is a folder through which it is mounted again. A separate machine would have its own Python.
    """
    lines: list[str] = []
    # A folder inside another hidden one is gone with it; there would be nothing left to mount on.
    folders = [one for one in dict.fromkeys(folders) if not any(one.is_relative_to(o) for o in folders if o != one)]
    pythons = sorted({Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()})
    for number, python in enumerate(pythons):
        if any(python.is_relative_to(folder) for folder in folders):
            aside = shlex.quote(str(keep / f"python{number}"))
            lines += [f"mkdir -p {aside}", f"mount --bind {shlex.quote(str(python))} {aside}"]
    lines += [f"mount -t tmpfs tmpfs {shlex.quote(str(folder))}" for folder in folders]
    for number, python in enumerate(pythons):
        if any(python.is_relative_to(folder) for folder in folders):
            place, aside = shlex.quote(str(python)), shlex.quote(str(keep / f"python{number}"))
            lines += [f"mkdir -p {place}", f"mount --bind {aside} {place}"]
    return lines


def hold_node(name: str, hosts: Path, hide: Sequence[Path], folder: Path) -> subprocess.Popen[bytes]:
    """Start a node's holder: namespaces, host name, host table, shared memory, hidden folders; no network yet.

    Args:
        name: Host name of the node.
        hosts: The file that is its /etc/hosts.
        hide: Folders that the node does not see.
        folder: The node's own folder, through which it still sees the Python in a hidden one.
    """
    lines = [
        "set -e",
        f"hostname {name}",
        f"mount --bind {shlex.quote(str(hosts))} /etc/hosts",
        "mount -t tmpfs tmpfs /dev/shm",
        *hiding(hide, folder),
        "ip link set lo up",
        f"exec {shlex.quote(sys.executable)} -I -S -c {shlex.quote(INIT)}",
    ]
    return hold("unshare", *NODE, "sh", "-c", "\n".join(lines))


def processes(holder: int) -> list[int]:
    """Return the process ids, as this machine counts them, of a node's processes, without its process 1."""
    node = os.readlink(f"/proc/{holder}/ns/pid_for_children")
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            if os.readlink(entry / "ns" / "pid") != node:
                continue
            numbers = next(line for line in (entry / "status").read_text().splitlines() if line.startswith("NSpid:"))
        except (OSError, StopIteration):  # it ended while we looked
            continue
        if numbers.split()[-1] != "1":
            found.append(int(entry.name))
    return sorted(found)


class Switch:
    """The network between the nodes, in a namespace of its own, where no firewall of this machine filters it.

    This machine is on it too, at ``host``: it reaches the dashboard, and the nodes reach what listens here.
    """

    def __init__(self) -> None:
        self.network = free_network()
        self.host = str(self.network[1])
        self.interface = f"ft{os.getpid() % 10**7}{os.urandom(2).hex()}"  # at most 13 of the 15 characters allowed
        hold_open = ("sh", "-c", "echo ready; exec cat >/dev/null")
        self.holder = hold("unshare", "--net", *hold_open)
        try:
            pid = str(self.holder.pid)
            self._inside("ip", "link", "add", "name", "switch", "type", "bridge")
            self._inside("ip", "link", "set", "switch", "up")
            command("ip", "link", "add", "name", self.interface, "type", "veth", "peer", "name", "host", "netns", pid)
            command("ip", "address", "add", f"{self.host}/24", "dev", self.interface)
            command("ip", "link", "set", self.interface, "up")
            self._inside("ip", "link", "set", "host", "master", "switch", "up")
        except BaseException:
            self.close()
            raise

    def address(self, index: int) -> str:
        """Return the address of node ``index``."""
        return str(self.network[10 + index])

    def attach(self, index: int, holder: int) -> None:
        """Connect the node held by process ``holder``, with its address on ``eth0``."""
        port, peer = f"node{index}", ("peer", "name", "eth0", "netns", str(holder))
        self._inside("ip", "link", "add", "name", port, "type", "veth", *peer)
        self._inside("ip", "link", "set", port, "master", "switch", "up")
        node = ("nsenter", f"--net=/proc/{holder}/ns/net")
        command(*node, "ip", "address", "add", f"{self.address(index)}/24", "dev", "eth0")
        command(*node, "ip", "link", "set", "eth0", "up")

    def connect(self, index: int, whether: bool) -> None:
        """Connect a node again, or cut it off: nothing reaches it then, and no process is told."""
        self._inside("ip", "link", "set", f"node{index}", "up" if whether else "down")

    def close(self) -> None:
        """Remove the network; returns when this machine's interface is gone. May be called twice."""
        # The kernel would remove it with the namespace, but a moment later.
        subprocess.run(["ip", "link", "delete", self.interface], capture_output=True)
        release(self.holder)

    def _inside(self, *argv: str) -> None:
        command("nsenter", f"--net=/proc/{self.holder.pid}/ns/net", *argv)
