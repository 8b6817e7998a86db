"""On real texts, too, every engine computes what the reference does."""

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.equality import compare, different, fdu, imdb
from fedtext.methods import KTEPS, FedAvg, FedProx
from fedtext.methods.base import Method
from fedtext.models.recurrent import RecurrentClassifier
from fedtext.testing.epochs import Client
from tests.data import real_data


@pytest.mark.parametrize("corpus", [fdu, imdb])
@pytest.mark.parametrize(("method", "stacks"), [(FedAvg(), True), (FedProx(), False), (KTEPS(), True)])
def test_an_epoch_on_real_texts(method: Method, stacks: bool, corpus: Callable[[Path, int, int], list[Client]]) -> None:
    """The whole of it is ``python -m benchmarks.equality``."""
    data = real_data("fdu_mtl/fdu_mtl.parquet")
    real_data("imdb/imdb.parquet")
    config = RecurrentClassifier.model_validate({"embedding": {"dim": 50}, "hidden": 32})
    found = compare(method, config, corpus(data, 20, 2))
    assert found.keys() == {"cells", "native"} | ({"stacked"} if stacks else set())
    assert max(found.values()) < 1e-9


def test_each_loss_is_compared_once() -> None:
    names = [method.name for method in different()]
    assert {"fedavg", "fedprox", "kteps"} <= set(names)
    assert "local_only" not in names, "its loss is FedAvg's"
