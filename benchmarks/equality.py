"""How far the engines are from the reference on real texts: in float64, one local epoch, every kind of loss and model.

    python -m benchmarks.equality --data FOLDER [--texts 1600]

Trains the first client of FDU-MTL, and one client of IMDB reviews, from the same parameters on the same batches: by the
reference, by ``cells``, and by ``cells`` in a stack with other clients. Prints the largest difference of any
parameter, relative to the largest change that training made to that tensor.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.measure import table, write
from fedtext.runtime.environment import ENVIRONMENT

if __name__ == "__main__" and os.environ.get("OMP_NUM_THREADS") != "1":  # read by libraries when they are loaded
    os.execve(sys.executable, [sys.executable, "-m", "benchmarks.equality", *sys.argv[1:]], os.environ | ENVIRONMENT)

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor

from benchmarks import synthetic
from fedtext.corpora.types import TokenSet
from fedtext.layout import Layout, is_table
from fedtext.methods import METHODS, FedAvg
from fedtext.methods.base import Method
from fedtext.models.parts import Parts
from fedtext.models.recurrent import RecurrentClassifier
from fedtext.runtime.threads import one_torch_thread
from fedtext.text.tokens import encode, penn_tokens
from fedtext.text.vocabulary import WordIndex, build_vocabulary, count_words
from fedtext.training.batches import Assembler, Texts, by_task, shuffled
from fedtext.training.config import SGD, Adam
from fedtext.training.local import Problem, Work, train
from fedtext.training.optimizer import LocalOptimizer
from fedtext.training.stack import Stack, Workspace

MODELS: list[dict[str, Any]] = [
    {"name": "bigru"},
    {"name": "gru", "pooling": "last"},
    {"name": "bigru", "layers": 2},
    {"name": "bigru", "pooling": "mean"},
    {"name": "bilstm"},
    {"name": "lstm", "layers": 2, "pooling": "last"},
]
LONGEST, CPU = 200, torch.device("cpu")


@dataclass(frozen=True)
class Client:
    """Texts in the client's own row numbers, 1 to ``rows`` - 1."""

    tokens: TokenSet
    rows: int


@dataclass(frozen=True)
class Trained:
    """A client before and after: the mean of each loss term, and its parameters."""

    terms: dict[str, float]
    before: dict[str, Tensor]
    after: dict[str, Tensor]
    network: torch.nn.Module


def epoch(
    engine: str,
    method: Method,
    config: RecurrentClassifier,
    clients: Sequence[Client],
    optimizer: SGD | Adam,
    dtype: torch.dtype = torch.float64,
    scales: Sequence[float] = (),
    longest: int = LONGEST,
) -> list[Trained]:
    """One local epoch of these clients side by side, in batches of 8, from tables of their own (all times ``scales``).

    The batches' order and the parameters of a client depend on its own texts only, not on who is beside it. Where the
    method tells tasks apart, every other text is of the second of two.
    """
    torch.manual_seed(3)
    classes = 2 if config.output == "sigmoid" else 3
    network = method.network(Parts(config, classes, clients=2)).to(dtype)
    drawn = {name: parameter.detach() for name, parameter in network.named_parameters()}
    layout = Layout({name: tuple(tensor.shape) for name, tensor in drawn.items()})
    stack = Stack(layout, [client.rows for client in clients], Workspace(CPU, dtype))
    pad_to = longest if config.pooling == "mean" else None
    texts = [Texts(replace(c.tokens, tasks_N=np.arange(len(c.tokens)) % 2), c.rows, pad_to) for c in clients]
    for place, client in enumerate(clients):
        torch.manual_seed(client.rows)
        for name, tensor in stack.tensors(place).items():
            tensor.copy_(torch.randn(tensor.shape) if is_table(name) else drawn[name])
            tensor.mul_(scales[place] if scales else 1)
        own = stack.tensors(place)
        for name, tensor in own.items():
            tensor.copy_(own[method.mirrors(name) or name])
    directions = 2 if config.name.startswith("bi") else 1
    cells = engine != "reference"
    shortcut = cells and not method.reads_table
    assembler = Assembler(directions if cells else None, shortcut, CPU, engine == "triton")
    local = LocalOptimizer(optimizer, stack, optimizer.lr, shortcut, task_of=method.task_of)
    work = []
    for each, client in zip(texts, clients, strict=True):
        how = 8, 1, 0, 1, client.rows
        order = by_task(each.tasks_N, *how) if method.separates else shuffled(len(each), *how)
        work.append(Work(each, list(order)))
    before = [copies(stack, place) for place in range(len(clients))]
    torch.manual_seed(5)
    with one_torch_thread():
        outcomes = train(Problem(method, network, before[0]), assembler, local, work)
    return [
        Trained(outcome.terms, before[place], copies(stack, place), network) for place, outcome in enumerate(outcomes)
    ]


def stackable(method: Method | type[Method]) -> bool:
    """Whether several clients may train side by side by it."""
    return not method.reads_table and not method.pooled


def copies(stack: Stack, place: int) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in stack.tensors(place).items()}


def difference(got: Trained, expected: Trained) -> float:
    """The largest difference of any parameter, in units of the largest change of its tensor."""
    found = 0.0
    for name, after in expected.after.items():
        change = float((after - expected.before[name]).abs().max())
        found = max(found, float((got.after[name] - after).abs().max()) / (change or 1.0))
    return found


def cut(tokens: TokenSet, texts: int) -> TokenSet:
    """The first ``texts`` of them."""
    offsets = tokens.offsets[: texts + 1]
    return TokenSet(tokens.tokens_T[: offsets[-1]], offsets, tokens.labels_N[:texts])


def fdu(data: Path, texts: int, clients: int) -> list[Client]:
    return [Client(cut(made.train, texts), len(made.rows_R)) for made in synthetic.real(data)[:clients]]


def imdb(data: Path, texts: int, clients: int) -> list[Client]:
    """Reviews of the train split, dealt out in turn, as lower-case Treebank words."""
    columns, train_only = ["split", "label", "text"], [("split", "=", "train")]
    reviews = pq.read_table(data / "imdb" / "imdb.parquet", columns=columns, filters=train_only)
    step = reviews.num_rows // (texts * clients)
    chosen = reviews.take(list(range(0, step * texts * clients, step)))
    words, labels = [penn_tokens(text) for text in chosen["text"].to_pylist()], np.array(chosen["label"])
    made = []
    for client in range(clients):
        own = words[client::clients]
        vocabulary = build_vocabulary([count_words(own)], 50_000)
        tokens_T, offsets = encode(own, WordIndex(vocabulary), LONGEST)
        made.append(Client(TokenSet(tokens_T, offsets, labels[client::clients].astype(np.int64)), len(vocabulary)))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the corpora")
    parser.add_argument("--texts", type=int, default=400, help="of each client")
    parser.add_argument("--stack", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = []
    for corpus in (fdu, imdb):
        clients = corpus(arguments.data, arguments.texts, arguments.stack)
        for model in MODELS:
            config = RecurrentClassifier.model_validate(model | {"embedding": {"dim": 50}, "hidden": 32})
            for name, method in METHODS.items():
                if method is not FedAvg and method.loss is FedAvg.loss:
                    continue
                expected = epoch("reference", method(), config, clients[:1], SGD())[0]
                row: dict[str, Any] = {
                    "corpus": corpus.__name__,
                    "model": "-".join(map(str, model.values())),
                    "method": name,
                }
                row["cells"] = difference(epoch("cells", method(), config, clients[:1], SGD())[0], expected)
                if stackable(method):
                    row["stacked"] = difference(epoch("cells", method(), config, clients, SGD())[0], expected)
                rows.append(row)
                print(row, file=sys.stderr, flush=True)
    print(table(rows))
    write(arguments.json, rows)


if __name__ == "__main__":
    main()
