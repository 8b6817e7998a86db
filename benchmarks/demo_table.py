"""Accuracy on the built-in corpus, mean and standard deviation over seeds: the table in docs/explanation/results.md.

Usage: python benchmarks/demo_table.py [SEEDS] (from the repository's folder; default 5)
"""

import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import fedtext

METHODS = {
    "local_only": "local_only",
    "fedavg": "fedavg",
    "pooled": "pooled",
    "kteps, no transfer, no diversity": {"name": "kteps", "lambda1": 0.0, "lambda2": 0.0},
    "kteps, lambda1 = lambda2 = 0.1": {"name": "kteps", "lambda1": 0.1, "lambda2": 0.1},
}


def last(method: object, seed: int) -> dict[str, float]:
    """The metrics of the last round of one run."""
    changes = f"method={json.dumps(method)}", f"seed={seed}", "evaluation.every=100", "space={}", "baselines=[]"
    return fedtext.run("demo.yaml", *changes).metrics


def main() -> None:
    seeds = range(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
    print("| method | Ag | Ap |\n| --- | --- | --- |")
    for label, method in METHODS.items():
        found = [last(method, seed) for seed in seeds]
        cells = []
        for metric in ("Ag", "Ap"):
            values = [100 * metrics[metric] for metrics in found]
            cells.append(f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}")
        print(f"| {label} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
