"""``python -m platform.corpora FILE``: statistics of an experiment's corpus, by client, and its problems."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from platform._words import guarded  # type: ignore[import-not-found]
from typing import TYPE_CHECKING

from fedtext.commands import Parser
from fedtext.commands.parser import add_data, add_experiment, add_plugin, command_parser

if TYPE_CHECKING:
    from fedtext.config.experiment import Experiment
    from fedtext.corpora.types import Corpus


def parser() -> Parser:
    """Return the parser of the command."""
    examples = [
        ("demo.yaml", ""),
        ("kteps.yaml --data FOLDER", "a corpus that lies in FOLDER"),
        ("own_texts.yaml corpus.path=reviews.csv", "a file of your own"),
        ("demo.yaml corpus.clients=80 --each", "a line for each client, not quantiles over clients"),
        ("demo.yaml --picture clients.svg", "a plot of clients by classes"),
    ]
    made = command_parser("corpora", "Statistics of an experiment's corpus, by client, and its problems.", examples)
    add_experiment(made)
    add_data(made)
    made.add_argument("--picture", type=Path, metavar="FILE", help="write an SVG of clients by classes to FILE")
    made.add_argument("--each", action="store_true", help="a line for each client, also of more than 50")
    add_plugin(made)
    return made


def main(words: Sequence[str] | None) -> int:
    """Run the command, and return its exit status.

    Raises:
        UserError: The experiment, its corpus or the file of the picture cannot be used.
    """
    arguments = parser().parse_intermixed_args(words)
    from fedtext.config.files import load
    from fedtext.corpora.statistics import render
    from fedtext.corpora.stored import StoredClients
    from fedtext.errors import UserError
    from fedtext.runtime.folders import folder_of

    _, experiment = load(arguments.experiment, arguments.overrides, more=arguments.plugin)
    if arguments.picture and experiment.corpus.language:
        raise UserError("--picture shows the classes of texts, and those of a language model have none: leave it out")
    data = None if arguments.data is None else folder_of(arguments.data, "--data")
    corpus, lacking = _prepared(experiment, data)
    if arguments.each and isinstance(corpus.clients, StoredClients):
        raise UserError(
            "--each: of a corpus on disk there are quantiles alone: add corpus.storage=memory, or leave it out"
        )
    print("\n".join(filter(None, (render(corpus, arguments.each), lacking))))
    if arguments.picture:
        from dashboards.partition import picture

        try:
            arguments.picture.write_text(picture(corpus), encoding="utf-8")
        except OSError as error:
            raise UserError(f"--picture: {arguments.picture} cannot be written ({error.strerror})") from error
    return 0


def _prepared(experiment: "Experiment", data: Path | None) -> tuple["Corpus", str]:
    """Return the corpus, and what is wrong with the file of its word vectors; empty if nothing is, or there is none."""
    from fedtext.corpora.prepare import prepare
    from fedtext.errors import UserError
    from fedtext.models.inits import FileInit

    given = experiment.model.embedding
    plain = given.model_copy(update={"init": type(given)().init})  # vectors that are trained change no statistics
    prepared = partial(prepare, audited=False, own=experiment.own_vocabularies)
    try:
        chosen = given if isinstance(given.init, FileInit) else plain
        return prepared(experiment.corpus, chosen, experiment.seed, data), ""
    except UserError as error:  # if it is about the corpus, this ends in the same one
        return prepared(experiment.corpus, plain, experiment.seed, data), f"word vectors: {error}"


if __name__ == "__main__":
    sys.exit(guarded(main)())
