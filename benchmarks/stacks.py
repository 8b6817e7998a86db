"""CPU time of clients trained side by side: milliseconds a client, by number of clients in a stack.

Rounds of 512 clients with small models in one process, without Ray; sizes take turns, and ratios are of rounds that
follow each other. ``training.stack: auto`` is chosen by it. ``python -m benchmarks.stacks``
"""

import argparse
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measure import paired, spread, table, write
from fedtext.runtime.environment import ENVIRONMENT

if __name__ == "__main__" and os.environ.get("OMP_NUM_THREADS") != "1":  # read by libraries when they are loaded
    os.execve(sys.executable, [sys.executable, "-m", "benchmarks.stacks", *sys.argv[1:]], os.environ | ENVIRONMENT)

import numpy as np

from benchmarks import synthetic
from fedtext.client.local_fleet import LocalFleet
from fedtext.corpora.types import Corpus
from fedtext.server.start import start

CLIENTS = 512
SIZES = [1, 8, 16, 32]
# Texts of a client, words of a text at most, and whether clients have unequal numbers of texts.
SHAPES = [(1, 10, False), (8, 10, False), (8, 100, False), (8, 10, True), (32, 100, True)]


def corpus(texts: int, longest: int, unequal: bool) -> Corpus:
    """Make the clients. If unequal, the logarithms of their numbers of texts are normal, with deviation 1."""
    drawn_K = np.random.default_rng(1).lognormal(np.log(texts), 1, CLIENTS)
    counts = np.clip(drawn_K.astype(int), 1, 8 * texts).tolist() if unequal else [texts] * CLIENTS
    clients = [synthetic.client(number, count, 200, longest) for number, count in enumerate(counts)]
    words = ["<pad>", "<unk>", *[f"w{number}" for number in range(synthetic.RESERVED, 200)]]
    return Corpus("synthetic", 2, words, clients, [], f"synthetic-{texts}-{longest}-{unequal}", None)


def measured(method: str, hidden: int, shape: tuple[int, int, bool], rounds: int) -> dict[str, Any]:
    """Return a row: CPU milliseconds a client for each size, and the ratio of the sizes 8 and 32."""
    model = {"name": "gru", "embedding": {"dim": hidden}, "hidden": hidden, "head": {"hidden": hidden}}
    held, times = corpus(*shape), dict[int, list[float]]()
    runs = {}
    for size in SIZES:
        made = synthetic.experiment(model, rounds + 2, size, method)
        runs[size] = start(made, held, partial(LocalFleet, made, held)).run()
        next(runs[size])
    for _ in range(rounds):
        for size, run in runs.items():
            began = time.process_time()
            next(run)
            times.setdefault(size, []).append(1000 * (time.process_time() - began) / CLIENTS)
    texts, longest, unequal = shape
    row: dict[str, Any] = {"method": method, "hidden": hidden, "texts": f"{'about ' * unequal}{texts} of {longest}"}
    row |= {f"stacks of {size}" if size > 1 else "alone": spread(found) for size, found in times.items()}
    return row | {"8 / 32": paired(times[8], times[32])}


def main(words: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each size after the first (default: 5)")
    parser.add_argument("--hidden", type=int, nargs="+", default=[4, 16], help="hidden units (default: 4 16)")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    asked = parser.parse_args(words)
    rows = []
    for method in ("fedavg", "kteps"):
        for hidden in asked.hidden:
            rows += [measured(method, hidden, shape, asked.rounds) for shape in SHAPES]
    print(table(rows))
    write(asked.json, {"stacks": rows})
    return rows


if __name__ == "__main__":
    main()
