"""``python -m tests.mutants [--module cohort] [--sample 200] [--seed 0]``: what the tests do not notice.

First the faults of ``faults.py``, then mutants of the modules of ``modules.py``, all or a sample of them. Results are
kept in .mutants.json, and a mutant is run again only if its module or its tests have changed. Exit status 1 if a fault
survives, or more than 3 % of the mutants do without a reason in ``equivalents/``.
"""

import argparse
import sys
from pathlib import Path

from tests.mutants.equivalents import reason
from tests.mutants.faults import FAULTS
from tests.mutants.modules import MODULES, path
from tests.mutants.operators import Mutant, mutants
from tests.mutants.runner import CAUGHT, TIMED_OUT, read_cache, run, sampled

ALLOWED = 0.03


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="what the tests do not notice")
    parser.add_argument("--module", action="append", choices=sorted(MODULES), help="of these alone; again for more")
    parser.add_argument("--sample", type=int, default=0, help="so many mutants, drawn from --seed; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="name the mutants and run none")
    arguments = parser.parse_args()
    modules = arguments.module or list(MODULES)
    try:
        faults = [fault.mutant() for fault in FAULTS if not arguments.module or fault.module in modules]
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    made = [mutant for module in modules for mutant in mutants(path(module), Path(path(module)).read_text())]
    chosen = list(sampled(made, arguments.sample, arguments.seed)) if arguments.sample else made
    if arguments.list:
        print(*(mutant.name for mutant in [*faults, *chosen]), sep="\n")
        return 0
    print(f"{len(faults)} faults, {len(chosen)} of {len(made)} mutants of {len(modules)} modules", flush=True)
    try:
        results = run([*faults, *chosen], read_cache(), arguments.processes, announce)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 2
    return report(results, faults, chosen)


def announce(mutant: Mutant, result: str) -> None:
    if result not in (CAUGHT, TIMED_OUT):
        print(f"{result}: {mutant.name}", flush=True)


def report(results: dict[Mutant, str], faults: list[Mutant], chosen: list[Mutant]) -> int:
    """Print the counts. Returns the exit status."""
    missed = [mutant for mutant in faults if results[mutant] not in (CAUGHT, TIMED_OUT)]
    survivors = [mutant for mutant in chosen if results[mutant] not in (CAUGHT, TIMED_OUT)]
    explained = [mutant for mutant in survivors if reason(mutant.module, mutant.before, mutant.after)]
    open_ = len(survivors) - len(explained)
    share = open_ / max(1, len(chosen))
    print(f"faults: {len(faults)}, caught {len(faults) - len(missed)}")
    print(
        f"mutants: {len(chosen)}, caught {len(chosen) - len(survivors)}, survived {len(survivors)}, of these explained "
        f"{len(explained)}; unexplained {open_} ({share:.1%}, at most {ALLOWED:.0%} allowed)"
    )
    for mutant in chosen:
        if mutant not in survivors and reason(mutant.module, mutant.before, mutant.after):
            print(f"explained, and caught all the same: {mutant.name}")
    return int(bool(missed) or share > ALLOWED)


if __name__ == "__main__":
    sys.exit(main())
