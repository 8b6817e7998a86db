"""The systems that are compared, and which of them run which workload."""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from fedtext.errors import UserError

from .workloads import FULL, QUICK, Workload

REFERENCE = "fedtext"


@dataclass(frozen=True)
class System:
    """A system that is measured.

    Attributes:
        side: The module that runs it.
        environment: Whose interpreter runs it; empty: this one.
        changes: Keys of fedtext's experiment that differ.
        default: Whether it runs unless others are named.
        exact: Whether its weights are those of the reference, but for rounding.
        alone: Whether it has one worker, however many are asked for.
        threads: Whether its workers are torch threads of one process.
    """

    side: str
    environment: str = ""
    changes: Mapping[str, str] = field(default_factory=dict)
    default: bool = True
    exact: bool = True
    alone: bool = False
    threads: bool = False


SYSTEMS = {
    "fedtext": System("fedtext"),
    "fedtext-local": System("local", alone=True),
    "fedtext-reference": System("fedtext", changes={"training.engine": "reference"}, default=False),
    "fedtext-bfloat16": System("fedtext", changes={"model.precision": "bfloat16"}, exact=False),
    "plain": System("plain", "flower", alone=True),
    "plain-threads": System("plain", "flower", threads=True),
    "flower": System("flower", "flower"),
    "pfl": System("pfl", "pfl"),
}


def chosen(arguments: argparse.Namespace) -> dict[Workload, list[str]]:
    """Return the workloads, each with the systems that run it.

    Raises:
        UserError: A workload has none of the systems, or needs a corpus, or --folder exists.
    """
    if arguments.folder and arguments.folder.exists():
        raise UserError(f"--folder: {arguments.folder} exists already; name a new one")
    if arguments.data and not arguments.data.is_dir():
        raise UserError(f"--data: there is no folder {arguments.data}: give that of the corpora")
    works: dict[Workload, list[str]] = {}
    for work in QUICK if arguments.quick else FULL:
        if work.name not in (arguments.workloads or [work.name]):
            continue
        if work.corpus and not arguments.data:
            if arguments.workloads:
                raise UserError(f"workload {work.name} has real texts: give the folder of {work.corpus} with --data")
            continue
        systems = arguments.systems or [name for name in work.systems if SYSTEMS[name].default]
        works[work] = [name for name in work.systems if name in systems]
    return checked(works, arguments)


def checked(works: dict[Workload, list[str]], arguments: argparse.Namespace) -> dict[Workload, list[str]]:
    """Return the workloads that have one of the systems, and say which have none.

    Raises:
        UserError: There are no workloads, or none has one of the systems.
    """
    without = [work for work, systems in works.items() if not systems]
    if len(without) == len(works):
        if not works:
            raise UserError(f"--quick has no workload {', '.join(arguments.workloads)}: leave out --quick")
        told = dict.fromkeys(f"{', '.join(work.systems)}" for work in without)
        raise UserError(
            f"--systems {' '.join(arguments.systems)}: none of the workloads that are chosen has one of them: name "
            f"{' or '.join(told)}, or other workloads"
        )
    for work in without:
        print(f"{work.name}: left out, since it has {', '.join(work.systems)} alone", file=sys.stderr, flush=True)
    return {work: systems for work, systems in works.items() if systems}
