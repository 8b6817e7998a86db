"""Parts of the command line that ``run``, ``sweep`` and ``reproduce`` share.

Modules with Ray, torch and MLflow are imported when a command needs them, so that --help and completion do not wait.
"""

import argparse
import atexit
import gc
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedtext.commands import guarded as guarded  # commands import it from here
from fedtext.commands.parser import (
    Example,
    Parser,
    Refused,
    add_data,
    add_experiment,
    add_keys,
    add_plugin,
    at_least,
    broken,
    command_parser,
)

if TYPE_CHECKING:
    from sweeps.job import Job
    from sweeps.request import Cluster, Command
    from sweeps.trials import Ended

ROOT = Path(__file__).resolve().parent.parent

GARBAGE = 100_000  # new objects before the garbage collector looks at them: imports go on while Ray starts

RESUME = "if it had begun (fedtext ls lists it), --resume RUN continues it"
NOTES = """\
Any key of the experiment can be set on the command line:

  training.rounds=3 method=kteps method.lambda1=0.05
  uplink='[{clip: {norm: 1.0}}, {gaussian: {sigma: 0.01}}]'

A file name alone is looked up here, then in tune_spaces/. All keys with their defaults: --keys; --keys PATTERN explains
those that match; --keys metrics: every metric. Parts of your own, by plugins or --plugin: docs/how-to/use-plug-ins.md.

Results are in MLflow ($MLFLOW_TRACKING_URI, or sqlite:///mlflow.db here; `make ui` opens it); the state of a run is in
runs/, and --resume RUN alone continues it after anything that stopped it.
"""


def parser(name: str, description: str, examples: Sequence[Example], further: Sequence[Example] = ()) -> Parser:
    """Return the parser of ``run`` and ``sweep``.

    Args:
        name: Name of the command.
        description: Its description.
        examples: Examples of its use: the words after the command.
        further: Examples that begin with the name of another program.
    """
    made = command_parser(name, description, examples, NOTES, trains=True, further=further)
    add_experiment(made, "--resume needs none")
    run = made.add_argument_group("the run")
    run.add_argument("--name", help="name of the run (else the experiment's name and the time)")
    run.add_argument("--seed", type=int, metavar="N", help="the same as seed=N")
    run.add_argument(
        "--resume",
        metavar="RUN",
        help="continue this run from its last completed rounds, with the experiment and the --data it was begun with",
    )
    run.add_argument(
        "--dry-run",
        action="store_true",
        help="check and prepare everything, print the trials, their share of the cluster and what they cost, and exit: "
        "nothing is started or written; with --num-cpus N --num-gpus N for a machine of that size",
    )
    run.add_argument("--plan", action=Refused, why="is called --dry-run")
    add_cluster(made)
    own = made.add_argument_group("keys and parts of your own")
    add_plugin(own)
    add_keys(own)
    return made


def add_cluster(made: argparse.ArgumentParser) -> None:
    """Add the options of data and of the Ray cluster."""
    group = made.add_argument_group("data and cluster")
    add_data(group)
    group.add_argument("--address", help="Ray cluster (else $RAY_ADDRESS; else Ray starts on this machine)")
    more = "logical CPUs of a Ray started here; of a cluster, how many to wait for"
    group.add_argument("--num-cpus", type=at_least(1, "CPUs"), metavar="N", help=more)
    group.add_argument("--num-gpus", type=at_least(0, "GPUs"), metavar="N", help=more.replace("CPUs", "GPUs"))


def keep_ray_here() -> None:
    """Have a Ray that this command starts listen on the loopback address, where no other machine reaches it, and ask
    for a token, which other users of this machine lack.

    Ray does the first by itself on macOS and Windows, where it starts no clusters, and elsewhere if a variable says so.
    Both variables are read when Ray is imported. A command that joins a cluster leaves them as they are.
    """
    options = [word.partition("=")[0] for word in sys.argv[1:]]
    named = any(len(option) > 2 and "--address".startswith(option) for option in options)  # it may be abbreviated
    if not named and os.environ.get("RAY_ADDRESS", "") in ("", "local"):
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        os.environ.setdefault("RAY_AUTH_MODE", "token")


def place(words: argparse.Namespace) -> "Cluster":
    """Return the Ray cluster that the options name."""
    from sweeps.request import Cluster

    return Cluster(words.address, words.num_cpus, words.num_gpus)


def launch(words: argparse.Namespace, command: "Command") -> int:
    """Run a job, print what it would do, or explain keys, as the options say. Returns the exit status.

    Raises:
        KeyboardInterrupt: It was interrupted; the message says so where nothing had begun.
    """
    try:
        return _launched(words, command)
    except KeyboardInterrupt as stopped:
        if words.dry_run:
            raise KeyboardInterrupt("nothing was started") from stopped
        raise


def _launched(words: argparse.Namespace, command: "Command") -> int:
    """Do as ``launch`` says.

    The garbage collector is off during imports, which saves a tenth of their time, and rare afterwards. It leaves alone
    what they have made, and at the end everything, where looking through it takes a second.
    """
    gc.disable()
    atexit.register(gc.freeze)
    from sweeps.prepare import prepared
    from sweeps.request import Request
    from sweeps.summary import summary

    gc.freeze()
    gc.set_threshold(GARBAGE, 50, 50)
    gc.enable()
    if words.keys is not None:
        return _keys(words)
    asked = [getattr(words, name) for name in ("experiment", "overrides", "plugin", "name", "resume", "seed", "data")]
    request = Request(command, *asked, place(words))
    if words.dry_run:
        from sweeps.plan import plan

        _print(plan(request))
        return 0
    job = prepared(request)
    _print(summary(job))
    return _run(job)


def _print(lines: Sequence[str]) -> None:
    """Print lines. On a terminal long ones are broken between words, and their rest is indented."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()))
        if width and "  " not in line.strip():  # a row of a table is left as it is
            line = "\n".join(broken(line.strip(), width, indent, f"{indent}  "))
        print(line, flush=True)


def _keys(words: argparse.Namespace) -> int:
    from fedtext.config import files, keys

    files.use_plugins(words.experiment, words.plugin)
    print(keys.about(words.keys))
    return 0


def _run(job: "Job") -> int:
    """Run a job, print its table and the address of its pages, and complete its copy."""
    from sweeps.trials import exit_status, run  # with Ray Tune, which only now is there

    ended = run(job)
    try:
        _print_end(job, ended)
    finally:  # also if the output is closed
        job.folder.complete_copy()
    return exit_status(ended.outcomes, job.left(ended.outcomes), ended.interrupted)


def _print_end(job: "Job", ended: "Ended") -> None:
    """Print the table of a job that has ended, its Pareto front, and where its pages and its report are."""
    from dashboards.pareto import print_front
    from dashboards.store import ui_hint
    from dashboards.table import print_table

    tune = job.experiment.tune
    print_table(job.cases, ended.outcomes, tune.metric, tune.direction)
    if job.sweep and tune.metrics:
        print_front(job.cases, ended.outcomes, tune.objectives)
    print(ui_hint(job.store, ROOT, ended.page))
    if ended.report:
        near = os.path.relpath(ended.report)
        print(f"report: {ended.report if near.startswith(os.pardir) else near}")
    if sentence := ended.unended(job):
        print(sentence)
