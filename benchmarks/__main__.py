"""All benchmarks of this repository, one after the other: ``make bench``, or ``python -m benchmarks [--quick]``.

  local_loop       W1 to W4: the training loop against a plain torch loop, and against its floor
  gpu              the same on a GPU, and transformers, against a plain loop there (where there is one)
  adapters         adapters on a transformer, against a plain loop with peft
  one_card         rounds of actors that share a GPU, beside one process without Ray (where there is one)
  platform_cost    what Ray, the wire and the server add; scaling with clients, actors and model; transport
  stacks           what clients side by side save
  scale            the cost of a round as a law: registered clients, cohort, bytes; extrapolated
  population       registered clients that do not train: start, memory, rounds, checkpoints
  soak             a long run of many clients: whether seconds a round and memory grow
  canaries         epsilon measured over many small runs, and whether mistakes in the noise are found
  kills            runs that are killed again and again end with the bits of one that is not
  search           many trials with failures: their ranking, and what failures and platform cost
  startup          from typing the quick start to its first round
  instructions     instructions of the training loop, against stored ones (needs valgrind)

Each runs by itself too (``python -m benchmarks.local_loop --help``). Comparison with other frameworks: ``make
bench-peers``. Prints one table per part; --json writes all results into a folder, a file each.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import torch

NAMES = [
    "local_loop",
    "gpu",
    "adapters",
    "one_card",
    "platform_cost",
    "stacks",
    "scale",
    "population",
    "soak",
    "kills",
    "search",
    "startup",
    "instructions",
]
QUICK = {
    "local_loop": ["--turns", "3", "--steps", "5"],
    "gpu": ["--turns", "3", "--stacks", "16"],
    "adapters": ["--turns", "3", "--steps", "2"],
    "one_card": ["--actors", "0", "4", "--engines", "triton"],
    "platform_cost": ["--quick"],
    "stacks": ["--rounds", "1", "--hidden", "4"],
    "scale": ["--quick"],
    "population": ["--clients", "1000", "20000", "--rounds", "3"],
    "soak": ["--clients", "200", "--rounds", "20"],
    "canaries": ["--runs", "10"],
    "kills": ["--runs", "1", "--kills", "3", "--rounds", "12"],
    "search": ["--quick"],
    "startup": ["--runs", "1"],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions and smaller workloads")
    parser.add_argument("--json", type=Path, metavar="FOLDER")
    arguments = parser.parse_args()
    failed = 0
    for name in NAMES:
        print(f"\n## {name}\n", flush=True)
        if name in ("gpu", "one_card") and not torch.cuda.is_available():
            print("left out: torch finds no GPU here")
            continue
        if name == "instructions" and not shutil.which("valgrind"):
            print("left out: valgrind is not installed")
            continue
        words = QUICK.get(name, []) if arguments.quick else []
        if arguments.json:
            arguments.json.mkdir(parents=True, exist_ok=True)
            words = [*words, "--json", str(arguments.json / f"{name}.json")]
        failed |= subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *words], check=False).returncode
    return failed


if __name__ == "__main__":
    sys.exit(main())
