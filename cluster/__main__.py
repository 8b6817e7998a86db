"""``python -m cluster --nodes 2 -- COMMAND...``: run a command on a Ray cluster of several nodes on this machine."""

import argparse
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

from cluster.local import LocalCluster
from fedtext.errors import UserError

NAME = "python -m cluster"
DESCRIPTION = """\
Run COMMAND on a real Ray cluster of several nodes, all on this machine.

Every node has its own network, address, host name, processes, shared memory and Ray, as separate machines have. The
command runs on the head node, in the current folder, attached to the cluster; afterwards everything is taken down. Its
output passes through and its exit status is the exit status. CPUs and GPUs are logical: ask for what you want to try.
"""
EPILOG = """\
examples:
  python -m cluster -- python -m platform.sweep demo.yaml       a sweep over two nodes
  python -m cluster --nodes 4 --cpus 4 --gpus 1 -- ...          sixteen clients at a quarter of a GPU, on four nodes
  python -m cluster --hide . -- python -m platform.run demo.yaml
                                                                proves that no code comes from a shared folder
  python -m cluster -- ray list nodes                           what the cluster looks like
  python -m cluster -- bash                                     a shell on the head node, to look around

The nodes reach each other and this machine but not the internet: have data and models on the disk. Needs Linux and root
(in a container: the right to make namespaces).
"""


class Parser(argparse.ArgumentParser):
    """A parser that refuses bad arguments with one sentence and exit status 2, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{NAME}: {message} (see {NAME} --help)\n")


def parse(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options before ``--`` and the command after it."""
    parser = Parser(
        prog=NAME, description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.usage = f"{NAME} [options] -- COMMAND..."
    parser.add_argument("--nodes", type=int, default=2, metavar="N", help="nodes, the head among them (default: 2)")
    parser.add_argument("--cpus", type=int, default=2, metavar="N", help="logical CPUs of each node (default: 2)")
    parser.add_argument("--gpus", type=int, default=0, metavar="N", help="logical GPUs of each node (default: 0)")
    parser.add_argument(
        "--hide", type=Path, action="append", default=[], metavar="FOLDER",
        help="a folder that all nodes but the head find empty; may be given several times",
    )  # fmt: skip
    parser.add_argument("--workdir", type=Path, help="keep the nodes' logs in this folder (a short path)")
    at = argv.index("--") if "--" in argv else len(argv)
    options = parser.parse_args(argv[:at])
    if not argv[at + 1 :]:
        parser.error("no command: put it after --, as in '-- python -m platform.sweep demo.yaml'")
    return options, argv[at + 1 :]


def attend(process: subprocess.Popen[Any]) -> int:
    """Wait for the command and return its exit status. Ctrl-C, SIGTERM and SIGHUP are left to the command."""
    signal.signal(signal.SIGINT, lambda *_: None)  # from a terminal, the command gets it as well
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda number, _: process.send_signal(number))
    status = process.wait()
    return status if status >= 0 else 128 - status  # as a shell says "ended by a signal"


def main(argv: list[str]) -> int:
    """Run the command on a new cluster. Return the command's exit status, or 2 for a UserError."""
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))  # an exception: the cluster is taken down
    try:
        options, command = parse(argv)
        cluster = LocalCluster(options.nodes, options.cpus, options.gpus, options.hide, options.workdir)
        print(f"cluster: starting, nodes: {options.nodes}", file=sys.stderr)
        with cluster:
            print(f"cluster: up, dashboard {cluster.jobs_address}", file=sys.stderr)
            return attend(cluster.popen(command))
    except UserError as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
