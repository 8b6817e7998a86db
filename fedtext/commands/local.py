"""``fedtext run FILE --no-ray``: one run in this process, with the library alone: no Ray, no MLflow."""

import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from fedtext.commands.parser import Parser, Refused, add_data, add_experiment, add_keys, add_plugin, command_parser

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedtext.api.result import Result
    from fedtext.records import RoundRecord

DESCRIPTION = """\
One run in this process, with the library alone: no Ray, no MLflow. It gives the same results as one on Ray, prints the
privacy ledger, a line for each round, then every metric and, with --out, keeps records, state and the model in a
folder, from which the same command continues.
"""
# Options of a run on Ray, with their number of values
ON_RAY = {"--name": 1, "--resume": 1, "--address": 1, "--num-cpus": 1, "--num-gpus": 1, "--dry-run": 0}


def parser() -> Parser:
    """Return the parser of the command."""
    examples = [
        ("demo.yaml", ""),
        ("demo.yaml method=fedavg training.rounds=3", "with changes to the experiment"),
        ("demo.yaml --out first", "keep records and the model; again: continue"),
    ]
    made = command_parser("run --no-ray", DESCRIPTION, examples, trains=True)
    add_experiment(made, "--keys needs none")
    made.add_argument("--no-ray", action="store_true", help="this kind of run")
    made.add_argument("--seed", type=int, metavar="N", help="the same as seed=N")
    add_data(made)
    made.add_argument("--device", default="cpu", help="torch device (cpu, cuda)")
    made.add_argument("--out", metavar="FOLDER", help="keep state, records and the model, and continue")
    add_plugin(made)
    add_keys(made)
    for option, values in ON_RAY.items():
        made.add_argument(
            option, action=Refused, nargs=values, why="is for runs on Ray: leave it out, or leave out --no-ray"
        )
    return made


def main(words: Sequence[str] | None) -> int:
    """Run the command, and return its exit status.

    Raises:
        UserError: The experiment or its corpus cannot be used.
        ClientError: The training of a client failed.
        KeyboardInterrupt: The run was interrupted; the message says how it is continued.
    """
    made = parser()
    arguments = made.parse_intermixed_args(words)
    from fedtext.api.run import load, run
    from fedtext.config import files, keys
    from fedtext.config.overrides import with_seed
    from fedtext.config.single import aside, describes_several

    if arguments.keys is not None:
        files.use_plugins(arguments.experiment, arguments.plugin)
        print(keys.about(arguments.keys))
        return 0
    if arguments.experiment is None:
        made.error("which experiment? name a file, demo.yaml for example; --keys lists its keys")
    overrides = with_seed(arguments.overrides, arguments.seed)
    experiment = load(arguments.experiment, *overrides, plugins=arguments.plugin)
    if describes_several(experiment):
        print(aside(), flush=True)
    # It logs the engine, what is revealed, and the ledger before the first round
    logger = logging.getLogger("fedtext.api.run")
    logger.setLevel(logging.INFO)
    logger.addHandler(printed := _Printed())

    shown = []

    def show(record: "RoundRecord") -> None:
        shown.append(record.round)
        print("  ".join(_round(record, experiment.training.rounds)), flush=True)

    try:
        given = {"data": arguments.data, "device": arguments.device, "out": arguments.out}
        result = run(experiment, on_round=show, resume=True, **given)
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(_interrupted(arguments.out)) from error
    finally:
        logger.removeHandler(printed)
    if result.history and not shown:
        done = len(result.history)
        print(f"{done} of {done} rounds were completed before: nothing was trained", flush=True)
    for line in _end(result, printed.said):
        print(line)
    return 0


def _round(record: "RoundRecord", rounds: int) -> list[str]:
    """Return the parts of a round's line."""
    from fedtext.metrics.wording import facts, pace, sent

    found, said = record.metrics, [f"round {record.round}/{rounds}", *facts(record.metrics)]
    if found["bytes_total"]:
        said.append(sent(found["bytes_up_total"], found["bytes_down_total"]))
    return [*said, f"{pace(found['round_seconds'])} s"]


def _interrupted(out: str | None) -> str:
    """Return how a run that was interrupted is continued, for the message."""
    if out is None:
        return "nothing was kept: --out FOLDER keeps each round, and the same command then continues the run"
    return "the same command continues it"


def _end(result: "Result", said: Collection[str]) -> "Iterator[str]":
    """Yield lines with the last value of every metric and its meaning, and what the ledger has come to guarantee.

    Args:
        result: The result.
        said: Lines that were printed before the first round, which are left out.
    """
    from fedtext.ledger.report import guarantees
    from fedtext.metrics import column_order, meaning
    from fedtext.metrics.wording import told

    values = {name: told(name, value) for name, value in result.metrics.items()}
    long, wide = max(map(len, values), default=0), max(map(len, values.values()), default=0)
    yield ""
    for name in sorted(values, key=column_order):
        yield f"{name:<{long}}  {values[name]:>{wide}}  {meaning(name)}".rstrip()
    if new := [line for line in guarantees(result.ledger) if line not in said]:  # what was measured in the run
        yield from ["", *new]


class _Printed(logging.Handler):
    """Print messages, and keep them. Unlike ``logging.StreamHandler`` it raises exceptions, as if the disk is full."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())
        print(self.said[-1], flush=True)
