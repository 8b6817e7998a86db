"""The local training loop against a plain torch loop, as paired CPU time: W1 to W5, one thread.

  W1  KTEPS: embedding 50,000 x 200, BiGRU 64, masked mean, MLP; SGD with momentum; batch 8; also with clients stacked
  W1L  the same with a BiLSTM
  W2  RR-LDP: bag of 5,000 buckets, dense 100-50-25, Adam, 250 texts in batches of 32, then one-bit randomised response
  W3  FedAtt: tied GRU language model, 300 units, vocabulary 10,000, 20 sentences of 35 words; SGD with momentum
  W4  FedeVocab: embedding 50,000 x 300, BiLSTM 300, masked mean, MLP; Adam; batch 32
  W5  StackOverflow (Reddi et al. 2020): tied language model, embedding 96, LSTM 670, projection 96, vocabulary 10,000,
      16 sentences of 20 words; SGD

All run on synthetic texts (Zipf's law over the vocabulary, about 120 words, at most 200; W3 and W5 on sentences of 36
and 21), or with --data on real ones: W1 and W4 on the first clients of FDU-MTL, W2 on whole IMDB reviews with their
words hashed, W3 and W5 on WikiText-2 or else Penn Treebank.

``naive`` is a straightforward loop: a DataLoader, packed nn.GRU or nn.LSTM, the whole embedding table with a dense
gradient, a default optimizer. ``floor`` is the time of the products alone, each as one large product of torch (not W2);
``floor, step by step`` has the recurrent one of W3 and W5 as one product for each word of a sentence; ``floor, native``
is that of the same products in models/products.c, which is faster where torch's library does not use the whole width of
the processor's vectors. ms are per client and batch, of W2 per client: a local epoch and its randomised response; wall
ms are medians. Samples are texts, of W3 and W5 sentences. Variants alternate, with ``--steps`` batches (W2: clients) in
each repetition; ratios are of CPU time, within each repetition. Memory is the peak of this process (RSS) with all
variants and texts of a workload.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import in_turns, paired, peak_rss, reset_peak, spread, table, write
from fedtext.runtime.environment import ENVIRONMENT

if __name__ == "__main__" and os.environ.get("OMP_NUM_THREADS") != "1":  # read by libraries when they are loaded
    os.execve(sys.executable, [sys.executable, "-m", "benchmarks.local_loop", *sys.argv[1:]], os.environ | ENVIRONMENT)

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from benchmarks import synthetic, w2, w3
from fedtext.corpora.types import ClientData
from fedtext.errors import UserError
from fedtext.layout import TABLE, Layout
from fedtext.methods import KTEPS, FedAvg
from fedtext.methods.base import Method, Model
from fedtext.models.base import ClassifierConfig
from fedtext.models.batch import Batch
from fedtext.models.native_products import product
from fedtext.models.parts import Parts
from fedtext.models.recurrent import RecurrentClassifier
from fedtext.runtime.threads import one_torch_thread
from fedtext.training.batches import Assembler, Texts, shuffled
from fedtext.training.config import SGD, Adam
from fedtext.training.local import Problem, Work, train
from fedtext.training.optimizer import LocalOptimizer
from fedtext.training.stack import Stack, Workspace

VOCABULARY, TEXTS, CPU = 50_000, 1_600, torch.device("cpu")
Run = Callable[[int], None]  # trains the given number of batches (W2: clients)


@dataclass(frozen=True)
class Task:
    """Settings in which W1 and W4 differ."""

    method: Method
    model: ClassifierConfig
    optimizer: SGD | Adam
    batch: int
    stacks: tuple[int, ...]

    def network(self) -> nn.Module:
        torch.manual_seed(0)
        return self.method.network(Parts(self.model, 2)).to(torch.get_default_dtype())


def model(name: str, dim: int, hidden: int) -> RecurrentClassifier:
    return RecurrentClassifier.model_validate({"name": name, "hidden": hidden, "embedding": {"dim": dim}})


TASKS = {
    "W1": Task(KTEPS(), model("bigru", 200, 64), SGD(), 8, (2, 4, 8, 16)),
    "W1L": Task(KTEPS(), model("bilstm", 200, 64), SGD(), 8, ()),
    "W4": Task(FedAvg(), model("bilstm", 300, 300), Adam(), 32, (4,)),
}


@cache
def reviews(data: Path | None) -> list[ClientData]:
    """Return the clients of W1 and W4: synthetic ones, or with a folder of corpora those of FDU-MTL."""
    if data:
        return synthetic.real(data)
    return [synthetic.client(number, TEXTS, VOCABULARY) for number in range(16)]


LANGUAGE = {"W3": w3.W3, "W5": w3.W5}
CORPORA: dict[str, Callable[[Path | None], Any]] = {"W2": w2.corpus, **{n: task.corpus for n, task in LANGUAGE.items()}}
CORPORA |= dict.fromkeys(TASKS, reviews)
SAMPLES = {name: task.batch for name, task in TASKS.items()} | {"W2": w2.TEXTS}
SAMPLES |= {name: task.batch for name, task in LANGUAGE.items()}


def engine(task: Task, name: str, clients: list[ClientData], device: torch.device = CPU) -> Run:
    """Return a loop that trains the given number of batches of each client, as a worker does."""
    network = task.network().to(device)
    rows = [len(client.rows_R) for client in clients]
    drawn = dict(network.named_parameters())
    layout = Layout({name: tuple(tensor.shape) for name, tensor in drawn.items()})
    stack = Stack(layout, rows, Workspace(device, torch.get_default_dtype()))
    for place in range(len(clients)):
        for key, tensor in stack.tensors(place).items():
            tensor.copy_(torch.randn(tensor.shape) if key == TABLE else drawn[key].detach())
    cells = name != "reference"
    moving = [key for key in layout.shapes if not task.model.fixes(key)]
    optimizer = LocalOptimizer(task.optimizer, stack, task.optimizer.lr, cells, moving, native=name == "native")
    texts = [Texts(client.train, len(client.rows_R)) for client in clients]
    assembler = Assembler(2 if cells else None, cells, device, name)
    problem = Problem(task.method, network, {})
    orders = [full_batches(len(each), task.batch, number) for number, each in enumerate(texts)]

    def run(steps: int) -> None:
        work = [Work(t, [next(order) for _ in range(steps)]) for t, order in zip(texts, orders, strict=True)]
        train(problem, assembler, optimizer, work)

    return run


def full_batches(texts: int, size: int, client: int) -> Iterator[np.ndarray]:
    return (chosen for chosen in shuffled(texts, size, 10_000, 0, 1, client) if len(chosen) == size)


def naive(task: Task, client: ClientData, device: torch.device = CPU, words: int = VOCABULARY) -> Run:
    """Return the plain torch loop on the whole embedding table of ``words`` rows."""
    network = task.network()
    network.embedding = nn.Embedding(words, task.model.embedding.dim)
    network.to(device)
    ids, offsets = client.rows_R[client.train.tokens_T], client.train.offsets
    samples = [
        (torch.from_numpy(ids[offsets[i] : offsets[i + 1]]), int(client.train.labels_N[i]))
        for i in range(len(client.train))
    ]
    if isinstance(task.optimizer, SGD):
        optimizer: torch.optim.Optimizer = torch.optim.SGD(
            network.parameters(), lr=task.optimizer.lr, momentum=task.optimizer.momentum
        )
    else:
        optimizer = torch.optim.Adam(network.parameters(), lr=task.optimizer.lr)

    def collate(chosen: list[tuple[Tensor, int]]) -> Batch:
        padded = nn.utils.rnn.pad_sequence([sample[0] for sample in chosen], batch_first=True)
        lengths, labels = ([len(s[0]) for s in chosen], [s[1] for s in chosen])
        return Batch(padded.to(device), torch.tensor(lengths).to(device), torch.tensor(labels).to(device))

    def forever() -> Iterator[Batch]:
        while True:
            yield from DataLoader(samples, task.batch, shuffle=True, collate_fn=collate, drop_last=True)  # type: ignore

    batches = forever()

    def run(steps: int) -> None:
        network.train()
        for _ in range(steps):
            batch = next(batches)
            optimizer.zero_grad()
            terms = task.method.loss(Model(network, dict(network.named_parameters())), {}, batch)
            task.method.objective(terms).backward()
            optimizer.step()

    return run


def products(task: Task, client: ClientData) -> list[tuple[int, int, int]]:
    """Return rows, inner width and columns of a batch's products in the forward pass.

    They are the projections of its distinct words, and the recurrent steps of each direction as one product.
    """
    texts = Texts(client.train, len(client.rows_R))
    order = full_batches(len(texts), task.batch, 0)
    packed = [Assembler(2, True, CPU).packed([(texts, next(order))]) for _ in range(8)]
    tokens = round(sum(int(batch.lengths_B.sum()) for batch, _ in packed) / 8)
    words = round(sum(len(found[0]) for _, found in packed) / 8)
    assert isinstance(task.model, RecurrentClassifier)
    gates = (3 if "gru" in task.model.name else 4) * task.model.hidden
    return [(words, task.model.embedding.dim, 2 * gates)] + 2 * [(tokens, task.model.hidden, gates)]


def floor(task: Task, client: ClientData, product: Callable[[Tensor, Tensor], Tensor] = torch.mm) -> Run:
    """Return a loop of the products of a batch alone: forward, and backward to inputs and weights."""
    pairs = []
    for m, k, n in products(task, client):
        a, w, g = torch.randn(m, k), torch.randn(k, n), torch.randn(m, n)
        pairs += [(a, w), (g, w.T.contiguous()), (a.T.contiguous(), g)]

    def run(steps: int) -> None:
        for _ in range(steps):
            for left, right in pairs:
                product(left, right)

    return run


def variants(name: str, corpus: Any) -> dict[str, tuple[Run, int]]:
    """Return each variant's loop, with the number of clients that it trains at a time."""
    if name not in TASKS:
        made = w3.variants(corpus, task=LANGUAGE[name]) if name in LANGUAGE else w2.variants(corpus)
        return {key: (run, 1) for key, run in made.items()}
    clients: list[ClientData] = corpus
    task = TASKS[name]
    found = {
        "naive": (naive(task, clients[0]), 1),
        "reference": (engine(task, "reference", clients[:1]), 1),
        "cells": (engine(task, "cells", clients[:1]), 1),
        "native": (engine(task, "native", clients[:1]), 1),
    }
    found |= {
        f"{name}, stack {size}": (engine(task, name, clients[:size]), size)
        for name in ("cells", "native")
        for size in task.stacks
    }
    return found | {
        "floor": (floor(task, clients[0]), 1),
        "floor, native": (floor(task, clients[0], product), 1),
    }


STEPS = {"W1": 30, "W1L": 30, "W2": 5, "W3": 5, "W4": 3, "W5": 8}


def rows_of(name: str, corpus: Any, steps: int, turns: int) -> list[dict]:
    """Measure a workload. Returns a row for each variant."""
    found = in_turns(variants(name, corpus), steps, turns)
    rows = []
    for variant, times in found.items():
        row: dict[str, Any] = {
            "workload": name,
            "variant": variant,
            "CPU ms": spread(times.cpu),
            "wall ms": median(times.wall),
        }
        if not variant.startswith("floor"):
            row["samples / CPU s"] = 1000 * SAMPLES[name] / row["CPU ms"]["median"]
            row["samples / s"] = 1000 * SAMPLES[name] / row["wall ms"]
            if "floor" in found:
                row["share of floor"] = paired(found["floor"].cpu, times.cpu)["median"]
        rows.append(row | {"times naive": paired(found["naive"].cpu, times.cpu)})
    return rows


@one_torch_thread()
def main(words: list[str] | None = None) -> list[dict]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=[], choices=[*STEPS, []], metavar="WORKLOAD")
    parser.add_argument("--steps", type=int, help="batches in a repetition (W2: clients)")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--data", type=Path, help="folder of the corpora: real texts instead of synthetic ones")
    parser.add_argument("--float64", action="store_true", help="double precision, of W1 and W4 only")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    arguments = parser.parse_args(words)
    if arguments.float64:
        torch.set_default_dtype(torch.float64)
    try:  # all corpora first: a missing one is an error before anything is measured
        corpora = {name: CORPORA[name](arguments.data) for name in arguments.workloads or STEPS}
    except UserError as error:
        parser.exit(2, f"error: {error}\n")
    rows = []
    for name, corpus in corpora.items():
        peaks = reset_peak()
        found = rows_of(name, corpus, arguments.steps or STEPS[name], arguments.turns)
        print(table(found), flush=True)
        more: dict[str, Any] = {"texts": f"of {arguments.data}" if arguments.data else "made up"}
        if peaks:
            more["peak MB"] = peak_rss() / 1e6
            print(f"\n{name}, texts {more['texts']}: at most {more['peak MB']:.0f} MB of memory\n", flush=True)
        rows += [row | more for row in found]
    write(arguments.json, rows)
    return rows


if __name__ == "__main__":
    main()
