"""``python -m platform.run FILE``: one run of an experiment, without its space, baselines and seeds."""

import sys
from collections.abc import Sequence
from platform import _words  # type: ignore[attr-defined]
from platform._words import RESUME, guarded, keep_ray_here, launch  # type: ignore[import-not-found]

from fedtext.commands import Parser, local
from fedtext.commands.parser import Refused

DESCRIPTION = """\
One run of an experiment on Ray, recorded in MLflow; its space, baselines and seeds are left aside. With --no-ray the
run is in this process, with the library alone: run --no-ray --help shows its options.
"""


def parser() -> Parser:
    """Return the parser of the command."""
    examples = [
        ("demo.yaml", ""),
        ("demo.yaml method=fedavg", "another method"),
        ("kteps.yaml --data FOLDER training.rounds=3", "on a corpus in FOLDER, shorter"),
        ("--resume kteps-fdu-20260101-120000", "go on where it stopped"),
        ("demo.yaml --no-ray --out first", "without Ray and MLflow"),
    ]
    made = _words.parser("run", DESCRIPTION, examples)
    made.add_argument("--no-ray", action="store_true", help="run in this process, without Ray and MLflow")
    for option in ("--device", "--out"):
        made.add_argument(option, action=Refused, nargs=1, why="is for runs with --no-ray: give that too")
    return made


def main(words: Sequence[str] | None) -> int:
    """Run the command, and return its exit status."""
    given = list(sys.argv[1:] if words is None else words)
    if "--no-ray" in given:
        return local.main(given)
    return launch(parser().parse_intermixed_args(given), "run")


if __name__ == "__main__":
    keep_ray_here()
    sys.exit(guarded(main, RESUME)())
