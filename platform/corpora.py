"""``python -m platform.corpora FILE``: statistics of an experiment's corpus, by client, and its problems."""

import sys
from collections.abc import Sequence
from pathlib import Path
from platform._words import guarded  # type: ignore[import-not-found]

from fedtext.commands import Parser
from fedtext.commands.parser import add_data, add_experiment, add_plugin, command_parser


def parser() -> Parser:
    """Return the parser of the command."""
    examples = [
        ("demo.yaml", ""),
        ("kteps.yaml --data FOLDER", "a corpus that lies in FOLDER"),
        ("own_texts.yaml corpus.path=reviews.csv", "a file of your own"),
        ("demo.yaml --picture clients.svg", "a plot of clients by classes"),
    ]
    made = command_parser("corpora", "Statistics of an experiment's corpus, by client, and its problems.", examples)
    add_experiment(made)
    add_data(made)
    made.add_argument("--picture", type=Path, metavar="FILE", help="write an SVG of clients by classes to FILE")
    add_plugin(made)
    return made


def main(words: Sequence[str] | None) -> int:
    """Run the command, and return its exit status.

    Raises:
        UserError: The experiment, its corpus or the file of the picture cannot be used.
    """
    arguments = parser().parse_intermixed_args(words)
    from fedtext.config.files import load
    from fedtext.corpora.prepare import prepare
    from fedtext.corpora.statistics import render
    from fedtext.errors import UserError
    from fedtext.models.inits import FileInit
    from fedtext.runtime.folders import folder_of

    _, experiment = load(arguments.experiment, arguments.overrides, more=arguments.plugin)
    if arguments.picture and experiment.corpus.language:
        raise UserError("--picture shows the classes of texts, and those of a language model have none: leave it out")
    embedding = experiment.model.embedding
    if not isinstance(embedding.init, FileInit):  # others, which may take minutes to train, change no statistics
        embedding = embedding.model_copy(update={"init": type(embedding)().init})
    data = None if arguments.data is None else folder_of(arguments.data, "--data")
    facts = experiment.corpus, embedding, experiment.seed, data, experiment.own_vocabularies
    corpus = prepare(*facts, audited=False)
    print(render(corpus))
    if arguments.picture:
        from dashboards.partition import picture

        try:
            arguments.picture.write_text(picture(corpus), encoding="utf-8")
        except OSError as error:
            raise UserError(f"--picture: {arguments.picture} cannot be written ({error.strerror})") from error
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main)())
