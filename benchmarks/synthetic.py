"""Synthetic corpora for benchmarks, and experiments on them.

Words by Zipf's law, lengths log-normal, about 120 words and at most 200.
"""

from pathlib import Path
from typing import Any

import numpy as np

from fedtext.config import files
from fedtext.config.engine import choose_engine
from fedtext.config.experiment import Experiment
from fedtext.corpora.prepare import prepare
from fedtext.corpora.types import ClientData, Corpus, TokenSet
from fedtext.models.inits import RandomInit
from fedtext.runtime.compiled import compile_problem

RESERVED = 2  # <pad> and <unk>


def tokens(rng: np.random.Generator, texts: int, vocabulary: int, longest: int = 200) -> TokenSet:
    """Draw ``texts`` texts of two classes, in ids of the whole vocabulary."""
    lengths = np.clip(rng.lognormal(np.log(100), 0.6, texts).astype(np.int64), 5, longest)
    share = np.cumsum(1 / np.arange(RESERVED, vocabulary))
    words = RESERVED + np.searchsorted(share, rng.random(lengths.sum()) * share[-1])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return TokenSet(words.astype(np.int32), offsets, rng.integers(0, 2, texts))


def client(number: int, texts: int, vocabulary: int, longest: int = 200) -> ClientData:
    """Make a client with ``texts`` train texts."""
    return holding(number, tokens(np.random.default_rng(number), texts, vocabulary, longest))


def holding(number: int, made: TokenSet) -> ClientData:
    """Make a client with these train texts and no test texts. Ids of the whole vocabulary become the client's rows."""
    words, places = np.unique(made.tokens_T, return_inverse=True)
    rows = np.concatenate([[0], words]).astype(np.int32)
    nothing = TokenSet(np.zeros(0, np.int32), np.zeros(1, np.int64), np.zeros(0, np.int64))
    train = TokenSet((places + 1).astype(np.int32), made.offsets, made.labels_N)
    return ClientData(number, f"client{number}", rows, len(rows), train, nothing, nothing)


def corpus(clients: int, texts: int, vocabulary: int = 50_000, longest: int = 200) -> Corpus:
    """Make ``clients`` clients of equal size."""
    made = [client(number, texts, vocabulary, longest) for number in range(clients)]
    words = ["<pad>", "<unk>", *[f"w{number}" for number in range(RESERVED, vocabulary)]]
    return Corpus("synthetic", 2, words, made, [], f"synthetic-{clients}-{texts}-{vocabulary}-{longest}", None)


def real(data: Path) -> list[ClientData]:
    """Load the sixteen clients of FDU-MTL from ``data``."""
    experiment = files.validate(files.read(Path(__file__).resolve().parent.parent / "tune_spaces/kteps.yaml"))
    drawn = experiment.model.embedding.model_copy(update={"init": RandomInit()})
    return list(prepare(experiment.corpus, drawn, experiment.seed, data).clients)


def experiment(model: dict[str, Any], rounds: int, stack: int | str = "auto", method: str = "kteps") -> Experiment:
    """Return an experiment with the engine that this machine has.

    Args:
        model: The section ``model``.
        rounds: Number of rounds.
        stack: Clients side by side.
        method: Name of the method.
    """
    made = {
        "name": "benchmark",
        "corpus": {"name": "demo"},  # the texts are made in memory
        "model": model,
        "method": method,
        "training": {"rounds": rounds, "local_epochs": 1, "batch_size": 8, "stack": stack},
        "evaluation": {"personalize": None},
    }
    return choose_engine(Experiment.model_validate(made), False, compile_problem())
