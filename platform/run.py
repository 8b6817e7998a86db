"""``python -m platform.run FILE``: one run of an experiment, without its space, baselines and seeds."""

import sys
from collections.abc import Sequence
from platform._words import RESUME, guarded, launch, parser  # type: ignore[import-not-found]

EXAMPLE = """\
  python -m platform.run demo.yaml
  python -m platform.run demo.yaml method=fedavg
  python -m platform.run kteps.yaml --data FOLDER training.rounds=3
  python -m platform.run --resume kteps-fdu-20260101-120000
"""


def main(words: Sequence[str] | None) -> int:
    """Run the command, and return its exit status."""
    return launch(parser("run", __doc__, EXAMPLE).parse_intermixed_args(words), "run")


if __name__ == "__main__":
    sys.exit(guarded(main, RESUME)())
