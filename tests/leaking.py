"""Small corpora and runs for tests of what updates leak."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedtext.corpora.types import ClientData, Corpus, TokenSet
from tests import tiny

ONE_STEP = {"rounds": 1, "local_epochs": 1, "batch_size": 8, "optimizer": {"lr": 0.1, "momentum": 0}}
MODEL = {"embedding": {"dim": 8}, "hidden": 8, "head": {"hidden": 8}}
BAG = {"name": "bag", "embedding": {"dim": 8}, "hidden": [8]}
VOCABULARY = [
    "<pad>",
    "<unk>",
    *(f"{n}" if n % 4 == 0 else "w" + "abc"[n % 4 - 1] * (n // 4 + 1) for n in range(2, 62)),
]


def corpus(lengths: Sequence[int], clients: int = 1, test: int = 3, classes: int = 2, seed: int = 0) -> Corpus:
    """Clients with texts of these lengths, of words drawn at random, as are their labels."""
    rng = np.random.default_rng(seed)

    def drawn(lengths: Sequence[int]) -> TokenSet:
        offsets = np.cumsum([0, *lengths])
        tokens_T = rng.integers(2, len(VOCABULARY), offsets[-1]).astype(np.int32)
        return TokenSet(tokens_T, offsets, rng.integers(0, classes, len(lengths)))

    made = []
    for number in range(clients):
        train, held = drawn(lengths), drawn([5] * test)
        own = np.unique(train.tokens_T)
        rows_R = np.concatenate([[0], own, np.setdiff1d(held.tokens_T, own)]).astype(np.int32)
        place = np.zeros(len(VOCABULARY), np.int32)
        place[rows_R] = np.arange(len(rows_R))
        splits = [TokenSet(place[t.tokens_T], t.offsets, t.labels_N) for t in (train, drawn([]), held)]
        made.append(ClientData(number, f"client{number}", rows_R, len(own) + 1, *splits))
    tests = tuple(replace(client.test, tokens_T=client.rows_R[client.test.tokens_T]) for client in made)
    return Corpus("tiny", classes, VOCABULARY, made, [], f"leakage-{lengths}-{clients}-{seed}", None, tests=tests)


def finished(texts: Corpus, audits: Any, method: Any = "fedavg", **changes: Any) -> tiny.Finished:
    base = {"model": MODEL, "training": ONE_STEP, "evaluation": {"personalize": None}}
    return tiny.Finished(method, texts, audits=audits, **(base | changes))


def figures(texts: Corpus, audits: Any, **changes: Any) -> Mapping[str, float]:
    return finished(texts, audits, **changes).rows[-1].metrics
