"""W2 of local_loop.py: a client of RR-LDP, and a plain torch loop.

W2: texts as sets of 5,000 buckets, dense layers 100-50-25, Adam at 0.001, one epoch of 250 texts in batches of 32, then
one-bit quantisation and randomised response of all weights. The texts are synthetic (Zipf's law, about 120 words and at
most 200), or whole IMDB reviews whose words are hashed (real.py).
``naive`` is a straightforward loop: dense vectors through a DataLoader, torch's optimizer with its defaults, copies of
the state dict, two Bernoulli draws per tensor. ``ours`` is a worker's whole local update: resetting its memory,
training, checks, privacy, and the payload's bytes.
"""

import copy
import itertools
import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from benchmarks import real, synthetic
from fedtext.client.worker import Worker
from fedtext.config.engine import choose_engine
from fedtext.config.experiment import Experiment
from fedtext.corpora.types import ClientData
from fedtext.layout import Layout
from fedtext.parameters import initial
from fedtext.runtime.compiled import compile_problem

CLIENTS, TEXTS, BUCKETS, BATCH, LR, Q, EPSILON = 10, 250, 5_000, 32, 0.001, 0.001, 1.0
ROWS = 1 + BUCKETS  # the first is <pad>


def corpus(data: Path | None) -> list[ClientData]:
    """Make synthetic clients, or with a folder of corpora those of IMDB. Raises UserError if IMDB is not in it."""
    if data:
        return real.reviews(data, CLIENTS, TEXTS, BUCKETS)
    return [synthetic.client(number, TEXTS, ROWS) for number in range(CLIENTS)]


def dense(client: ClientData) -> TensorDataset:
    """Return the client's texts as vectors of zeros and ones."""
    vectors, tokens = torch.zeros(len(client.train), BUCKETS), client.train
    for text in range(len(tokens)):
        vectors[text, client.rows_R[tokens.tokens_T[tokens.offsets[text] : tokens.offsets[text + 1]]] - 1] = 1
    return TensorDataset(vectors, torch.from_numpy(tokens.labels_N))


def respond(delta: Tensor) -> Tensor:
    """Apply quantisation and randomised response, with a draw for each."""
    bits = torch.bernoulli((delta.clamp(-Q, Q) + Q) / (2 * Q))
    kept = torch.bernoulli(torch.full_like(bits, 1 - 1 / (1 + math.exp(EPSILON))))
    return bits * kept + (1 - bits) * (1 - kept)


def naive(clients: list[ClientData]) -> Callable[[int], None]:
    data = [dense(client) for client in clients]
    torch.manual_seed(0)
    layers = [nn.Linear(BUCKETS, 100), nn.ReLU(), nn.Linear(100, 50), nn.ReLU(), nn.Linear(50, 25), nn.ReLU()]
    server, count = nn.Sequential(*layers, nn.Linear(25, 2)), itertools.count()

    def run(turns: int) -> None:
        for at in itertools.islice(count, turns):
            model = copy.deepcopy(server)
            before = copy.deepcopy(server.state_dict())
            optimizer = torch.optim.Adam(model.parameters(), lr=LR)
            for vectors_BV, labels_B in DataLoader(data[at % len(data)], BATCH, shuffle=True):
                optimizer.zero_grad()
                cross_entropy(model(vectors_BV), labels_B).backward()
                optimizer.step()
            {name: respond(after - before[name]) for name, after in model.state_dict().items()}

    return run


def ours(clients: list[ClientData], device: str = "cpu") -> Callable[[int], None]:
    experiment = Experiment.model_validate(
        {
            "name": "w2",
            "corpus": "demo",
            "model": "bag",
            "method": "fedavg",
            "uplink": [{"quantize": {"q": Q}}, {"randomized_response": {"epsilon": EPSILON}}],
            "training": {"local_epochs": 1, "batch_size": BATCH, "optimizer": {"name": "adam", "lr": LR}},
        }
    )
    corpus = synthetic.corpus(0, 0, ROWS)
    experiment = choose_engine(experiment, device != "cpu", compile_problem())
    shared, private = initial(experiment, corpus, len(clients))
    worker = Worker(experiment, corpus, clients, private, device)
    flat = Layout({name: tensor.shape for name, tensor in shared.items()}).pack(shared)
    count = itertools.count()

    def run(turns: int) -> None:
        for at in itertools.islice(count, turns):
            (reply,) = worker.train(flat, at, [at % len(clients)])
            assert not reply.error, reply.error

    return run


def variants(clients: list[ClientData]) -> dict[str, Callable[[int], None]]:
    """Return the two loops; each computes the local updates of the given number of clients."""
    return {"naive": naive(clients), "ours": ours(clients)}
