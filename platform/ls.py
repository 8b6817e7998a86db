"""``python -m platform.ls [RUN]``: the experiments that come with fedtext, and runs with their state."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from platform._words import guarded  # type: ignore[import-not-found]

from fedtext.commands import Parser
from fedtext.commands.parser import command_parser
from fedtext.errors import UserError, spelled
from fedtext.runtime.paths import is_uri, local_path
from fedtext.runtime.remote import Remote

DESCRIPTION = """\
The experiments that come with fedtext, a line each, and the runs in runs/, the latest first: experiment, methods,
state, trials that have ended, completed rounds, best value of the metric by which trials are sorted, and last change.
"""
NOTES = """\
States: running (a command on this machine works on it), finished, interrupted (trials have not ended, and no command
works on it: --resume RUN continues it), failed (all trials have ended, and some failed: RUN shows why).
"""


def parser() -> Parser:
    """Return the parser of the command."""
    examples = [
        ("", "experiments and runs"),
        ("demo-20260101-120000", "the trials of a run, and why some failed"),
        ("--json", "everything, for programs"),
    ]
    made = command_parser("ls", DESCRIPTION, examples, NOTES)
    made.add_argument("run", nargs="?", metavar="RUN", help="name of a run, or its folder: list its trials")
    made.add_argument("--storage", metavar="FOLDER", help="folder of runs (else runs/)")
    made.add_argument("--json", action="store_true", help="print JSON")
    return made


def run_names() -> list[str]:
    """Return the names of the runs in runs/."""
    from sweeps.listing import names
    from sweeps.places import STORAGE, home

    return names(home() / STORAGE)


def _local(given: str, what: str) -> Path:
    """Return the path of a folder that is given as a path or by ``file://``. Raises UserError for another URI, and for
    none."""
    if not is_uri(given):
        return local_path(given, what)
    remote = Remote(given, what)
    if remote.local is None:
        raise UserError(
            f"{what}: {remote} is on an object store, and folders of this machine are listed: {spelled('report')} URI "
            "reads a run there, and --resume URI continues it"
        )
    return remote.local


def main(words: Sequence[str] | None) -> int:
    """Run the command, and return its exit status.

    Raises:
        UserError: There is no such folder or run.
    """
    arguments = parser().parse_args(words)
    from fedtext.config.spaces import SPACES
    from sweeps import listing, listing_table
    from sweeps.places import PLAN, STORAGE, candidates, home

    storage = home() / STORAGE if arguments.storage is None else _local(arguments.storage, "--storage")
    if arguments.storage and not storage.is_dir():
        raise UserError(f"--storage: there is no folder {storage}")
    if arguments.run is not None:
        given = _local(arguments.run, "ls")
        places = candidates(storage, str(given))
        folder = next((place for place in places if (place / PLAN).is_file()), storage / given)
        found, shipped = [listing.run(folder)], []
    else:
        found, shipped = listing.runs(storage), listing.experiments(SPACES)
    if arguments.json:
        print(json.dumps(listing_table.as_json(shipped, found), indent=2))
    elif arguments.run:
        listing_table.print_run(found[0], sys.stdout)
    else:
        listing_table.print_experiments(shipped, sys.stdout)
        print(f"\n{storage}: {len(found)} run{'s' * (len(found) != 1)}" if found else f"\nno runs in {storage}")
        listing_table.print_runs(found, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(guarded(main)())
