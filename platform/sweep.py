"""``python -m platform.sweep FILE``: every case of an experiment's space, and its baselines, as trials of one sweep."""

import sys
from collections.abc import Sequence
from platform._words import RESUME, guarded, launch, parser  # type: ignore[import-not-found]

EXAMPLE = """\
  python -m platform.sweep demo.yaml                                      the quick start
  python -m platform.sweep kteps.yaml --data FOLDER                       on a corpus that lies in FOLDER
  python -m platform.sweep kteps.yaml --data FOLDER training.rounds=10    shorter
  python -m platform.sweep --resume kteps-fdu-20260101-120000             go on where it stopped
  ray job submit -- python -m platform.sweep kteps.yaml                   on a Ray cluster
"""


def main(words: Sequence[str] | None) -> int:
    """Run the command, and return its exit status."""
    return launch(parser("sweep", __doc__, EXAMPLE).parse_intermixed_args(words), "sweep")


if __name__ == "__main__":
    sys.exit(guarded(main, RESUME)())
