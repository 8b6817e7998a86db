"""``python -m platform.report SWEEP``: the report of a run or sweep, made from its folder alone."""

import argparse
import os
import sys
from collections.abc import Sequence
from platform._words import guarded  # type: ignore[import-not-found]

from fedtext.commands import Parser

EXAMPLE = """\
examples:
  python -m platform.report demo-20260101-120000        a sweep in runs/, as --resume names it
  python -m platform.report elsewhere/runs/first        or by its folder

Writes SWEEP/report: tables/*.csv, *.tex (booktabs) and *.md with the metrics of each method (mean and deviation over
seeds, the best marked), paired differences from the best case, single clients, costs, and effects of the swept keys.
A sweep that has not ended, or with failed trials, is reported as far as it has come.
"""


def main(words: Sequence[str] | None) -> int:
    """Run the command, and return its exit status.

    Raises:
        UserError: There is no such run, or its report cannot be written.
    """
    parser = Parser(
        prog="python -m platform.report",
        description=__doc__,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sweep", metavar="SWEEP", help="name of a run or sweep in runs/, or its folder")
    arguments = parser.parse_args(words)
    from sweeps.report import report

    for file in report(arguments.sweep):
        print(os.path.relpath(file))
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main)())
