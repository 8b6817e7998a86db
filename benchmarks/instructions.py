"""Instructions of the hot loop, counted by valgrind's callgrind: a figure that other work on the machine does not move.

    python -m benchmarks.instructions             counts, beside those kept in benchmarks/instructions.json
    python -m benchmarks.instructions --keep      and keeps them

A change that adds more than --limit percent to a workload leaves with status 1. Counts depend on the processor
(libraries choose their kernels by it) and on torch, so they are kept for each pair of these by itself: on another
nothing is compared, and that is said. Counting is switched on after importing and warming up.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

KEPT = Path(__file__).with_suffix(".json")
# Workload of local_loop.py, clients, and batches counted, after as many that warm up. W4 is left out: its products are
# the library's own, and valgrind takes half an hour for one batch of them.
CASES = {"W1 one client": ("W1", 1, 3), "W1 stack 4": ("W1", 4, 1)}
VALGRIND = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--callgrind-out-file=/dev/null"]


def train(name: str, clients: int, steps: int) -> None:
    """What is counted: runs in a process of its own, and waits for a line before the batches that count and after."""
    import torch

    from benchmarks import local_loop, synthetic

    torch.set_num_threads(1)
    made = [synthetic.client(number, 64, local_loop.VOCABULARY) for number in range(clients)]
    run = local_loop.engine(local_loop.TASKS[name], "cells", made)
    for _ in range(2):
        run(steps)
        print("ready", flush=True)
        sys.stdin.readline()


def count(name: str, clients: int, steps: int) -> int:
    """Instructions of so many batches."""
    code = f"from benchmarks.instructions import train; train({name!r}, {clients}, {steps})"
    fixed = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONMALLOC": "malloc"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [*VALGRIND, sys.executable, "-c", code]
    with subprocess.Popen(command, env=os.environ | fixed, text=True, **pipes) as process:  # type: ignore[call-overload]
        for switch in ("on", "off"):
            if process.stdout.readline().strip() != "ready":
                raise SystemExit(f"error: valgrind could not run the loop: {process.stderr.read().strip()[-300:]}")
            control = ["callgrind_control", "-i", switch, str(process.pid)]
            subprocess.run(control, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            process.stdin.write("\n")
            process.stdin.flush()
        found = re.search(r"Collected : (\d+)", process.communicate()[1])
    assert found, "callgrind ends with what it collected"
    return int(found[1])


def machine() -> dict[str, str]:
    from benchmarks import measure

    return {key: str(measure.machine()[key]) for key in ("cpu", "torch")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="keep these counts as the ones to compare with")
    parser.add_argument("--json", type=Path, help="write the counts here as well")
    parser.add_argument("--limit", type=float, default=5.0, metavar="PERCENT")
    arguments = parser.parse_args()
    if not shutil.which("valgrind"):
        print("error: valgrind is not installed", file=sys.stderr)
        return 2
    here, kept = machine(), json.loads(KEPT.read_text()) if KEPT.exists() else []
    known = next((each["instructions"] for each in kept if each["machine"] == here), {})
    found, worse = {}, False
    print("| workload | million instructions per client and batch | kept | change |\n| --- | --- | --- | --- |")
    for label, (name, clients, steps) in CASES.items():
        each = count(name, clients, steps) / steps / clients / 1e6
        found[label] = round(each, 2)
        before = known.get(label)
        change = f"{100 * (each / before - 1):+.1f} %" if before else ""
        worse |= bool(before) and each > before * (1 + arguments.limit / 100)
        print(f"| {label} | {each:.1f} | {before or ''} | {change} |", flush=True)
    if not known:
        print(f"not compared: nothing is kept of {here['cpu']} with torch {here['torch']}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": here, "figures": found}, indent=1))
    if arguments.keep:
        others = [each for each in kept if each["machine"] != here]
        KEPT.write_text(json.dumps([*others, {"machine": here, "instructions": found}], indent=1) + "\n")
    return int(worse)


if __name__ == "__main__":
    sys.exit(main())
