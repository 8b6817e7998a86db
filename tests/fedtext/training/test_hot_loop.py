"""How many calls into torch training takes: a call costs microseconds whatever it computes, and a machine's load does
not move their number."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fedtext.corpora.types import TokenSet
from fedtext.methods import KTEPS
from fedtext.models.recurrent import RecurrentClassifier
from fedtext.runtime.compiled import compile_problem
from fedtext.testing.epochs import Client, epoch
from fedtext.training.config import SGD, Adam

ROWS, TEXTS = 5_000, 8  # of a client: one batch


class Calls(TorchDispatchMode):
    """Counts the operators that run, and notes those that give back at least ``large`` numbers."""

    def __init__(self, large: int) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.large, self.heavy = large, Counter[str]()

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = operator(*args, **(kwargs or {}))
        self.counts[str(operator)] += 1
        if isinstance(output, torch.Tensor) and output.numel() >= self.large:
            self.heavy[str(operator)] += 1
        return output


def calls(
    name: str, steps: int, batches: int, clients: int = 1, optimizer: SGD | Adam | None = None, engine: str = "cells"
) -> Calls:
    """Of an epoch of so many batches, all texts of the same length."""
    rng, texts = np.random.default_rng(0), TEXTS * batches
    offsets, labels = np.arange(texts + 1) * steps, np.arange(texts) % 2
    hosted = [
        Client(TokenSet(rng.integers(1, ROWS, texts * steps).astype(np.int32), offsets, labels), ROWS + n)
        for n in range(clients)
    ]
    config = RecurrentClassifier.model_validate({"name": name, "embedding": {"dim": 8}, "hidden": 8})
    with Calls(8 * ROWS) as counted:
        epoch(engine, KTEPS(), config, hosted, optimizer or SGD(lr=0.1), torch.float32)
    return counted


@pytest.mark.parametrize(("name", "most"), [("bigru", 8), ("gru", 8), ("bilstm", 12), ("lstm", 12)])
@pytest.mark.parametrize("clients", [1, 4])
def test_calls_of_one_more_time_step(name: str, most: int, clients: int) -> None:
    """Forward and backward, both directions and all clients together."""
    short, long = (calls(name, steps, 1, clients).counts.total() for steps in (10, 20))
    assert (long - short) / 10 <= most


@pytest.mark.parametrize(("clients", "most"), [(1, 540), (4, 740)])
def test_calls_of_one_more_batch(clients: int, most: int) -> None:
    """Of ten time steps, which take 80 of them; of torch 2.13."""
    one, two = (calls("bigru", 10, batches, clients) for batches in (1, 2))
    more = two.counts - one.counts
    assert more.total() <= most, more.most_common()


@pytest.mark.skipif(bool(compile_problem()), reason=compile_problem())
@pytest.mark.parametrize(("clients", "most"), [(1, 40), (4, 130)])
@pytest.mark.parametrize("name", ["bigru", "bilstm"])
def test_calls_of_one_more_batch_of_engine_native(name: str, clients: int, most: int) -> None:
    """Of any number of time steps."""
    one, two = (calls(name, 10, batches, clients, engine="native") for batches in (1, 2))
    more = two.counts - one.counts
    assert more.total() <= most, more.most_common()


def test_nothing_but_writing_rows_works_on_the_whole_table() -> None:
    one, two = (calls("bigru", 10, batches) for batches in (1, 2))
    assert set(two.heavy - one.heavy) <= {"aten.index_copy_.default"}
    assert calls("bigru", 10, 1, optimizer=Adam(lr=0.1)).heavy - one.heavy, "Adam does, and it would be seen"
