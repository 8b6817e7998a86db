"""Corpora of random texts, and experiments on models of a few hundred parameters."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fedtext.config.engine import choose_engine
from fedtext.config.experiment import Experiment
from fedtext.corpora.types import ClientData, Corpus, TokenSet
from fedtext.layout import is_table
from fedtext.methods.base import Method, Model
from fedtext.models.batch import Batch
from fedtext.models.parts import Parts
from fedtext.models.recurrent import RecurrentClassifier
from fedtext.models.trainable import check_parameters
from fedtext.runtime.compiled import compile_problem


def token_set(rng: np.random.Generator, texts: int, low: int, high: int, longest: int = 9) -> TokenSet:
    """Draw random texts of tokens low..high-1; the label is whether the first token is even.

    Args:
        rng: Source of random numbers.
        texts: Number of texts.
        low: The lowest token.
        high: One more than the highest token.
        longest: Most tokens of a text.
    """
    lengths = rng.integers(1, longest + 1, texts)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    tokens = rng.integers(low, high, offsets[-1]).astype(np.int32)
    return TokenSet(tokens, offsets, (tokens[offsets[:-1]] % 2).astype(np.int64))


def corpus(clients: int = 3, texts: int = 12, vocabulary: int = 40, seed: int = 0) -> Corpus:
    """Make a corpus of random texts.

    Clients have different sizes and partly overlapping vocabularies, and rows that occur in test only. Every third word
    counts as a word with a digit.

    Args:
        clients: Number of clients.
        texts: Number of train texts of the first client; each of the others has three more than the one before.
        vocabulary: Number of entries, with <pad> and <unk>.
        seed: Seed of the draws.
    """
    rng = np.random.default_rng(seed)
    made = []
    for number in range(clients):
        used = np.sort(rng.choice(np.arange(1, vocabulary), vocabulary // 2, replace=False))
        cut = len(used) - 4
        train = token_set(rng, texts + 3 * number, 1, cut + 1)
        held = np.unique(train.tokens_T)
        order = np.concatenate([held, np.setdiff1d(np.arange(1, len(used) + 1), held)])  # train's rows come first
        place = np.zeros(len(used) + 1, np.int32)
        place[order] = np.arange(1, len(order) + 1)
        test = token_set(rng, 10, 1, len(used) + 1)
        rows = np.concatenate([[0], used[order - 1]]).astype(np.int32)
        made.append(
            ClientData(
                number,
                f"client{number}",
                rows,
                len(held) + 1,
                TokenSet(place[train.tokens_T], train.offsets, train.labels_N),
                TokenSet(np.zeros(0, np.int32), np.zeros(1, np.int64), np.zeros(0, np.int64)),
                TokenSet(place[test.tokens_T], test.offsets, test.labels_N),
            )
        )
    words = ["<pad>", "<unk>", *[f"w{n}" for n in range(2, vocabulary)]]
    digits_V = (np.arange(vocabulary) % 3 == 0) & (np.arange(vocabulary) > 0)
    tests = tuple(replace(client.test, tokens_T=client.rows_R[client.test.tokens_T]) for client in made)
    return Corpus(
        *("tiny", 2, words, made, [], f"tiny-{clients}-{texts}-{vocabulary}-{seed}", None),
        tests=tests,
        digits_V=digits_V,
    )


def language_corpus(clients: int = 3, sentences: int = 12, words: int = 20, seed: int = 0) -> Corpus:
    """Make a corpus of random sentences for language models, in which a word is often followed by the next one.

    The vocabulary is <pad>, <unk>, <s>, </s>, and then words. Every client has all rows, 4 validation and 5 test
    sentences.

    Args:
        clients: Number of clients.
        sentences: Number of train sentences of the first client; each of the others has two more than the one before.
        words: Number of words.
        seed: Seed of the draws.
    """
    rng = np.random.default_rng(seed)
    rows_R = np.arange(4 + words, dtype=np.int32)

    def drawn(count: int) -> TokenSet:
        made = []
        for length in rng.integers(1, 7, count):
            word = (rng.integers(words) + np.cumsum(rng.integers(1, 3, length))) % words
            made.append(np.concatenate([[2], 4 + word, [3]]))
        offsets = np.cumsum([0, *map(len, made)])
        tokens_T, size = np.concatenate(made).astype(np.int32), np.diff(offsets) * 3  # as if a word had two letters
        return TokenSet(tokens_T, offsets, np.zeros(count, np.int64), bytes_N=size)

    data = [
        ClientData(n, f"client{n}", rows_R, len(rows_R), drawn(sentences + 2 * n), drawn(4), drawn(5))
        for n in range(clients)
    ]
    entries = ["<pad>", "<unk>", "<s>", "</s>", *[f"w{n}" for n in range(words)]]
    digest = f"tiny-language-{clients}-{sentences}-{words}-{seed}"
    tests = tuple(client.test for client in data)
    return Corpus("tiny language", len(entries) - 1, entries, data, [], digest, None, tests=tests)


def model_and_batch(method: Method, texts: int = 5, clients: int = 1, task: int = 0) -> tuple[Model, Batch]:
    """Make a network with random parameters, and a batch of texts of three classes, in float64.

    Args:
        method: The method.
        texts: Number of texts, at most 5.
        clients: Number of clients that the network is built for.
        task: The batch's task.

    Returns:
        The network, whose tables have 11 rows, and the batch.

    Raises:
        NetworkError: A parameter cannot be trained.
    """
    config = RecurrentClassifier.model_validate({"embedding": {"dim": 4}, "hidden": 3, "head": {"hidden": 5}})
    torch.manual_seed(1)
    network = method.network(Parts(config, 3, clients)).double()
    check_parameters(network, config.fixes)
    parameters = {n: p.detach().clone().requires_grad_() for n, p in network.named_parameters()}
    for name in filter(is_table, parameters):
        parameters[name] = torch.randn(11, 4, dtype=torch.float64, requires_grad=True)
    lengths_B = torch.tensor([6, 2, 4, 1, 3])[:texts]
    tokens_BT = torch.randint(1, 11, (texts, 6)) * (torch.arange(6) < lengths_B[:, None])
    return Model(network, parameters), Batch(tokens_BT, lengths_B, torch.tensor([0, 2, 1, 1, 0])[:texts], task=task)


TRAINING = {"rounds": 2, "local_epochs": 2, "batch_size": 4, "optimizer": {"lr": 0.1}}


def experiment(method: Any = "fedavg", **changes: Any) -> Experiment:
    """Make the experiment of ``configured``, with the engine of a run on this machine's CPUs."""
    return choose_engine(configured(method, **changes), False, compile_problem())


def configured(method: Any = "fedavg", **changes: Any) -> Experiment:
    """Make an experiment of two rounds with a model of a few hundred parameters.

    Args:
        method: The method. With fedsgd it has one local epoch and all clients in each round.
        changes: Sections to replace.
    """
    base: dict[str, Any] = {
        "name": "tiny",
        "corpus": {"name": "demo", "max_length": 9},
        "model": {"embedding": {"dim": 5}, "hidden": 4, "head": {"hidden": 3}},
        "method": method,
        "training": TRAINING,
        "evaluation": {"personalize": {"steps": 4, "every": 2, "lr_multiplier": 0.1}},
    }
    base |= changes
    if method in ("fedsgd", {"name": "fedsgd"}):
        base["training"] = base["training"] | {"local_epochs": 1}
        base["participation"] = base.get("participation", {}) | {"fraction": 1, "dropout": 0}
    return Experiment.model_validate(base)


def language_model(method: Any = "fedavg", tied: bool = True, **changes: Any) -> Experiment:
    """Make an experiment as ``experiment`` does, for a language model on ``language_corpus``.

    Args:
        method: The method.
        tied: Whether the output layer is the embedding.
        changes: Sections to replace.
    """
    embedding = {"dim": 6 if tied else 5, "init": {"random": {"std": 1.0}}}  # with few units rows must differ more
    model = {"name": "gru_lm", "embedding": embedding, "hidden": 6, "tied": tied}
    base = {"corpus": {"name": "ptb"}, "model": model, "evaluation": {"personalize": None}}
    return experiment(method, **(base | changes))
