"""A trained model's network, with the parameters of one client or the shared ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedtext.config.experiment import Experiment
from fedtext.errors import UserError
from fedtext.layout import is_table
from fedtext.methods import base
from fedtext.models.places import places_of
from fedtext.models.ranks import Ranks
from fedtext.parameters import build_network, table_rows
from fedtext.state import model_folder
from fedtext.state.trained import ClientPart, Trained


@dataclass(frozen=True)
class Bound:
    """A network with one client's parameters, or the shared ones, and its vocabulary."""

    model: base.Model
    vocabulary: list[str]
    task: int
    inference: base.Inference


def named_clients(trained: Trained) -> tuple[str, ...]:
    """Return the names of the clients whose personal models are available."""
    method = trained.experiment.method
    whole = trained.experiment.complete and method.shares
    return trained.names if whole or method.separates else tuple(trained.parts)


def bind(trained: Trained, client: str | None) -> Bound:
    """Return a model's network with the shared parameters, and those of a client.

    Args:
        trained: The trained model.
        client: Name of the client; None: the shared model.

    Raises:
        UserError: The model has no such client's part, no whole shared model, or features beside words; or it is
            damaged.
    """
    experiment = trained.experiment
    method = experiment.method
    if trained.features:
        raise UserError(
            f"this model needs {trained.features} features beside the words of a text, which predict does not "
            "accept: train it with corpus.features: []"
        )
    part = _part(trained, client)
    vocabulary = trained.vocabulary if part.vocabulary is None else part.vocabulary
    assert vocabulary is not None, "the part of a client with a vocabulary of its own has it"
    made, sizes = _without_store(experiment), (trained.classes, trained.clients, trained.features)
    network = build_network(made, *sizes, tokenizer=trained.tokenizer)
    network.eval()
    held = {**trained.shared, **part.state}
    if client is not None:
        ranks = Ranks.of(experiment.model, experiment.seed, trained.clients)
        held = ranks.masked(held, trained.names.index(client))
    state = {name: torch.from_numpy(np.array(value)) for name, value in held.items()}
    rows = len(table_rows(experiment, len(vocabulary), 0))
    for name, tensor in network.named_parameters():
        if name in state:
            continue
        if mirrored := method.mirrors(name):
            state[name] = state[mirrored]
        elif is_table(name) and client is not None:
            raise UserError(f"the model is damaged (client {client} has no {name}): {model_folder.AGAIN}")
        elif is_table(name):  # of a private branch, which predictions of the shared model do not use
            state[name] = torch.zeros(rows, tensor.shape[1])
        else:
            state[name] = tensor.detach()
    _fill(network, state, rows)
    task = trained.names.index(client) if client in trained.names and client is not None else 0
    return Bound(base.Model(network, state), vocabulary, task, "shared" if client is None else "both")


def _part(trained: Trained, client: str | None) -> ClientPart:
    """Return the client's private parameters; empty for the shared model, or if the method shares everything."""
    experiment, known = trained.experiment, named_clients(trained)
    method = experiment.method
    alone = experiment.complete and method.shares and not method.separates
    if client is None:
        if alone:
            return ClientPart({})
        remedy = f"name a client, such as {_some(known)}" if known else "train it with save.model=clients"
        raise UserError(f"method {method.name} has no whole shared model: {remedy}")
    if client in trained.parts:
        return trained.parts[client]
    if client in trained.names and (method.separates or experiment.save.model == "clients"):
        return ClientPart({})
    remedy = f"it has {_some(known)}" if known else "train it with save.model=clients"
    raise UserError(f"this model has no part of client {client}: {remedy}")


def _some(names: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _without_store(experiment: Experiment) -> Experiment:
    """Return the experiment with a model that stores no outputs of fixed layers: a text is seldom predicted twice."""
    adapter = getattr(experiment.model, "adapter", None)
    if adapter is None:
        return experiment
    model = experiment.model.model_copy(update={"adapter": adapter.model_copy(update={"cache_mb": 0.0})})
    return experiment.model_copy(update={"model": model})


def _fill(network: nn.Module, state: dict[str, Any], rows: int) -> None:
    """Replace the network's parameters by those of a state, whatever the sizes of tables.

    Args:
        network: The network.
        state: Tensors by name.
        rows: Number of rows of a table.

    Raises:
        UserError: The state is that of another network.
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in network.named_parameters()}
    shapes = {name: (rows, *shape[1:]) if is_table(name) else shape for name, shape in shapes.items()}
    parameters: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if tuple(tensor.shape) != shapes.get(name):
            asked = f"has the shape {list(shapes[name])}" if name in shapes else "does not exist"
            raise UserError(
                f"the model is damaged ({name}, of shape {list(tensor.shape)}, {asked} in its experiment): "
                f"{model_folder.AGAIN}"
            )
        parameters[name] = nn.Parameter(tensor, requires_grad=False)
    places = places_of(network)
    for name, parameter in places.everywhere(parameters).items():
        place, leaf = places.of[name]
        place[leaf] = parameter
