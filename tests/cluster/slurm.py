"""A real Slurm of several nodes on this machine: munged, slurmctld and a slurmd in each network namespace."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cluster import namespaces
from cluster.local import ENTER

DAEMONS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol")
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def missing() -> str | None:
    """Why a Slurm cannot be started here; None if it can."""
    absent = [name for name in DAEMONS if shutil.which(name, path=PATH) is None]
    if absent:
        return f"Slurm is not installed ({', '.join(absent)}; on Debian slurm-wlm)"
    return namespaces.available()


class Slurm:
    """A running Slurm. ``run`` executes a command on its first node, as a user would on the login node."""

    def __init__(self, folder: Path, holders: Sequence[subprocess.Popen[bytes]], processes: list) -> None:
        self.folder, self.holders, self._processes = folder, holders, processes
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        self.environment |= {"PATH": PATH, "SLURM_CONF": str(folder / "slurm.conf")}

    def run(self, *argv: str, cwd: Path | None = None, node: int = 0, timeout: float = 60) -> str:
        """The output of a command, which must succeed."""
        done = subprocess.run(
            self._entered(node, argv, cwd), env=self.environment, capture_output=True, text=True, timeout=timeout
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, node: int, *argv: str) -> None:
        """Start a daemon on a node; it ends with the node."""
        log = (self.folder / f"{argv[0]}-{node}.log").open("w")
        self._processes.append(
            subprocess.Popen(self._entered(node, argv), env=self.environment, stdout=log, stderr=log)
        )
        log.close()

    def submit(self, *argv: str, cwd: Path) -> str:
        """Submit a job, and return its number."""
        return self.run("sbatch", "--parsable", *argv, cwd=cwd).strip()

    def ended(self, job: str, deadline: float = 500) -> list[str]:
        """Wait until a job and all tasks of an array have ended, and return the state of each."""
        until = time.monotonic() + deadline
        while True:
            shown = self.run("scontrol", "--oneliner", "show", "job", job)
            states = [word.split("=")[1] for word in shown.split() if word.startswith("JobState=")]
            if states and not {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING"} & set(states):
                return states
            assert time.monotonic() < until, shown
            time.sleep(1)

    def _entered(self, node: int, argv: Sequence[str], cwd: Path | None = None) -> list[str]:
        return [sys.executable, "-I", "-S", ENTER, str(self.holders[node].pid), str(cwd or self.folder), *argv]


@contextmanager
def slurm(folder: Path, nodes: int = 2, cpus: int = 2) -> Iterator[Slurm]:
    """Start a Slurm whose nodes have ``cpus`` CPUs each, and take it down with everything that runs in it."""
    folder.chmod(0o755)
    switch, holders = namespaces.Switch(), list[subprocess.Popen[bytes]]()
    running = Slurm(folder, holders, [])
    try:
        names = [f"{switch.address(n)} node{n}" for n in range(nodes)]
        (folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *names, ""]))
        for node in range(nodes):
            (folder / f"spool{node}").mkdir()
            holders.append(namespaces.hold_node(f"node{node}", folder / "hosts", [], folder / f"spool{node}"))
            switch.attach(node, holders[node].pid)
        _configure(folder, [switch.address(n) for n in range(nodes)], cpus)
        paths = ("key-file=key", "socket=munge.sock", "pid-file=munge.pid", "log-file=munge.log", "seed-file=seed")
        options = [f"--{name}={folder}/{file}" for name, _, file in (path.partition("=") for path in paths)]
        running.start(0, "munged", "--foreground", "--force", *options)
        _until((folder / "munge.sock").exists, "munged")
        running.start(0, "slurmctld", "-D")
        for node in range(nodes):
            running.start(node, "slurmd", "-D", "-N", f"node{node}")
        _until(lambda: running.run("sinfo", "--noheader", "-o", "%T %D").strip() == f"idle {nodes}", "its nodes")
        yield running
    finally:
        for holder in holders:
            namespaces.release(holder)
        for process in running._processes:
            process.wait()
        switch.close()


def _configure(folder: Path, addresses: Sequence[str], cpus: int) -> None:
    key = os.open(folder / "key", os.O_WRONLY | os.O_CREAT, 0o400)
    os.write(key, os.urandom(128))
    os.close(key)
    lines = [
        "ClusterName=fedtext",
        f"SlurmctldHost=node0({addresses[0]})",
        "SlurmUser=root",
        "AuthType=auth/munge",
        f"AuthInfo=socket={folder}/munge.sock",
        "CredType=cred/munge",
        "ProctrackType=proctrack/pgid",
        "TaskPlugin=task/none",
        "MpiDefault=none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core",
        "ReturnToService=2",
        "SlurmctldTimeout=300",
        "SlurmdTimeout=300",
        "MailProg=/bin/true",
        f"StateSaveLocation={folder}/state",
        f"SlurmdSpoolDir={folder}/spool%n",
        f"SlurmctldPidFile={folder}/slurmctld.pid",
        f"SlurmdPidFile={folder}/slurmd%n.pid",
    ]
    (folder / "state").mkdir()
    for node, address in enumerate(addresses):
        (folder / f"spoolnode{node}").mkdir()
        lines.append(f"NodeName=node{node} NodeAddr={address} CPUs={cpus} RealMemory=4000 State=UNKNOWN")
    lines.append("PartitionName=all Nodes=ALL Default=YES State=UP")
    (folder / "slurm.conf").write_text("\n".join([*lines, ""]))


def _until(condition: object, what: str, deadline: float = 90) -> None:
    until = time.monotonic() + deadline
    while True:
        try:
            if condition():  # type: ignore[operator]
                return
        except AssertionError:  # a daemon that is not there yet
            pass
        assert time.monotonic() < until, f"{what} did not start"
        time.sleep(0.5)
