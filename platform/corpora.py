"""``python -m platform.corpora FILE``: statistics of an experiment's corpus, by client, and its problems."""

import sys
from collections.abc import Sequence
from pathlib import Path
from platform._words import guarded

from fedtext.commands import Parser, add_plugin


def main(words: Sequence[str] | None) -> int:
    """Run the command, and return its exit status.

    Raises:
        UserError: The experiment, its corpus or the file of the picture cannot be used.
    """
    parser = Parser(prog="python -m platform.corpora", description=__doc__)
    parser.add_argument("experiment", help="experiment file (YAML), here or in tune_spaces/")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="changes to the experiment")
    parser.add_argument(
        "--data", metavar="FOLDER", help="folder of corpora, or its URI (s3://BUCKET/FOLDER; else $FEDTEXT_DATA)"
    )
    parser.add_argument("--picture", type=Path, metavar="FILE", help="write an SVG of clients by classes to FILE")
    add_plugin(parser)
    arguments = parser.parse_intermixed_args(words)
    from fedtext.config.files import load
    from fedtext.corpora.prepare import prepare
    from fedtext.corpora.statistics import render
    from fedtext.errors import UserError
    from fedtext.runtime.folders import folder_of

    _, experiment = load(arguments.experiment, arguments.overrides, more=arguments.plugin)
    if arguments.picture and experiment.corpus.language:
        raise UserError("--picture shows the classes of texts, and those of a language model have none: leave it out")
    # Initial vectors, which may take minutes to train, do not change the statistics.
    embedding = experiment.model.embedding.model_copy(update={"init": type(experiment.model.embedding)().init})
    data = None if arguments.data is None else folder_of(arguments.data, "--data")
    corpus = prepare(experiment.corpus, embedding, experiment.seed, data, experiment.own_vocabularies)
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
