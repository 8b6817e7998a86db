"""``python -m platform.reproduce PAPER TABLE``: run a table of a paper, and print it beside the paper's values."""

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from platform._words import add_cluster, guarded, keep_ray_here, place  # type: ignore[import-not-found]

from fedtext.commands import Parser
from fedtext.commands.parser import at_least, command_parser

DESCRIPTION = "Run a table of a paper, and print it beside the paper's values."
NOTES = """\
Each row has one trial for each seed, kept under runs/ and shared by all tables; an interrupted command continues where
it was. Results are printed, written to docs/reproductions/tables/ as Markdown, CSV and a picture, and logged to MLflow:
mean and standard deviation over seeds, paired t tests against a reference row, the pairs of rows whose order is not the
paper's, and the rows that were not run. A table of the same settings is extended: its rows are not run again, nor
the seeds that it has of a row (--seeds 3 after --seeds 1 runs two), and rows of trials that have finished are added to
it also where others failed or were interrupted.
"""


AGAIN = """\
write rows and seeds anew that the table has already: from their trials under runs/ as they are, and those that are gone
are trained; remove a trial's folder to train it again"""


def _share(word: str) -> float:
    with suppress(ValueError):
        if 0 < (share := float(word)) <= 1:
            return share
    raise argparse.ArgumentTypeError(f"{word} is no scale: give a number above 0 and at most 1")


def parser() -> Parser:
    """Return the parser of the command."""
    examples = [
        ("kteps 2 --data FOLDER", "one seed, as long as in the paper"),
        ("kteps 2 3 --data FOLDER --seeds 5", "two tables from the same runs"),
        ("kteps 7 --data FOLDER --scale 0.2", "a fifth of the rounds and of the texts"),
        ("kteps 2 --data FOLDER --methods FedAvg KTEPS", "some of its systems"),
        ('fedatt IV --data FOLDER --rows "* small *"', "some of its rows"),
        ("kteps 2 --scene IYY --data FOLDER", "another of the paper's data sets"),
        ("fedatt II fig3 --data FOLDER", "a plot of the paper, as a table"),
        ("kteps 2 3 --finished", "the rows that have finished so far"),
        ("--render docs/reproductions/tables/*.csv", "render earlier results again"),
    ]
    made = command_parser("reproduce", DESCRIPTION, examples, NOTES, trains=True)
    made.add_argument("paper", nargs="?", help="kteps, rrldp, fedatt or fedevocab")
    made.add_argument("tables", nargs="*", metavar="TABLE", help="numbers of its tables; fig3: its plots")
    made.add_argument("--scene", default=None, help="the paper's data set (else the first of the tables)")
    made.add_argument(
        "--seeds", type=at_least(1, "seeds"), default=1, metavar="N", help="repetitions, with seeds 0 to N - 1"
    )
    made.add_argument("--scale", type=_share, default=1.0, help="share of the paper's rounds and of the train texts")
    made.add_argument(
        "--methods", nargs="+", default=(), metavar="NAME", help="only these systems, in the paper's names"
    )
    made.add_argument("--rows", nargs="+", default=(), metavar="NAME", help="only these rows; * stands for anything")
    made.add_argument("--set", nargs="+", default=(), metavar="key=value", help="changes to every experiment")
    made.add_argument("--out", metavar="FOLDER", help="folder of the tables (else docs/reproductions/tables)")
    made.add_argument(
        "--finished", action="store_true", help="run nothing: write the rows of trials that have finished"
    )
    made.add_argument("--again", action="store_true", help=AGAIN)
    made.add_argument(
        "--render", nargs="+", type=Path, metavar="CSV", help="run nothing: render the tables of these CSVs again"
    )
    add_cluster(made)
    return made


def main(words: Sequence[str] | None) -> int:
    """Run the command, and return its exit status."""
    made = parser()
    arguments = made.parse_intermixed_args(words)
    if bool(arguments.tables) == bool(arguments.render):
        made.error("name a paper and its tables, or --render and CSV files")
    from fedtext.runtime.paths import local_path
    from sweeps.asked import Asked
    from sweeps.kept import render
    from sweeps.reproduce import reproduce

    if arguments.render:
        print("\n".join(os.path.relpath(file) for file in render(arguments.render)))
        return 0
    names = ("paper", "tables", "scene", "seeds", "scale", "methods", "rows", "out", "data", "finished", "again")
    given = {name: getattr(arguments, name) for name in names}
    given["out"] = None if arguments.out is None else local_path(arguments.out, "--out")
    return reproduce(Asked(**given, changes=arguments.set, cluster=place(arguments)))


if __name__ == "__main__":
    keep_ray_here()
    sys.exit(guarded(main, "the same command continues it")())
