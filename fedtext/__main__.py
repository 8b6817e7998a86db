"""``python -m fedtext FILE``: one run in this process, with the library alone: no Ray, no MLflow.

It prints a line for each round and, with --out, keeps records, state and the model in a folder, from which the same
command continues. ``python -m fedtext predict MODEL TEXT ...`` predicts with the model of a run.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from fedtext.api.model import Model, NextWords, Prediction
from fedtext.api.run import load, run
from fedtext.commands import Parser, add_keys, add_plugin
from fedtext.config import files, keys
from fedtext.errors import ClientError, UserError, command_line, unwritable
from fedtext.records import RoundRecord


def main(words: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        The exit status: 2 after a problem with the request, 1 if training failed.
    """
    words = list(sys.argv[1:] if words is None else words)
    try:
        with command_line():
            return _predict(words[1:]) if words[:1] == ["predict"] else _run(words)
    except (UserError, ClientError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, UserError) else 1
    except OSError as error:
        if not (sentence := unwritable(error)):
            raise
        print(f"error: {sentence}", file=sys.stderr)
        return 2


def _run(words: Sequence[str]) -> int:
    parser = Parser(prog="python -m fedtext", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("experiment", nargs="?", help="experiment file (YAML), here or in tune_spaces/")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="changes to the experiment")
    parser.add_argument(
        "--data", metavar="FOLDER", help="folder of corpora, or its URI (s3://BUCKET/FOLDER; else $FEDTEXT_DATA)"
    )
    parser.add_argument("--device", default="cpu", help="torch device (cpu, cuda)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="keep state, records and the model, and continue")
    add_plugin(parser)
    add_keys(parser)
    arguments = parser.parse_intermixed_args(words)
    if arguments.keys is not None:
        files.use_plugins(arguments.experiment, arguments.plugin)
        print(keys.about(arguments.keys))
        return 0
    if arguments.experiment is None:
        parser.error("which experiment? name a file, demo.yaml for example; --keys lists its keys")
    experiment = load(arguments.experiment, *arguments.overrides, plugins=arguments.plugin)
    logger = logging.getLogger("fedtext.api.run")  # logs the engine before the first round
    logger.setLevel(logging.INFO)
    logger.addHandler(printed := _Printed())

    def show(record: RoundRecord) -> None:
        metrics = "  ".join(f"{name} {value:.4g}" for name, value in record.metrics.items())
        print(f"round {record.round}/{experiment.training.rounds}  {metrics}", flush=True)

    try:
        run(experiment, data=arguments.data, on_round=show, device=arguments.device, out=arguments.out, resume=True)
    finally:
        logger.removeHandler(printed)
    return 0


class _Printed(logging.Handler):
    """Print messages. Unlike ``logging.StreamHandler`` it raises exceptions, as if the disk is full."""

    def emit(self, record: logging.LogRecord) -> None:
        print(record.getMessage(), flush=True)


def _predict(words: Sequence[str]) -> int:
    parser = Parser(
        prog="python -m fedtext predict", description="Classify texts, or predict next words, with a trained model."
    )
    parser.add_argument("model", type=Path, help="a model folder, such as runs/NAME/TRIAL/model, or OUT/model")
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="texts; none: the lines of standard input")
    parser.add_argument("--client", metavar="NAME", help="the client whose personal model is used")
    parser.add_argument(
        "--trust-plugins", action="store_true", help="run the plug-ins that are stored with the model; read them first"
    )
    arguments = parser.parse_args(words)
    model = Model.load(arguments.model, arguments.trust_plugins)
    texts = arguments.texts or [line.rstrip("\n") for line in sys.stdin]
    for text, found in zip(texts, model.predict(texts, arguments.client), strict=True):
        print(f"{_told(found)}  {text}")
    return 0


def _told(found: Prediction | NextWords) -> str:
    if isinstance(found, Prediction):
        return f"{found.label}  {found.probability:.3f}"
    words = ", ".join(f"{word} {probability:.3f}" for word, probability in found.words)
    return f"next: {words}  perplexity {found.perplexity:.4g}"


if __name__ == "__main__":
    sys.exit(main())
