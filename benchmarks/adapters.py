"""LoRA on a transformer on a CPU, beside a plain loop with transformers and peft, as paired CPU time on one thread.

W6 has 16 texts as long as SST-2's phrases (about 12 pieces), W6A as long as AG News's cut at 48 (w6.py): 6 layers of
384 as MiniLM's, with random weights. W7 has 16 sentences of about 20 tokens and six layers of SmolLM2-135M's (w7.py).
LoRA of rank 8 on queries and values, AdamW. ``plain`` pads each batch to its longest text; it needs peft. ms are per
batch; loops alternate, with ``--steps`` batches in each repetition, and ratios are of CPU time, within each repetition.
"""

import argparse
import os
import sys
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import in_turns, paired, spread, table, write
from fedtext.runtime.environment import ENVIRONMENT

if __name__ == "__main__" and os.environ.get("OMP_NUM_THREADS") != "1":  # read by libraries when they are loaded
    os.execve(sys.executable, [sys.executable, "-m", "benchmarks.adapters", *sys.argv[1:]], os.environ | ENVIRONMENT)

import torch

from benchmarks import w6, w7
from benchmarks.local_loop import Run
from fedtext.runtime.compiled import compile_problem
from fedtext.runtime.threads import one_torch_thread

SHAPES: dict[str, w6.Shape | w7.Shape] = {
    "W6": w6.SHAPES["W6"],
    "W6A": w6.Shape(6, 384, 12, 16, 45, 48),
    "W7": w7.SHAPE,
}
CPU, PRECISIONS = torch.device("cpu"), ("float32", "bfloat16")


def variants(shape: w6.Shape | w7.Shape) -> dict[str, tuple[Run, int]]:
    """Return a workload's loops."""
    if isinstance(shape, w7.Shape):
        sentences = shape.client(w7.SENTENCES)
        plain, ours = partial(w7.plain, shape, sentences), partial(w7.ours, shape, sentences)
    else:
        texts = shape.client(w6.TEXTS)
        plain, ours = partial(w6.plain, shape, texts, CPU), partial(w6.ours, shape, texts, CPU)
    engines = ("reference",) if compile_problem() else ("reference", "native")
    found: dict[str, tuple[Run, int]] = {}
    for precision in PRECISIONS:
        if find_spec("peft"):
            found[f"plain, {precision}"] = plain(precision), 1
        for engine in engines:
            found[f"{engine}, {precision}"] = ours(precision, engine), 1
    return found


def rows_of(name: str, shape: w6.Shape | w7.Shape, steps: int, turns: int) -> list[dict[str, Any]]:
    """Measure a workload. Returns a row for each loop; the first one is what the others are compared with."""
    found = in_turns(variants(shape), steps, turns)
    first = next(iter(found))
    return [
        {
            "workload": name,
            "loop": loop,
            "CPU ms": spread(times.cpu),
            "wall ms": median(times.wall),
            f"times {first}": paired(found[first].cpu, times.cpu),
        }
        for loop, times in found.items()
    ]


@one_torch_thread()
def main(words: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=[], choices=[*SHAPES, []], metavar="WORKLOAD")
    parser.add_argument("--steps", type=int, default=4, help="batches in a repetition")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--dropout", type=float, default=0.1, help="all dropout rates of the transformer")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    arguments = parser.parse_args(words)
    rows = []
    for name in arguments.workloads or SHAPES:
        shape = replace(SHAPES[name], dropout=arguments.dropout)
        found = rows_of(name, shape, arguments.steps, arguments.turns)
        print(table(found), flush=True)
        rows += found
    write(arguments.json, rows)
    return rows


if __name__ == "__main__":
    main()
