"""``python -m platform.run FILE``: one run of an experiment; its space and baselines are left aside."""

import sys
from collections.abc import Sequence
from platform._words import guarded, parser  # type: ignore[import-not-found]

EXAMPLE = """\
  python -m platform.run demo.yaml
  python -m platform.run demo.yaml method=fedavg
  python -m platform.run kteps.yaml --data FOLDER training.rounds=3
"""


def main(words: Sequence[str] | None) -> int:
    arguments = parser("run", __doc__, EXAMPLE).parse_intermixed_args(words)
    from platform._launch import launch  # torch and ray take seconds to import; --help need not wait for them

    return launch(arguments, sweep=False)


if __name__ == "__main__":
    sys.exit(guarded(main)())
