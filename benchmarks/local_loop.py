"""The local loop against the plain one, as paired CPU time per batch: `make bench`.

Workloads, on synthetic tokens (Zipf over the vocabulary, mean length 120, clipped at 200), one thread:

  W1  KTEPS: embedding 50,000 x 200, BiGRU 64, masked mean, MLP; SGD with momentum; batch 8
  W4  embedding 50,000 x 300, BiLSTM 300, masked mean, MLP; Adam; batch 32

``naive`` is what one would write first: a DataLoader, packed nn.GRU or nn.LSTM, the whole embedding table with a dense
gradient, a default optimizer. The engines train the same client with its own rows of the table. Variants take turns of
``--steps`` batches, ``--turns`` times; figures are medians over the turns, ratios are paired turn by turn.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from fedtext.corpora.types import TokenSet
from fedtext.experiment import SGD, Adam
from fedtext.methods import KTEPS, FedAvg
from fedtext.methods.base import Batch, Model
from fedtext.models.config import RecurrentClassifier
from fedtext.models.recurrent import TABLE, Encoder, Parts
from fedtext.training.batches import Texts, shuffled
from fedtext.training.local import Problem, train
from fedtext.training.optimizer import LocalOptimizer

VOCABULARY, TEXTS = 50_000, 1_600
WORKLOADS: dict[str, dict[str, Any]] = {
    "W1": {"method": KTEPS(), "model": {"name": "bigru"}, "dim": 200, "optimizer": SGD(), "batch": 8},
    "W4": {
        "method": FedAvg(),
        "model": {"name": "bilstm", "hidden": 300},
        "dim": 300,
        "optimizer": Adam(),
        "batch": 32,
    },
}


def texts(longest: int = 200) -> tuple[TokenSet, np.ndarray]:
    """A client's texts in its own row numbers, and the global rows these are."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(np.log(100), 0.6, TEXTS).astype(int), 5, longest)
    share = 1 / np.arange(2, VOCABULARY)
    words = rng.choice(np.arange(2, VOCABULARY), lengths.sum(), p=share / share.sum())
    rows, tokens = np.unique(words, return_inverse=True)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    labels = rng.integers(0, 2, TEXTS)
    return TokenSet((tokens + 1).astype(np.int32), offsets, labels), np.concatenate([[0], rows])


def network_of(work: dict[str, Any]) -> nn.Module:
    config = RecurrentClassifier.model_validate(work["model"] | {"embedding": {"dim": work["dim"]}})
    torch.manual_seed(0)
    return work["method"].network(Parts(config, 2))


def engine(work: dict[str, Any], name: str) -> Callable[[int], None]:
    """Trains so many batches, as a worker does."""
    tokens, rows = texts()
    network = network_of(work)
    for module in network.modules():
        if isinstance(module, Encoder):
            module.engine = name
    parameters = {n: p.detach().clone().requires_grad_() for n, p in network.named_parameters()}
    parameters[TABLE] = torch.randn(len(rows), work["dim"]).requires_grad_()
    data = Texts(tokens, torch.device("cpu"))
    optimizer = LocalOptimizer(work["optimizer"], parameters, work["optimizer"].lr, name == "cells")
    problem = Problem(work["method"], network, {})
    order = shuffled(len(data), work["batch"], 10_000, 0, 1, 0)

    def run(steps: int) -> None:
        train(problem, (data.batch(next(order)) for _ in range(steps)), optimizer)

    return run


def naive(work: dict[str, Any]) -> Callable[[int], None]:
    """The plain torch loop on the whole table."""
    tokens, rows = texts()
    ids = rows[tokens.tokens_T]
    samples = [
        (torch.from_numpy(ids[tokens.offsets[i] : tokens.offsets[i + 1]]), int(tokens.labels_N[i]))
        for i in range(len(tokens))
    ]
    network = network_of(work)
    network.embedding = nn.Embedding(VOCABULARY, work["dim"])  # type: ignore[assignment]
    chosen = torch.optim.SGD if isinstance(work["optimizer"], SGD) else torch.optim.Adam
    extra = {"momentum": work["optimizer"].momentum} if chosen is torch.optim.SGD else {}
    optimizer = chosen(network.parameters(), lr=work["optimizer"].lr, **extra)

    def collate(chosen: list[tuple[Tensor, int]]) -> Batch:
        padded = nn.utils.rnn.pad_sequence([sample[0] for sample in chosen], batch_first=True)
        lengths, labels = ([len(s[0]) for s in chosen], [s[1] for s in chosen])
        return Batch(padded, torch.tensor(lengths), torch.tensor(labels))

    def forever() -> Iterator[Batch]:
        while True:
            yield from DataLoader(samples, work["batch"], shuffle=True, collate_fn=collate)  # type: ignore[arg-type]

    batches = forever()

    def run(steps: int) -> None:
        for _ in range(steps):
            batch = next(batches)
            optimizer.zero_grad()
            model = Model(network, dict(network.named_parameters()))
            sum(work["method"].loss(model, {}, batch).values()).backward()
            optimizer.step()

    return run


def measure(work: dict[str, Any], steps: int, turns: int) -> dict[str, list[float]]:
    """CPU milliseconds per batch of each variant in each turn."""
    variants = {"naive": naive(work), "reference": engine(work, "reference"), "cells": engine(work, "cells")}
    for run in variants.values():
        run(3)
    found: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(turns):
        for name, run in variants.items():
            start = time.process_time()
            run(steps)
            found[name].append(1000 * (time.process_time() - start) / steps)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS), choices=[*WORKLOADS, []])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    report = {}
    print("| workload | variant | CPU ms / batch | samples / CPU s | times naive |\n| --- | --- | --- | --- | --- |")
    for name in arguments.workloads:
        work = WORKLOADS[name]
        report[name] = found = measure(work, arguments.steps, arguments.turns)
        for variant, values in found.items():
            each = statistics.median(values)
            ratio = statistics.median(a / b for a, b in zip(found["naive"], values, strict=True))
            print(f"| {name} | {variant} | {each:.1f} | {1000 * work['batch'] / each:.0f} | {ratio:.2f} |", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
