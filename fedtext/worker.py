"""Where clients compute: one network and one workspace, used in turn by every client hosted here.

A client is a record: its encoded texts, its vocabulary rows, its private state. Nothing is built per round.
Legend: V vocabulary, R rows a client holds, D embedding.
"""

import itertools
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load, save
from torch import Tensor

from fedtext.auditing import Auditing
from fedtext.corpora.rows import within
from fedtext.corpora.types import ClientData
from fedtext.errors import ClientError
from fedtext.evaluation import SPLITS, Reading, averaged, read, unchanged
from fedtext.experiment import Experiment, Personalize
from fedtext.layout import Layout
from fedtext.methods.base import Inference, Model
from fedtext.models.config import Recurrent, is_table
from fedtext.parameters import build_network, table_rows
from fedtext.received import Received, load_into
from fedtext.reply import Reply
from fedtext.seeding import torch_scope
from fedtext.threads import one_torch_thread
from fedtext.training.batches import Assembler, Texts
from fedtext.training.choice import check_engine
from fedtext.training.local import Problem, Work, train
from fedtext.training.optimizer import LocalOptimizer
from fedtext.training.reading import order_of, texts_of
from fedtext.training.room import Room
from fedtext.training.stack import Stack
from fedtext.uplink import Uplink

_OPTIMIZER = "#optimizer/"  # prefix of optimizer state kept among a client's private tensors


Turn = tuple[Reply, dict[str, NDArray]]  # with the private tensors that a client keeps after it


class Worker:
    """Hosts some clients. ``private`` holds the private parameters every client starts with, tables with V rows;
    ``corpus_clients`` counts the corpus's clients if not all of them are hosted here, ``words`` is the vocabulary
    itself, which only audits look at. Clients and words come with <pad>, and with the corpus's ``features``, whether
    the model has rows for them or not."""

    def __init__(
        self,
        experiment: Experiment,
        classes: int,
        vocabulary: int,
        clients: Sequence[ClientData],
        private: Mapping[str, NDArray[np.float32]],
        device: str = "cpu",
        corpus_clients: int | None = None,
        words: Sequence[str] = (),
        features: int = 0,
    ) -> None:
        self.experiment, self.method, self.device = experiment, experiment.method, torch.device(device)
        check_engine(experiment, self.device.type == "cuda")
        rows = self.rows = table_rows(experiment, vocabulary, features)
        self.beside = features if experiment.model.joins else 0
        self.clients = {client.id: within(client, rows, self.beside) for client in clients}
        parts = classes, corpus_clients or len(clients), features
        self.network = build_network(experiment, *parts).to(self.device)
        table = (len(rows), experiment.model.embedding.dim)
        shapes = {n: table if is_table(n) else tuple(p.shape) for n, p in self.network.named_parameters()}
        self.shared = Layout({name: shape for name, shape in shapes.items() if not self.method.private(name)})
        self.initial_private = private
        self.private: dict[int, dict[str, NDArray]] = {}
        self.texts: dict[tuple[int, str], Texts] = {}
        cells, triton, model = experiment.engine != "reference", experiment.engine == "triton", experiment.model
        directions = model.directions if cells and isinstance(model, Recurrent) else None
        cut = cells and not experiment.reads_table
        self.training = Assembler(directions, cut, self.device, triton, experiment.language)
        self.reading = replace(self.training, cut=False)
        self.room = Room(Layout(shapes), experiment.training.optimizer, self.training.cut, self.device)
        self.uplink = Uplink(experiment, self.shared)
        self.audits = Auditing(experiment, self.shared, words[rows.start : rows.stop], private, parts)

    def train(self, flat: NDArray[np.float32], round_: int, members: Sequence[int]) -> list[Reply]:
        """The turn of a stack of clients: local training from the broadcast ``flat``, then each one's uplink. Never
        raises: a client that fails says so in its reply, and keeps the private state it had."""
        turns, fault = self._attempt(flat, round_, members)
        if fault and len(members) > 1:  # the others are not to suffer, and who it was has to be found out
            alone = [turn for client in members for turn in self._attempt(flat, round_, [client])[0]]
            if not any(reply.error for reply, _ in alone):
                fault = f"{fault}, and only in a stack: set training.stack to 1"
                alone = [(Reply(client, error=fault), {}) for client in members]
            turns = alone
        for reply, kept in turns:
            if not reply.error:
                self.private[reply.client] = kept
        return [reply for reply, _ in turns]

    def _attempt(self, flat: NDArray[np.float32], round_: int, members: Sequence[int]) -> tuple[list[Turn], str]:
        """The turns of a stack, and what went wrong with all of it. Nothing is kept yet."""
        try:
            with one_torch_thread():
                return self._train(flat, round_, members), ""
        except Exception as error:  # the boundary of a client: whatever its code raises is reported with its name
            names = ", ".join(self.clients[client].name for client in members)
            logging.getLogger(__name__).exception("%s failed in round %d", names, round_)
            fault = f"{type(error).__name__}: {error}"
            return [(Reply(client, error=fault), {}) for client in members], fault

    def _train(self, flat: NDArray[np.float32], round_: int, members: Sequence[int]) -> list[Turn]:
        start, config, seed = _clocks(), self.experiment.training, self.experiment.seed
        members = sorted(members, key=lambda client: (-len(self.clients[client].train), client))  # see Stack
        stack = self._stack(flat, members)
        optimizer = self.room.optimizer(stack, config.optimizer.lr)
        work = []
        for place, client in enumerate(members):
            optimizer.recall(place, self._remembered(client))
            texts = self._texts(client, "train")
            if not len(texts):
                raise ValueError("it has no training texts")
            work.append(Work(texts, list(order_of(self.experiment, texts, config.local_epochs, round_, client))))
        problem = Problem(self.method, self.network, self._received(flat, members))
        with torch_scope(seed, "training", round_, min(members)):
            outcomes = train(problem, self.training, optimizer, work)
        shared = [spent / len(members) for spent in _since(start)]
        turns: dict[int, Turn] = {}
        for place, (client, outcome) in enumerate(zip(members, outcomes, strict=True)):
            fault = outcome.fault(stack.flat_CP[place], stack.tables(stack.table_ND)[place])
            if fault:
                turns[client] = Reply(client, error=fault), {}
                continue
            start, data, parameters = _clocks(), self.clients[client], stack.tensors(place)
            payload, said = self.uplink.payload(flat, parameters, round_, data)
            self.audits.observe(payload, flat, parameters, round_, data)
            metrics = {f"loss_{name}": value for name, value in outcome.terms.items()} | {"loss": outcome.loss}
            metrics |= said
            seconds, cpu_seconds = (share + own for share, own in zip(shared, _since(start), strict=True))
            metrics |= {"samples": len(data.train), "seconds": seconds, "cpu_seconds": cpu_seconds}
            reply = Reply(client, payload, payload.nbytes, metrics)
            turns[client] = reply, self._kept(parameters, optimizer, place)
        return [turns[client] for client in sorted(members)]

    def _kept(self, parameters: Mapping[str, Tensor], optimizer: LocalOptimizer, place: int) -> dict[str, NDArray]:
        """What stays with a client after its turn, in which it had this place."""
        private, mirrors = self.method.private, self.method.mirrors
        kept = {n: p.cpu().numpy().copy() for n, p in parameters.items() if private(n) and not mirrors(n)}
        if self.experiment.training.optimizer.persist:
            kept |= {_OPTIMIZER + name: value.cpu().numpy().copy() for name, value in optimizer.state(place).items()}
        return kept

    def evaluate(
        self,
        flat: NDArray[np.float32],
        round_: int,
        members: Sequence[int],
        personalize: bool,
        splits: Sequence[str] = SPLITS,
    ) -> dict[int, Reading]:
        """Each client's ``Ag`` (and ``Ag_val``) of the shared branch, or where the shared parameters are no whole model
        ``Ap_0``, with the client's own; with ``personalize`` also ``Ap``: the mean of the readings while the client
        fine-tunes a copy of everything (KTEPS paper, equation 16). And what audits find, and what is pooled over
        clients: of classes only with ``Ag`` or ``Ap_0``. Nothing here is kept.

        Raises ClientError if a client's computation fails."""
        readings = {}
        for client in members:
            try:
                with one_torch_thread():
                    reading = readings[client] = self._evaluate(flat, round_, client, personalize, splits)
                    reading.figures.update(self.audits.figures(client, round_, flat))
            except Exception as error:  # as in train: whatever a client's code raises is reported with its name
                raise ClientError(self.clients[client].name, round_, f"{type(error).__name__}: {error}") from error
        return readings

    def _evaluate(
        self, flat: NDArray[np.float32], round_: int, client: int, personalize: bool, splits: Sequence[str]
    ) -> Reading:
        stack = self._stack(flat, [client])
        name, config = "Ag" if self.method.complete else "Ap_0", self.experiment.evaluation.personalize
        reading = self._read(client, stack, "shared", name, splits, scored=True)
        if personalize and config is not None:
            if self.method.personalizes:
                for name, way in config.readings().items():
                    reading.add(self._personalize(name, way, flat, round_, client, splits))
            else:
                reading.add(unchanged(reading))
        return reading

    def _personalize(
        self,
        name: str,
        config: Personalize,
        flat: NDArray[np.float32],
        round_: int,
        client: int,
        splits: Sequence[str],
    ) -> Reading:
        stack = self._stack(flat, [client])
        training = self.experiment.training
        lr = training.optimizer.lr * config.lr_multiplier
        optimizer = self.room.optimizer(stack, lr)
        problem = Problem(self.method, self.network, self._received(flat, [client]))
        texts, readings = self._texts(client, "train"), []
        epochs = -(-config.steps * training.batch(len(texts)) // len(texts)) + 1
        order = order_of(self.experiment, texts, epochs, round_ + 1, client)
        with torch_scope(self.experiment.seed, "personalize", round_, client):
            for _ in range(config.steps // config.every):
                work = Work(texts, list(itertools.islice(order, config.every)))
                train(problem, self.training, optimizer, [work])
                readings.append(self._read(client, stack, config.inference, name, splits, scored=False))
        return averaged(readings)

    def _read(
        self, client: int, stack: Stack, inference: Inference, name: str, splits: Sequence[str], scored: bool
    ) -> Reading:
        """What is read of the client's texts of some splits."""
        model, data, whole = Model(self.network, stack.tensors(0)), self.clients[client], Reading()
        for split in splits:
            if len(getattr(data, split)):
                texts, key = self._texts(client, split), name if split == "test" else f"{name}_val"
                whole.add(read(self.method, model, texts, self.reading, inference, key, scored))
        return whole

    def _texts(self, client: int, split: str) -> Texts:
        if (client, split) not in self.texts:
            self.texts[client, split] = texts_of(self.experiment, self.clients[client], split)
        return self.texts[client, split]

    def _stack(self, flat: NDArray[np.float32], members: Sequence[int]) -> Stack:
        """All parameters of some clients, ready to be trained. Tables hold a client's own R rows: the others it can
        neither read nor change."""
        stack = self.room.stack([len(self.clients[client].rows_R) for client in members])
        sources = self.shared.views(flat) | dict(self.initial_private)
        for place, client in enumerate(members):
            own = self.private.get(client, {})
            for name, tensor in stack.tensors(place).items():
                if name in own:
                    load_into(tensor, own[name])
                else:
                    rows_R = self.clients[client].rows_R if is_table(name) else None
                    load_into(tensor, sources[self.method.mirrors(name) or name], rows_R)
        return stack

    def _received(self, flat: NDArray[np.float32], members: Sequence[int]) -> Mapping[str, Tensor]:
        rows_R = self.clients[members[0]].rows_R if len(members) == 1 else None
        return Received(self.shared.views(flat), rows_R, self.device)

    def _remembered(self, client: int) -> dict[str, Tensor]:
        """The optimizer's state after the client's last turn, where it persists."""
        return {
            name.removeprefix(_OPTIMIZER): torch.from_numpy(value.copy()).to(self.device)
            for name, value in self.private.get(client, {}).items()
            if name.startswith(_OPTIMIZER)
        }

    def private_states(self, members: Sequence[int]) -> dict[int, bytes]:
        """Clients' private tensors, encoded; empty before a client's first turn."""
        return {client: save(self.private[client]) if self.private.get(client) else b"" for client in members}

    def restore(self, states: Mapping[int, bytes]) -> None:
        for client, state in states.items():
            self.private[client] = load(state) if state else {}

    def adopt(self, clients: Sequence[ClientData], states: Mapping[int, bytes]) -> None:
        """Hosts these clients too, with the private states they bring."""
        self.clients |= {client.id: within(client, self.rows, self.beside) for client in clients}
        self.restore(states)

    def release(self, members: Sequence[int]) -> dict[int, bytes]:
        """Hosts these clients no longer; their private states."""
        states = self.private_states(members)
        for client in members:
            del self.clients[client]
            self.private.pop(client, None)
        self.texts = {key: texts for key, texts in self.texts.items() if key[0] not in states}
        return states


def _clocks() -> tuple[float, float]:
    """Wall and CPU seconds of this thread, which does all of a turn's work."""
    return time.perf_counter(), time.thread_time()


def _since(start: tuple[float, float]) -> list[float]:
    return [now - then for now, then in zip(_clocks(), start, strict=True)]
