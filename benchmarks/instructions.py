"""Instructions of the training loop, counted by valgrind's callgrind: other load on the machine does not change them.

    python -m benchmarks.instructions             counts, beside those stored in benchmarks/instructions.json
    python -m benchmarks.instructions --keep      also stores them

The command exits with status 1 if a workload needs over --limit percent more. Counts depend on the processor (libraries
choose their kernels by it) and on torch. They are stored for each pair of these; for another pair the command says that
nothing is compared. Counting begins after imports and warm-up.
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
# Workload of local_loop.py, clients, and counted batches, after as many for warm-up. W4 is left out: most of it is
# torch's
# products, and valgrind takes half an hour for one batch.
CASES = {"W1 one client": ("W1", 1, 3), "W1 stack 4": ("W1", 4, 1)}
VALGRIND = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--callgrind-out-file=/dev/null"]


def train(name: str, clients: int, steps: int) -> None:
    """Train in a process of its own. Waits for a line of input before and after the counted batches."""
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
    """Count the instructions of ``steps`` batches."""
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
    parser.add_argument("--keep", action="store_true", help="store these counts for comparison")
    parser.add_argument("--json", type=Path, help="also write the counts to this file")
    parser.add_argument("--limit", type=float, default=5.0, metavar="PERCENT")
    arguments = parser.parse_args()
    if not shutil.which("valgrind"):
        print("error: valgrind is not installed", file=sys.stderr)
        return 2
    here, kept = machine(), json.loads(KEPT.read_text()) if KEPT.exists() else []
    known: dict[str, float] = next((each["instructions"] for each in kept if each["machine"] == here), {})
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
        print(f"not compared: no counts are stored for {here['cpu']} with torch {here['torch']}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": here, "figures": found}, indent=1))
    if arguments.keep:
        others = [each for each in kept if each["machine"] != here]
        KEPT.write_text(json.dumps([*others, {"machine": here, "instructions": found}], indent=1) + "\n")
    return int(worse)


if __name__ == "__main__":
    sys.exit(main())
