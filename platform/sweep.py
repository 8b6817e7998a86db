"""``python -m platform.sweep FILE``: every case of an experiment's space, and its baselines, as trials of one sweep."""

import sys
from collections.abc import Sequence
from platform import _words  # type: ignore[attr-defined]
from platform._words import RESUME, guarded, keep_ray_here, launch  # type: ignore[import-not-found]

from fedtext.commands import Parser
from fedtext.commands.parser import Refused
from fedtext.errors import spelled

DESCRIPTION = (
    "Every case of an experiment's space, and its baselines, as trials of one sweep on Ray, compared in MLflow."
)


def parser() -> Parser:
    """Return the parser of the command."""
    examples = [
        ("demo.yaml", "the quick start"),
        ("demo.yaml --dry-run", "check it, and show what would run"),
        ("kteps.yaml --data FOLDER", "on a corpus that lies in FOLDER"),
        ("kteps.yaml --data FOLDER training.rounds=10", "shorter"),
        ("--resume kteps-fdu-20260101-120000", "go on where it stopped"),
    ]
    submitted = ("ray job submit -- python -m platform.sweep kteps.yaml", "on a Ray cluster")
    made = _words.parser("sweep", DESCRIPTION, examples, [submitted])
    made.add_argument(
        "--no-ray",
        action=Refused,
        why=f"is for one run ({spelled('run')} FILE --no-ray KEY=VALUE ...): a sweep needs Ray, so leave it out",
    )
    return made


def main(words: Sequence[str] | None) -> int:
    """Run the command, and return its exit status."""
    return launch(parser().parse_intermixed_args(words), "sweep")


if __name__ == "__main__":
    keep_ray_here()
    sys.exit(guarded(main, RESUME)())
