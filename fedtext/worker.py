"""Where clients compute: one network and one workspace, used in turn by every client hosted here.

A client is a record: its encoded texts, its vocabulary rows, its private state. Nothing is built per round but the
optimizer. Legend: V vocabulary, R rows a client holds, D embedding.
"""

import itertools
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load, save
from torch import Tensor

from fedtext import wire
from fedtext.aggregation import Update
from fedtext.corpora.types import ClientData
from fedtext.errors import ClientError
from fedtext.evaluation import accuracy
from fedtext.experiment import Experiment, Personalize
from fedtext.methods.base import Inference, Model
from fedtext.models.recurrent import TABLE
from fedtext.parameters import Layout, build_network
from fedtext.seeding import generator, torch_scope
from fedtext.training.batches import Texts, shuffled
from fedtext.training.local import Problem, train
from fedtext.training.optimizer import LocalOptimizer

_OPTIMIZER = "#optimizer/"  # prefix of optimizer state kept among a client's private tensors


@dataclass(frozen=True)
class Reply:
    """What comes back from a client after its turn: an encoded payload and figures for the log, or the reason why not.

    ``payload`` is bytes as a uint8 array, which crosses processes without a copy.
    """

    client: int
    payload: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    metrics: dict[str, float] = field(default_factory=dict)
    error: str = ""


@contextmanager
def one_thread() -> Iterator[None]:
    """One torch thread: sums are then ordered alike on every machine, and two busy workers do not fight for cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Worker:
    """Hosts some clients. ``private`` holds the private parameters every client starts with, tables with V rows."""

    def __init__(
        self,
        experiment: Experiment,
        classes: int,
        vocabulary: int,
        clients: Sequence[ClientData],
        private: Mapping[str, NDArray[np.float32]],
        device: str = "cpu",
    ) -> None:
        self.experiment, self.method, self.device = experiment, experiment.method, torch.device(device)
        self.clients = {client.id: client for client in clients}
        self.network = build_network(experiment, classes).to(self.device)
        table = (vocabulary, experiment.model.embedding.dim)
        shapes = {n: table if n == TABLE else tuple(p.shape) for n, p in self.network.named_parameters()}
        self.shared = Layout({name: shape for name, shape in shapes.items() if not self.method.private(name)})
        self.everything = Layout(shapes)
        self.initial_private = private
        self.private: dict[int, dict[str, NDArray]] = {}
        self.texts: dict[tuple[int, str], Texts] = {}

    def train(self, flat: NDArray[np.float32], round_: int, client: int) -> Reply:
        """One client's turn: local training from the broadcast ``flat``, then its uplink. Never raises: a client that
        fails says so in its reply, and keeps the private state it had."""
        try:
            with one_thread():
                return self._train(flat, round_, client)
        except Exception as error:  # the boundary of a client: whatever its code raises is reported with its name
            logging.getLogger(__name__).exception("client %s failed in round %d", self.clients[client].name, round_)
            return Reply(client, error=f"{type(error).__name__}: {error}")

    def _train(self, flat: NDArray[np.float32], round_: int, client: int) -> Reply:
        start, data, training = time.perf_counter(), self.clients[client], self.experiment.training
        parameters, received = self._parameters(flat, client)
        optimizer = self._optimizer(parameters, training.optimizer.lr)
        optimizer.recall(self._remembered(client))
        texts = self._texts(client, "train")
        order = shuffled(len(texts), training.batch_size, training.local_epochs, self.experiment.seed, round_, client)
        with torch_scope(self.experiment.seed, "training", round_, client):
            outcome = train(Problem(self.method, self.network, received), map(texts.batch, order), optimizer)
        if not math.isfinite(outcome.loss):
            return Reply(client, error=f"its training loss is {outcome.loss}; a lower training.optimizer.lr may help")
        if not all(bool(torch.isfinite(parameter).all()) for parameter in parameters.values()):
            return Reply(client, error="its parameters are not finite; a lower training.optimizer.lr may help")
        payload = self._payload(flat, parameters, round_, data)
        self._keep(client, parameters, optimizer)
        metrics = {f"loss_{name}": value for name, value in outcome.terms.items()} | {"loss": outcome.loss}
        metrics |= {"samples": len(data.train), "seconds": time.perf_counter() - start}
        return Reply(client, np.frombuffer(payload, np.uint8), metrics)

    def evaluate(self, flat: NDArray[np.float32], round_: int, client: int, personalize: bool) -> dict[str, float]:
        """``Ag`` (and ``Ag_val``) of the shared branch; with ``personalize`` also ``Ap``: the mean of the readings
        while the client fine-tunes a copy of everything (KTEPS paper, equation 16). Nothing here is kept.

        Raises ClientError if the client's computation fails."""
        try:
            with one_thread():
                return self._evaluate(flat, round_, client, personalize)
        except Exception as error:  # as in train: whatever a client's code raises is reported with its name
            raise ClientError(self.clients[client].name, round_, f"{type(error).__name__}: {error}") from error

    def _evaluate(self, flat: NDArray[np.float32], round_: int, client: int, personalize: bool) -> dict[str, float]:
        parameters, received = self._parameters(flat, client)
        scores, config = self._read(client, parameters, "shared", "Ag"), self.experiment.evaluation.personalize
        if not personalize or config is None:
            return scores
        if not self.method.personalizes:
            return scores | {name.replace("Ag", "Ap"): value for name, value in scores.items()}
        return scores | self._personalize(config, parameters, received, round_, client)

    def _personalize(
        self,
        config: Personalize,
        parameters: dict[str, Tensor],
        received: dict[str, Tensor],
        round_: int,
        client: int,
    ) -> dict[str, float]:
        training = self.experiment.training
        lr = training.optimizer.lr * config.lr_multiplier
        optimizer = self._optimizer(parameters, lr)
        problem = Problem(self.method, self.network, received)
        texts, readings = self._texts(client, "train"), []
        epochs = -(-config.steps * training.batch_size // len(texts)) + 1
        order = shuffled(len(texts), training.batch_size, epochs, self.experiment.seed, round_ + 1, client)
        with torch_scope(self.experiment.seed, "personalize", round_, client):
            for _ in range(config.steps // config.every):
                steps = map(texts.batch, itertools.islice(order, config.every))
                train(problem, steps, optimizer)
                readings.append(self._read(client, parameters, config.inference, "Ap"))
        return {name: sum(reading[name] for reading in readings) / len(readings) for name in readings[0]}

    def _read(self, client: int, parameters: Mapping[str, Tensor], inference: Inference, name: str) -> dict[str, float]:
        model, data = Model(self.network, parameters), self.clients[client]
        splits = {name: ("test", data.test), f"{name}_val": ("validation", data.validation)}
        return {
            key: accuracy(self.method, model, self._texts(client, split), inference)
            for key, (split, tokens) in splits.items()
            if len(tokens)
        }

    def _texts(self, client: int, split: str) -> Texts:
        if (client, split) not in self.texts:
            pad_to = self.experiment.corpus.max_length if self.experiment.model.pooling == "mean" else None
            self.texts[client, split] = Texts(getattr(self.clients[client], split), self.device, pad_to)
        return self.texts[client, split]

    def _parameters(self, flat: NDArray[np.float32], client: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """(all parameters of a client, ready to be trained; the shared ones as received). Tables hold the client's own
        R rows: the others it can neither read nor change."""
        rows_R = self.clients[client].rows_R
        layout = self.everything.with_rows(len(rows_R))
        workspace = torch.zeros(layout.size)  # torch's own memory: aligned alike everywhere, and so are its sums
        views, sources = layout.views(workspace.numpy()), self.shared.views(flat) | dict(self.initial_private)
        own = self.private.get(client, {})
        for name, view in views.items():
            if name in own:
                view[...] = own[name]
            elif name == TABLE:
                np.take(sources[name], rows_R, axis=0, out=view, mode="clip")  # clip: without a copy
            else:
                view[...] = sources[name]
        received = {name: torch.from_numpy(views[name]) for name in self.shared.shapes}
        received = {name: tensor.to(self.device, copy=True) for name, tensor in received.items()}
        parameters = {name: torch.from_numpy(view).to(self.device).requires_grad_() for name, view in views.items()}
        return parameters, received

    def _payload(
        self, flat: NDArray[np.float32], parameters: Mapping[str, Tensor], round_: int, data: ClientData
    ) -> bytes:
        """What leaves the client: the differences of the shared parameters after the uplink's mechanisms."""
        if not self.shared.shapes:
            return b""
        own = self.experiment.own_rows
        rows = data.rows_R[: data.train_rows]
        received, delta = self.shared.views(flat), {}
        for name, before in received.items():
            after = parameters[name].detach().cpu().numpy()
            if name == TABLE:
                change = after[: data.train_rows] - before[rows]
                delta[name] = change if own else np.zeros_like(before)
                if not own:
                    delta[name][rows] = change
            else:
                delta[name] = after - before
        if own and TABLE in received:
            received = received | {TABLE: received[TABLE][rows]}
        for place, mechanism in enumerate(self.experiment.uplink):
            rng = generator(self.experiment.seed, f"uplink/{place}/{mechanism.name}", round_, data.id)
            delta = mechanism.apply(delta, received, rng)
        return wire.encode(Update(data.id, len(data.train), delta, rows if own and TABLE in received else None))

    def _optimizer(self, parameters: Mapping[str, Tensor], lr: float) -> LocalOptimizer:
        touched_rows = self.experiment.engine == "cells" and not self.method.reads_table
        return LocalOptimizer(self.experiment.training.optimizer, parameters, lr, touched_rows)

    def _keep(self, client: int, parameters: Mapping[str, Tensor], optimizer: LocalOptimizer) -> None:
        kept = {n: p.detach().cpu().numpy().copy() for n, p in parameters.items() if self.method.private(n)}
        if self.experiment.training.optimizer.persist:
            kept |= {_OPTIMIZER + name: value.cpu().numpy() for name, value in optimizer.state().items()}
        self.private[client] = kept

    def _remembered(self, client: int) -> dict[str, Tensor]:
        """The optimizer's state after the client's last turn, where it persists."""
        return {
            name.removeprefix(_OPTIMIZER): torch.from_numpy(value.copy()).to(self.device)
            for name, value in self.private.get(client, {}).items()
            if name.startswith(_OPTIMIZER)
        }

    def private_state(self, client: int) -> bytes:
        """A client's private tensors, encoded; empty before its first turn."""
        return save(self.private[client]) if self.private.get(client) else b""

    def restore(self, client: int, state: bytes) -> None:
        self.private[client] = load(state) if state else {}
