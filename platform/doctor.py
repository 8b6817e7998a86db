"""``python -m platform.doctor``: what is installed and reachable, what would fail, and what to do about it."""

import json
import sys
from collections.abc import Sequence
from contextlib import closing
from platform._words import add_cluster, guarded  # type: ignore[import-not-found]

from fedtext.commands import Parser
from fedtext.commands.parser import add_experiment, add_plugin, command_parser
from sweeps.doctor import Asked, Finding, examine, exit_status

NOTES = """\
Each line is ok, a warning (commands work, but slower, or use less than there is) or a problem (a command would fail),
with what to do about it. No Ray is started, and probes are removed again. Compiled libraries and a corpus that is read
from the hub stay in the cache. With a problem the exit status is 2.
"""


def parser() -> Parser:
    """Return the parser of the command."""
    examples = [
        ("", "this machine"),
        ("kteps.yaml --data FOLDER", "and what would fail in a sweep of kteps.yaml"),
        ("--address auto", "and the nodes of the cluster that runs here"),
        ("--json", "for a script"),
    ]
    about = "Check what is installed and reachable, and what would fail before anything is started."
    made = command_parser("doctor", about, examples, NOTES)
    add_experiment(made, "none: the machine alone")
    add_cluster(made)
    made.add_argument("--json", action="store_true", help="print a list of findings as JSON instead of lines")
    add_plugin(made)
    return made


def main(words: Sequence[str] | None) -> int:
    """Run the command, and return its exit status: 2 if something would fail, else 0."""
    given = parser().parse_intermixed_args(words)
    asked = Asked(
        given.experiment, given.overrides, given.plugin, given.data, given.address, given.num_cpus, given.num_gpus
    )
    found: list[Finding] = []
    with closing(examine(asked)) as findings:
        for finding in findings:
            if not given.json:
                if not found or found[-1].section != finding.section:
                    print(finding.section)
                print(finding.line, flush=True)
            found.append(finding)
    if given.json:
        print(json.dumps([finding.to_json() for finding in found], indent=2))
    else:
        print(_summary(found))
    return exit_status(found)


def _summary(found: Sequence[Finding]) -> str:
    counts = {status: sum(one.status == status for one in found) for status in ("problem", "warning")}
    named = [f"{count} {status}{'s' * (count != 1)}" for status, count in counts.items() if count]
    return " and ".join(named) if named else "no problems"


if __name__ == "__main__":
    sys.exit(guarded(main)())
