"""The local loop on a GPU: samples a second of every engine, alone and in stacks, beside a plain torch loop.

W1 to W5 are those of local_loop.py, on synthetic texts: W1 and W4 by ``reference``, ``cells`` and (up to 128 units)
``triton``, in stacks of up to 64 clients; W2 (whole local updates with randomised response, which the CPU draws), W3
and W5 for one client at a time, since their layers cannot be stacked. W6 and W6L are transformers with LoRA (w6.py).
``plain`` is local_loop.py's ``naive`` on the card.

Times are wall time, medians of repetitions, for one batch of one client (W2: one client). ``calls`` are torch's
operations in it, without views; those of a stack are divided by its clients. At some microseconds each they bound the
time from below. GFLOP are those of the products that ``cells`` makes, for every engine. GB are the bytes that torch's
operations read and write in the card's memory, each by itself (of embedding tables the rows that are looked up or
written), where these do all the work (``cells``, ``ours``). The card's peak rates are those of a product of two large
matrices in the loop's precision (float32 is without TF32), and of a copy of a large block of memory, read and written.
"""

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.measure import in_turns, paired, spread, table, write
from fedtext.runtime.environment import ENVIRONMENT

if __name__ == "__main__" and os.environ.get("OMP_NUM_THREADS") != "1":  # read by libraries when they are loaded
    os.execve(sys.executable, [sys.executable, "-m", "benchmarks.gpu", *sys.argv[1:]], os.environ | ENVIRONMENT)

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks import local_loop as loops
from benchmarks import synthetic, w2, w3, w6
from benchmarks.local_loop import LANGUAGE, TASKS, TEXTS, VOCABULARY, Run, engine, naive
from fedtext.errors import UserError, command_line
from fedtext.models.recurrent import KERNEL_WIDTH, RecurrentClassifier
from fedtext.runtime.devices import device_of
from fedtext.runtime.precision import products
from fedtext.runtime.threads import one_torch_thread

STACKS = (1, 4, 16, 64)
SHAPES, PRECISIONS = w6.SHAPES, w6.PRECISIONS
STEPS = loops.STEPS | {"W6": 8, "W6L": 4}
SAMPLES = loops.SAMPLES | {name: shape.batch for name, shape in SHAPES.items()}
Size = tuple[int, int]  # for the card's peak rates: rows of the matrices, MB of the copy
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")
LOOK_UPS = ("index_select", "gather", "embedding", "index")  # read as many rows as they return
PUT_BACKS = {"index_copy": 1, "index_fill": 1, "index_add": 2, "scatter_add": 2}  # what they do with a row: write, read


class Counted(TorchDispatchMode):
    """Count operations on a device, without views and allocations: their number, the FLOP of products, and the bytes
    that they read and write."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device, self.calls, self.flop, self.bytes = device, 0, 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        of, name = [returned.alias_info for returned in func._schema.returns], func.overloadpacket.__name__
        view = of and all(alias is not None and not alias.is_write for alias in of)
        if view or "empty" in name or not self._there(args, kwargs, found):
            return found
        self.calls += 1
        kind = name.rstrip("_")
        self.bytes += self._bytes(kind, args, kwargs, found)
        if kind in PRODUCTS:
            self.flop += 2 * found.numel() * args[-1].shape[-2]
        return found

    def _bytes(self, kind: str, args: Any, kwargs: Any, found: Any) -> int:
        if kind in LOOK_UPS:
            return self._size(args[1:]) + 2 * self._size(found)
        if kind in PUT_BACKS:
            index, rows = args[2], args[3:]
            moved = self._size(rows) or index.numel() * args[0][0].nbytes  # a number fills them
            return self._size(index) + self._size(rows) + PUT_BACKS[kind] * moved
        if kind in ("copy", "zero", "fill"):  # what was there is not read
            return self._size(args[1:]) + self._size(found)
        if kind.startswith("_fused"):  # an optimizer: it reads all tensors, and writes all but the gradients
            return 2 * self._size((args, kwargs)) - self._size(args[1])
        if kind.startswith("_foreach") and not self._there(found):
            return self._size(args) + self._size(args[0]) * (kind != "_foreach_copy")
        given = {name: value for name, value in (kwargs or {}).items() if name != "out"}
        return self._size((args, given)) + self._size(found)

    def _there(self, *tensors: Any) -> list[torch.Tensor]:
        leaves = tree_leaves(tensors)
        return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.device.type == self.device.type]

    def _size(self, tensors: Any) -> int:
        return sum(leaf.nbytes for leaf in self._there(tensors))


def card(device: torch.device, wait: Callable[[], None], size: Size = (8192, 1024)) -> dict[str, float]:
    """Measure GFLOP a second of a large product in each precision, and GB a second of a large copy."""
    rows, megabytes = size
    pairs = {name: torch.randn(2, rows, rows, device=device) for name in PRECISIONS}
    pairs["bfloat16"] = pairs["bfloat16"].bfloat16()
    source = torch.zeros(megabytes * 250_000, device=device)
    into = torch.empty_like(source)

    def product(pair: torch.Tensor) -> Run:
        left, right, out = pair[0], pair[1], torch.empty_like(pair[0])

        def run(steps: int) -> None:
            for _ in range(steps):
                torch.mm(left, right, out=out)

        return run

    def copied(steps: int) -> None:
        for _ in range(steps):
            into.copy_(source)

    runs: dict[str, tuple[Run, int]] = {
        name: (w6.with_precision(product(pair), name), 1) for name, pair in pairs.items()
    }
    runs["copy"] = (copied, 1)
    found = {name: spread(times.wall)["median"] for name, times in in_turns(runs, 5, 5, wait).items()}
    rates = {f"{name} GFLOP / s": 2e-6 * rows**3 / found[name] for name in pairs}
    return rates | {"GB / s": 2e-6 * source.nbytes / found["copy"]}


def variants(name: str, device: torch.device, stacks: tuple[int, ...]) -> dict[str, tuple[Run, int]]:
    """Return a workload's loops, with the number of clients that each trains at a time."""
    if name == "W2":
        return {"ours": (w2.ours(w2.corpus(None), str(device)), 1)}
    if name in SHAPES:
        return {kind: (run, 1) for kind, run in w6.variants(name, device).items()}
    if name in LANGUAGE:
        task = LANGUAGE[name]
        corpus = task.corpus(None)
        made: dict[str, Run] = {"plain": w3.naive(corpus, task=task, device=device)}
        made["reference"] = w3.ours(corpus, device=device, directions=None, task=task)
        made["cells"] = w3.ours(corpus, device=device, task=task)
        return {kind: (run, 1) for kind, run in made.items()}
    return _stacked(name, device, stacks)


def _stacked(name: str, device: torch.device, stacks: tuple[int, ...]) -> dict[str, tuple[Run, int]]:
    """Return the loops of classifiers, whose clients can be trained side by side."""
    task, model = TASKS[name], TASKS[name].model
    assert isinstance(model, RecurrentClassifier)
    made = [synthetic.client(number, TEXTS, VOCABULARY) for number in range(max(stacks))]
    found = {"plain": (naive(task, made[0], device, VOCABULARY), 1)}
    kinds = ["reference", "cells"]
    if model.hidden <= KERNEL_WIDTH and device.type == "cuda" and find_spec("triton"):
        kinds.append("triton")
    for kind in kinds:
        for size in sorted({1, *stacks}) if kind != "reference" else [1]:
            found[kind if size == 1 else f"{kind}, stack {size}"] = engine(task, kind, made[:size], device), size
    return found


def rows_of(
    name: str,
    device: torch.device,
    wait: Callable[[], None],
    limits: dict[str, float],
    turns: int,
    steps: int,
    stacks: tuple[int, ...],
) -> list[dict[str, Any]]:
    """Measure a workload. Returns a row for each variant."""
    runs, rows, flop = variants(name, device, stacks), [], 0.0
    times = in_turns(runs, steps, turns, wait)
    asked = {}
    for variant, (run, clients) in runs.items():
        with Counted(device) as asked[variant]:
            run(steps)
        if variant in ("cells", "ours", "ours, float32"):
            flop = asked[variant].flop / steps / clients
    for variant, spent in times.items():
        batches, seconds = steps * runs[variant][1], spread(spent.wall)["median"] / 1000
        precision = variant.rpartition(", ")[2] if name in SHAPES else "float32"
        row: dict[str, Any] = {"workload": name, "variant": variant, "wall ms": spread(spent.wall)}
        row["samples / s"] = SAMPLES[name] / seconds
        row["GFLOP / s"] = 1e-9 * flop / seconds
        row["% of the card's"] = 100 * row["GFLOP / s"] / limits[f"{precision} GFLOP / s"]
        row["calls"] = round(asked[variant].calls / batches)
        if variant.startswith(("cells", "ours")):
            row["GB / s"] = 1e-9 * asked[variant].bytes / batches / seconds
            row["% of its copy"] = 100 * row["GB / s"] / limits["GB / s"]
        plain = f"plain, {precision}" if name in SHAPES else "plain"
        if plain in times:
            row["times plain"] = paired(times[plain].wall, spent.wall)
        rows.append(row)
    return rows


@command_line()
@one_torch_thread()
@products(tf32=False)
def main(words: list[str] | None = None, size: Size = (8192, 1024)) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=[], choices=[*STEPS, []], metavar="WORKLOAD")
    parser.add_argument("--steps", type=int, help="batches in a repetition (W2: clients)")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--stacks", type=int, nargs="+", default=STACKS, metavar="CLIENTS", help="side by side")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--device", default="cuda", help="cuda, or cuda:1; cpu tries the benchmark out")
    arguments = parser.parse_args(words)
    try:
        device = device_of(arguments.device)
    except UserError as error:
        parser.exit(2, f"error: {error}\n")
    wait: Callable[[], None] = partial(torch.cuda.synchronize, device) if device.type == "cuda" else lambda: None
    limits = card(device, wait, size)
    named = torch.cuda.get_device_name(device) if device.type == "cuda" else "the CPU"
    print(f"{named}: {', '.join(f'{value:.0f} {unit}' for unit, value in limits.items())}\n", flush=True)
    rows = []
    for name in arguments.workloads or STEPS:
        steps = arguments.steps or STEPS[name]
        found = rows_of(name, device, wait, limits, arguments.turns, steps, tuple(arguments.stacks))
        print(f"{table(found)}\n", flush=True)
        rows += found
        write(arguments.json, {"card": {"name": named, **limits}, "rows": rows})
    return rows


if __name__ == "__main__":
    main()
