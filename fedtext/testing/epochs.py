"""A local epoch of a few clients by any engine, outside of a run, to compare engines."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedtext.client.load import Received
from fedtext.corpora.types import TokenSet
from fedtext.layout import Layout, is_table
from fedtext.methods.base import Method
from fedtext.methods.state import Tensors
from fedtext.models.parts import Parts
from fedtext.models.recurrent import RecurrentClassifier
from fedtext.runtime.threads import one_torch_thread
from fedtext.training.batches import Assembler, Texts, by_task, shuffled
from fedtext.training.config import SGD, Adam
from fedtext.training.local import Problem, Work, train
from fedtext.training.optimizer import LocalOptimizer
from fedtext.training.stack import Stack, Workspace

LONGEST, CPU = 200, torch.device("cpu")


@dataclass(frozen=True)
class Client:
    """A client's texts, in its own rows 1 to ``rows`` - 1."""

    tokens: TokenSet
    rows: int


@dataclass(frozen=True)
class Trained:
    """A client's parameters before and after training, and the mean of each loss term."""

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
    """Train clients side by side for one local epoch, in batches of 8.

    The order of batches and the initial parameters of a client depend on its own texts only, not on the other clients.
    If the method has tasks (``Method.separates``), every other text belongs to the second of two.

    Args:
        engine: The engine.
        method, config: The method and the model.
        clients: The clients.
        optimizer: The clients' optimizer.
        dtype: Type of the parameters.
        scales: Factor of each client's initial parameters; empty: 1.
        longest: Length of padded texts, if the model pads.
    """
    torch.manual_seed(3)
    network = method.network(Parts(config, 2 if config.output == "sigmoid" else 3, clients=2)).to(dtype)
    drawn = {name: parameter.detach() for name, parameter in network.named_parameters()}
    layout = Layout({name: tuple(tensor.shape) for name, tensor in drawn.items()})
    stack = Stack(layout, [client.rows for client in clients], Workspace(CPU, dtype))
    pad_to = longest if config.pooling == "mean" else None
    texts = [Texts(replace(c.tokens, tasks_N=np.arange(len(c.tokens)) % 2), c.rows, pad_to) for c in clients]
    for place, client in enumerate(clients):
        torch.manual_seed(client.rows)
        _begin(method, stack.tensors(place), drawn, scales[place] if scales else 1)
    cells, directions = engine != "reference", config.directions
    shortcut = cells and not method.reads_table
    assembler = Assembler(directions if cells else None, shortcut, CPU, engine)
    local = LocalOptimizer(
        optimizer,
        stack,
        optimizer.lr,
        cut=shortcut,
        task_of=method.task_of,
        native=engine == "native",
        scales={name: config.lr_scale(name) for name in stack.layout.shapes},
        bounds={name: between for name in stack.layout.shapes if (between := method.bounds(name))},
    )
    work = []
    for each, client in zip(texts, clients, strict=True):
        how = 8, 1, 0, 1, client.rows
        order = by_task(each.tasks_N, *how) if method.separates else shuffled(len(each), *how)
        work.append(Work(each, list(order)))
    before = [copies(stack, place) for place in range(len(clients))]
    torch.manual_seed(5)
    with one_torch_thread():
        rows_R = np.arange(clients[0].rows, dtype=np.int32) if method.reads_table else None
        given = Received(before[0], rows_R)
        shared = Tensors({name: tensor for name, tensor in before[0].items() if not method.private(name)})
        state = method.client_state(shared) if method.reads_state else None
        outcomes = train(Problem(method, network, given, state=state), assembler, local, work)
    return [
        Trained(outcome.terms, before[place], copies(stack, place), network) for place, outcome in enumerate(outcomes)
    ]


def _begin(method: Method, own: dict[str, Tensor], drawn: dict[str, Tensor], scale: float) -> None:
    """Set a client's parameters before its local update: ``drawn`` but for tables, which are drawn here."""
    for name, tensor in own.items():
        tensor.copy_(torch.randn(tensor.shape) if is_table(name) else drawn[name])
        tensor.mul_(scale)
    for name, tensor in own.items():
        tensor.copy_(own[method.mirrors(name) or name])


def stackable(method: Method | type[Method]) -> bool:
    """Whether several clients can be trained side by side with a method."""
    return not (method.reads_table or method.pooled or method.derivatives)


def copies(stack: Stack, place: int) -> dict[str, Tensor]:
    """Copy the parameters of a client in a stack."""
    return {name: tensor.clone() for name, tensor in stack.tensors(place).items()}


def difference(got: Trained, expected: Trained) -> float:
    """Compute the largest difference of a coordinate, in units of the largest change of its tensor."""
    found = 0.0
    for name, after in expected.after.items():
        change = float((after - expected.before[name]).abs().max())
        found = max(found, float((got.after[name] - after).abs().max()) / (change or 1.0))
    return found
