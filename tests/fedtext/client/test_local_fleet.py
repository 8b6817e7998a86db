"""Runs in one process: continued, on all rows or a client's own, with an optimizer that persists."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtext.methods import METHODS
from fedtext.parameters import initial
from tests import tiny
from tests.outcomes import final
from tests.sampled import slow_but
from tests.tiny import federation

FEW = tiny.corpus(clients=4)
SENDING_ROWS = [
    name
    for name, method in METHODS.items()
    if tiny.experiment(name).shares_table and not (method.whole_table or method.pooled)
]


@pytest.mark.parametrize(
    ("method", "optimizer"),
    [*((method, "sgd") for method in METHODS), ("kteps", "adam"), ("fedprox", "adam"), ("fedavg", "adamw")],
)
def test_an_interrupted_run_continues_to_the_same_weights(method: str, optimizer: str, tmp_path: Path) -> None:
    how = {"name": optimizer, "lr": 0.01, "persist": not (method == "fedrecon" or METHODS[method].takes_sgd)}
    changes: dict[str, Any] = {"training": {"rounds": 3, "batch_size": 4, "optimizer": how}}
    if not METHODS[method].pooled:
        changes["participation"] = {"fraction": 0.5, "dropout": 0.2}
    experiment = tiny.experiment(method, **changes)
    whole = federation(experiment, FEW)
    rows = list(whole.run())

    interrupted = federation(experiment, FEW, folder=tmp_path).run()
    next(interrupted), next(interrupted)
    continued = federation(experiment, FEW, folder=tmp_path)
    assert [record.round for record in continued.history] == [1, 2]
    last = list(continued.run())
    assert [record.round for record in last] == [3]
    assert continued.flat.tobytes() == whole.flat.tobytes()
    assert [record.clients for record in continued.history] == [record.clients for record in rows]


@pytest.mark.parametrize("method", slow_but(SENDING_ROWS, "fedavg", "kteps", "fedprox"))
def test_own_rows_equal_all_rows_without_noise(method: str) -> None:
    own, everything = (tiny.experiment(method, wire={"rows": rows}) for rows in ("own", "all"))
    assert final(federation(own, FEW)) == final(federation(everything, FEW))


def test_an_optimizer_that_persists_remembers_across_rounds() -> None:
    finals = [
        final(federation(experiment, FEW))[0]
        for persist in (False, True)
        for experiment in [tiny.experiment("fedavg", training={"rounds": 2, "optimizer": {"persist": persist}})]
    ]
    assert finals[0] != finals[1]


def test_rows_no_client_trains_on_stay_as_they_were_unless_noise_covers_them() -> None:
    corpus = tiny.corpus(clients=2, vocabulary=60)
    trained = np.unique(np.concatenate([c.rows_R[: c.train_rows] for c in corpus.clients]))
    untouched = np.setdiff1d(np.arange(60), trained)
    assert len(untouched)
    for uplink, moved in (([], False), ([{"gaussian": {"sigma": 0.1}}], True)):
        experiment = tiny.experiment("fedavg", uplink=uplink)
        shared = initial(experiment, corpus)[0]
        run = federation(experiment, corpus)
        list(run.run())
        same = run.state["embedding.weight"][untouched] == shared["embedding.weight"][untouched]
        assert not same.any() if moved else same.all()
