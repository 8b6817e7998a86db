"""Parts of the command line that the commands share."""

import argparse
import gc
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedtext.commands import Parser, add_keys, add_plugin
from fedtext.errors import UserError, command_line, unwritable
from sweeps.request import Cluster, Command, Request

if TYPE_CHECKING:
    from sweeps.job import Job

ROOT = Path(__file__).resolve().parent.parent

RESUME = "--resume RUN continues it"
EPILOG = """\
any key of the experiment can be set on the command line:

  training.rounds=3  method.lambda1=0.05  uplink='[{gaussian: {sigma: 0.01}}]'  method=fedavg

A file name alone is looked up here, then in tune_spaces/. All keys with their defaults: --keys.
--keys NAME explains one of them, or a method, mechanism, model, corpus or audit, with its alternatives (kteps, uplink,
training.optimizer, ...); --keys metrics: every metric. Parts of your own, by plugins or --plugin:
docs/how-to/write-your-own-parts.md.
Results are in MLflow ($MLFLOW_TRACKING_URI, or sqlite:///mlflow.db here; `make ui` opens it); the state of a run is in
runs/, and --resume RUN alone continues it after anything that stopped it.
"""


def _at_least(least: int, what: str) -> Callable[[str], int]:
    def count(word: str) -> int:
        if not word.lstrip("-").isdecimal() or int(word) < least:
            raise argparse.ArgumentTypeError(
                f"{word!r} is no number of {what}, which is a whole number from {least} on"
            )
        return int(word)

    return count


def parser(name: str, description: str, example: str) -> argparse.ArgumentParser:
    """Return the parser of ``run`` and ``sweep``.

    Args:
        name: Name of the command.
        description: Its description.
        example: Examples of its use, a line each.
    """
    made = Parser(
        prog=f"python -m platform.{name}",
        description=description,
        epilog=f"examples:\n{example}\n{EPILOG}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("experiment", nargs="?", help="experiment file (YAML); --resume needs none")
    made.add_argument("overrides", nargs="*", metavar="key=value", help="changes to the experiment")
    made.add_argument("--name", help="name of the run (else the experiment's name and the time)")
    made.add_argument("--seed", type=int, help="the same as seed=N")
    made.add_argument(
        "--resume",
        metavar="RUN",
        help="continue this run from its last completed rounds, with the experiment and the --data it was begun with",
    )
    add_cluster(made)
    made.add_argument(
        "--plan",
        action="store_true",
        help="print the trials, their actors and shares of the cluster, and exit; with --num-cpus N --num-gpus N for a "
        "machine of that size",
    )
    add_plugin(made)
    add_keys(made)
    return made


def add_cluster(made: argparse.ArgumentParser) -> None:
    """Add the options of data and of the Ray cluster."""
    made.add_argument(
        "--data", metavar="FOLDER", help="folder of corpora, or its URI (s3://BUCKET/FOLDER; else $FEDTEXT_DATA)"
    )
    made.add_argument("--address", help="Ray cluster (else $RAY_ADDRESS; else Ray starts on this machine)")
    made.add_argument("--num-cpus", type=_at_least(1, "CPUs"), metavar="N", help="logical CPUs of a Ray started here")
    made.add_argument("--num-gpus", type=_at_least(0, "GPUs"), metavar="N", help="logical GPUs of a Ray started here")


def place(words: argparse.Namespace) -> Cluster:
    """Return the Ray cluster that the options name."""
    return Cluster(words.address, words.num_cpus, words.num_gpus)


def launch(words: argparse.Namespace, command: Command) -> int:
    """Run a job, print its plan or explain keys, as the options say. Returns the exit status.

    Ray and MLflow are imported here, so that --help does not wait for them. The garbage collector is off meanwhile,
    which saves a tenth of the time.
    """
    gc.disable()
    from sweeps.prepare import prepared
    from sweeps.summary import summary

    gc.freeze()
    gc.enable()
    if words.keys is not None:
        return _keys(words)
    asked = [getattr(words, name) for name in ("experiment", "overrides", "plugin", "name", "resume", "seed", "data")]
    request = Request(command, *asked, place(words))
    if words.plan:
        from sweeps.plan import plan

        print("\n".join(plan(request)))
        return 0
    job = prepared(request)
    print("\n".join(summary(job)), flush=True)
    return _run(job)


def _keys(words: argparse.Namespace) -> int:
    from fedtext.config import files, keys

    files.use_plugins(words.experiment, words.plugin)
    print(keys.about(words.keys))
    return 0


def _run(job: "Job") -> int:
    """Run a job, and print its table and the address of its pages."""
    from dashboards.store import ui_hint
    from dashboards.table import print_table
    from sweeps.trials import exit_status, run  # with Ray Tune, which only now is there

    ended, tune = run(job), job.experiment.tune
    print_table(job.cases, ended.outcomes, tune.metric, tune.direction)
    print(ui_hint(job.store, ROOT, ended.page))
    if ended.report:
        print(f"report: {os.path.relpath(ended.report)}")
    if left := len(job.cases) - len(ended.outcomes):
        print(f"{left} trials have not ended: {job.folder.again} continues them")
    return exit_status(ended.outcomes, left)


def guarded(main: Callable[[Sequence[str] | None], int], again: str = "") -> Callable[[], int]:
    """Return a command that ends on a UserError with its message on stderr and exit status 2, without a traceback.

    Args:
        main: Parses and runs; returns the exit status.
        again: How an interrupted command is continued, for the message.
    """

    def command() -> int:
        try:
            with command_line():
                return main(None)
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        except OSError as error:
            if not (sentence := unwritable(error)):
                raise
            print(f"error: {sentence}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print(f"interrupted; {again}" if again else "interrupted", file=sys.stderr)
            return 130

    return command
