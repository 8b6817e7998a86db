"""Difference of the engines from the reference on real texts: in float64, one local epoch, every loss and model.

    python -m benchmarks.equality --data FOLDER [--texts 1600]

Trains the first client of FDU-MTL, and one client of IMDB reviews, from the same parameters on the same batches: by the
reference, by ``cells``, and by ``cells`` in a stack with other clients. Prints the largest difference of any
parameter, relative to the largest change that training made to that tensor.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.measure import table, write
from fedtext.runtime.environment import ENVIRONMENT

if __name__ == "__main__" and os.environ.get("OMP_NUM_THREADS") != "1":  # read by libraries when they are loaded
    os.execve(sys.executable, [sys.executable, "-m", "benchmarks.equality", *sys.argv[1:]], os.environ | ENVIRONMENT)

import numpy as np
import pyarrow.parquet as pq

from benchmarks import synthetic
from fedtext.corpora.types import TokenSet
from fedtext.methods import METHODS, FedAvg
from fedtext.methods.base import Method
from fedtext.models.recurrent import RecurrentClassifier
from fedtext.testing.epochs import LONGEST, Client, difference, epoch, stackable
from fedtext.text.tokens import encode, penn_tokens
from fedtext.text.vocabulary import WordIndex, build_vocabulary, count_words
from fedtext.training.config import SGD

MODELS: list[dict[str, Any]] = [
    {"name": "bigru"},
    {"name": "gru", "pooling": "last"},
    {"name": "bigru", "layers": 2},
    {"name": "bigru", "pooling": "mean"},
    {"name": "bilstm"},
    {"name": "lstm", "layers": 2, "pooling": "last"},
]


def cut(tokens: TokenSet, texts: int) -> TokenSet:
    """Return the split's first ``texts`` texts."""
    offsets = tokens.offsets[: texts + 1]
    return TokenSet(tokens.tokens_T[: offsets[-1]], offsets, tokens.labels_N[:texts])


def fdu(data: Path, texts: int, clients: int) -> list[Client]:
    return [Client(cut(made.train, texts), len(made.rows_R)) for made in synthetic.real(data)[:clients]]


def imdb(data: Path, texts: int, clients: int) -> list[Client]:
    """Return clients with reviews of the train split, assigned in turn, as lower-case Treebank words."""
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


def different() -> list[Method]:
    """Return FedAvg and the methods whose loss differs from FedAvg's."""
    return [
        method.model_validate({}) for method in METHODS.values() if method is FedAvg or method.loss is not FedAvg.loss
    ]


def compare(method: Method, config: RecurrentClassifier, clients: list[Client]) -> dict[str, float]:
    """Train the first client by each engine, and in a stack with the others if the method allows it.

    Returns:
        The largest difference from the reference by each engine and, where there is a stack, ``stacked``.
    """
    expected = epoch("reference", method, config, clients[:1], SGD())[0]
    found = {
        engine: difference(epoch(engine, method, config, clients[:1], SGD())[0], expected)
        for engine in ("cells", "native")
    }
    if stackable(method):
        found["stacked"] = difference(epoch("cells", method, config, clients, SGD())[0], expected)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the corpora")
    parser.add_argument("--texts", type=int, default=400, help="of each client")
    parser.add_argument("--stack", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for corpus in (fdu, imdb):
        clients = corpus(arguments.data, arguments.texts, arguments.stack)
        for model in MODELS:
            config = RecurrentClassifier.model_validate(model | {"embedding": {"dim": 50}, "hidden": 32})
            for method in different():
                compared = compare(method, config, clients)
                named = {"corpus": corpus.__name__, "model": "-".join(map(str, model.values())), "method": method.name}
                rows.append(named | compared)
                print(rows[-1], file=sys.stderr, flush=True)
    print(table(rows))
    write(arguments.json, rows)


if __name__ == "__main__":
    main()
