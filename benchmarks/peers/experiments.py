"""The workloads as experiments of fedtext, with their texts."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import synthetic
from fedtext.config import files
from fedtext.config.experiment import Experiment
from fedtext.config.overrides import override
from fedtext.corpora.prepare import prepare
from fedtext.corpora.types import ClientData, Corpus
from fedtext.errors import UserError
from fedtext.parameters import initial
from fedtext.text.checkpoint_files import locate

from .workloads import Adapted, Recurrent, Workload

FILE = "lora.yaml"
SHARES = {"sst2": 0.05, "agnews": 0.5}  # of a corpus: enough texts for all clients, and few to read


def experiment(work: Workload, changes: Mapping[str, Any] | None = None) -> Experiment:
    """Return the workload as an experiment.

    Args:
        work: The workload.
        changes: Keys that differ, by their dotted names.
    """
    content = {Recurrent: _recurrent, Adapted: _adapted}[type(work)](work)
    return files.validate(override(content, dict(changes or {})))


def _recurrent(work: Recurrent) -> dict[str, Any]:
    return {
        "name": "peers",
        "seed": work.seed,
        "corpus": {"name": "demo"},  # stands in: the texts are synthetic
        "method": "fedavg",
        "model": {"embedding": {"dim": work.dim}, "hidden": work.hidden, "head": {"hidden": work.head}},
        "training": {
            "rounds": work.rounds,
            "local_epochs": 1,
            "batch_size": work.batch,
            "optimizer": {"name": "sgd", "lr": work.lr, "momentum": work.momentum},
        },
        "evaluation": {"personalize": None},  # and no client has texts to evaluate on
    }


def _adapted(work: Adapted) -> dict[str, Any]:
    lora = {"rank": work.rank, "alpha": work.alpha, "blocks": work.blocks} if work.blocks != 0 else None
    changes = {
        "seed": work.seed,
        "corpus.name": work.corpus,
        "corpus.clients": work.clients,
        "corpus.share": SHARES[work.corpus],
        "corpus.validation": 0.0,
        "corpus.max_length": work.longest,
        "model.dropout": 0.0,  # its draws are not the others'
        "model.adapter.lora": lora,
        "training.rounds": work.rounds,
        "training.batch_size": work.batch,
        "training.optimizer": {"name": "adamw", "lr": work.lr, "weight_decay": 0.0},
        "evaluation.every": work.rounds,
    }
    return override(files.read(files.find(FILE)), changes)


def corpus(work: Workload, data: Path | None) -> Corpus:
    """Return the clients' texts: no client has others than those to train on.

    Args:
        work: The workload.
        data: Folder of the corpora, for a workload with a corpus.

    Raises:
        UserError: The corpus cannot be read, or has too few texts.
    """
    if isinstance(work, Recurrent):
        return synthetic.corpus(work.clients, work.texts, work.vocabulary, work.longest)
    made = experiment(work)
    whole = prepare(made.corpus, made.model.embedding, made.seed, data)
    return replace(whole, clients=[_first(client, work.texts) for client in whole.clients], report=[], tests=())


def _first(client: ClientData, texts: int) -> ClientData:
    """Return a client with its first texts alone."""
    if len(client.train) < texts:
        raise UserError(f"{client.name} has {len(client.train)} texts to train on, and {texts} are needed: give more")
    train = client.train.take(np.arange(texts))
    return synthetic.holding(client.id, replace(train, tokens_T=client.rows_R[train.tokens_T]))


def trained(made: Experiment, texts: Corpus) -> dict[str, NDArray[np.float32]]:
    """Return the initial values of the parameters that clients train, by name."""
    shared, _ = initial(made, texts)
    return {name: tensor for name, tensor in shared.items() if not made.model.fixes(name)}


def checkpoint(made: Experiment) -> Path | None:
    """Return the folder of an experiment's checkpoint; None: it has none."""
    source = getattr(made.model, "checkpoint", None)
    return None if source is None else Path(locate(source))
