"""``python -m platform.report SWEEP``: the report of a run or sweep, made from its folder alone."""

import os
import sys
from collections.abc import Sequence
from platform._words import guarded  # type: ignore[import-not-found]

from fedtext.commands import Parser
from fedtext.commands.parser import command_parser

NOTES = """\
Writes SWEEP/report: report.html, one file that opens without a network, and tables/*.csv, *.tex (booktabs) and *.md.
They show the metrics of each method (mean and deviation over seeds, the best marked), paired differences from the best
case, trade-offs of utility, privacy and cost, learning curves, single clients, effects of the swept keys, guarantees.
A sweep that has not ended, or with failed trials, is reported as far as it has come.
"""


def parser() -> Parser:
    """Return the parser of the command."""
    examples = [
        ("demo-20260101-120000", "a sweep in runs/, as --resume names it"),
        ("elsewhere/runs/first", "or by its folder"),
    ]
    made = command_parser("report", "The report of a run or a sweep, made from its folder alone.", examples, NOTES)
    made.add_argument("sweep", metavar="SWEEP", help="name of a run or sweep in runs/, or its folder")
    return made


def main(words: Sequence[str] | None) -> int:
    """Run the command, and return its exit status.

    Raises:
        UserError: There is no such run, or its report cannot be written.
    """
    arguments = parser().parse_args(words)
    from sweeps.report import report

    page, *tables = report(arguments.sweep)
    print(f"{os.path.relpath(page)}, and {len(tables)} files of tables in {os.path.relpath(tables[0].parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main)())
