"""The clients that are hosted in one place: their texts, their private state, and the memory in which they are trained.

A client is a record: its encoded texts, its vocabulary rows, its private state. Nothing is built in each round.
Legend: V vocabulary, R rows of a client, D embedding, N rows of all tables of a stack.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtext.client.adversaries import Adversaries
from fedtext.client.given import Given
from fedtext.client.load import Received, chosen_rows, load_alike, load_into
from fedtext.client.making import assembler_of, optimizer_of
from fedtext.client.own_rows import OwnRows
from fedtext.client.private import PrivateStates
from fedtext.client.recent import add, dropped, kept_clients, remove
from fedtext.client.texts import of_classes, only_tests, order_of, texts_of, union_of
from fedtext.config.engine import check_engine
from fedtext.config.experiment import Experiment
from fedtext.corpora.rows import with_all_rows, within
from fedtext.corpora.types import ClientData, Corpus
from fedtext.layout import TABLE, Layout, is_table
from fedtext.methods import layouts
from fedtext.methods.base import Phase
from fedtext.methods.state import Local, State, Tensors, grouped
from fedtext.models.initial_table import source_of
from fedtext.models.ranks import Ranks
from fedtext.parameters import build_network, table_rows, with_tables
from fedtext.runtime.devices import to_device
from fedtext.state.noise_key import NoiseKey, noise_key
from fedtext.text.tokens import UNK_ID
from fedtext.training.batches import Texts
from fedtext.training.local import Outcome, Problem, Work, train
from fedtext.training.optimizer import LocalOptimizer
from fedtext.training.phases import moving, moving_rows, shrinking
from fedtext.training.stack import Stack
from fedtext.training.workspace_pool import WorkspacePool

# Prefixes of names of private tensors that are the state of a client's optimizer, and of its method.
OPTIMIZER, STATE = "#optimizer/", "#state/"


class Host:
    """Hosts some clients of a corpus.

    Args:
        experiment: The experiment.
        corpus: The corpus. Its list of clients may be empty; ``corpus_clients`` is then their number.
        clients: The clients that are hosted, with rows for <pad> and features even if the model has none.
        unshared: Initial values of the parameters that are not exchanged with the server, tables with V rows, or one
            such table for each source. Those that ``with_tables`` can make may be left out.
        device: The torch device on which clients are trained.
        corpus_clients: Number of the corpus's clients; None: that of ``clients``.
        noise: The run's key; None: it is made here.
    """

    def __init__(
        self,
        experiment: Experiment,
        corpus: Corpus,
        clients: Sequence[ClientData],
        unshared: Mapping[str, NDArray[np.float32]],
        device: str = "cpu",
        corpus_clients: int | None = None,
        noise: NoiseKey | None = None,
    ) -> None:
        self.experiment, self.method, self.device = experiment, experiment.method, torch.device(device)
        self.corpus, self.parts = corpus, (corpus.classes, corpus_clients or len(clients), corpus.features)
        participants = self.parts[1] + self.method.pooled
        self.noise = noise or noise_key(experiment, corpus.content, participants)
        check_engine(experiment, self.device.type)
        self.rows = table_rows(experiment, len(corpus.vocabulary), corpus.features)
        self.digits_V = None if corpus.digits_V is None else corpus.digits_V[self.rows.start : self.rows.stop]
        self.ranks = Ranks.of(experiment.model, experiment.seed, participants)
        self.own_rows = OwnRows(experiment, self.noise, self.rows, self.digits_V)
        self.beside = corpus.features if experiment.model.joins else 0
        self.adversaries = Adversaries(experiment, corpus, self.parts[1])
        self.texts: dict[tuple[int, str], Texts] = {}
        self.clients = kept_clients(clients, self._hosted, lambda client: dropped(self.texts, client))
        self.build = partial(build_network, experiment, *self.parts, tokenizer=corpus.tokenizer)
        self.network = self.build().to(self.device)
        table = (len(self.rows), experiment.model.embedding.dim)
        shapes = {n: table if is_table(n) else tuple(p.shape) for n, p in self.network.named_parameters()}
        self.shared = Layout({name: shape for name, shape in shapes.items() if experiment.shared(name)})
        self.down = layouts.received(self.method, self.shared, experiment.model.fixes, experiment.uplink)
        union = experiment.evaluation.union
        self.union = within(union_of(union, corpus, experiment.seed), self.rows, self.beside) if union else None
        self.alike = {n for n in self.shared.shapes if not (is_table(n) or self.ranks.rank_K is not None)}
        unshared = with_tables(experiment, corpus, unshared, shapes)
        self.given = Given(self.shared, unshared, experiment.fixed, self.device)
        self.private = PrivateStates()
        self.training = assembler_of(experiment, self.device)
        self.evaluating = replace(self.training, cut=False)
        make = optimizer_of(experiment, self.training.cut, shapes)
        constants = self.given.constants()
        for name, tensor in constants.items():  # instead of weights that the network never uses
            self.network.get_parameter(name).data = tensor
        layout = Layout({name: shape for name, shape in shapes.items() if name not in constants})
        self.workspaces = WorkspacePool(layout, self.device, make, constants)

    def _hosted(self, client: ClientData) -> ClientData:
        own = within(self.adversaries.hosted(client), self.rows, self.beside)
        return with_all_rows(own, len(self.rows)) if self.experiment.whole_table else own

    def union_texts(self, client: int) -> tuple[Texts, NDArray[np.int32]]:
        """Return all clients' test texts, encoded for a client, and the U rows of the table that they use."""
        data = self.union
        assert data is not None, "evaluation.union asks for them"
        if self.method.separates:
            return texts_of(self.experiment, replace(data, id=client), "test"), data.rows_R
        if self.experiment.own_vocabularies:
            known_U = np.isin(data.rows_R, self.clients[client].rows_R)
            if (public_SV := self.corpus.public_SV) is not None:
                known_U |= public_SV[source_of(self.experiment.seed, client, len(public_SV))][
                    data.rows_R + self.rows.start
                ]
            unknown = np.searchsorted(data.rows_R, UNK_ID - self.rows.start)
            tokens_T = np.where(known_U[data.test.tokens_T], data.test.tokens_T, unknown).astype(np.int32)
            data = replace(data, test=replace(data.test, tokens_T=tokens_T))
            return texts_of(self.experiment, data, "test"), data.rows_R
        if (data.id, "test") not in self.texts:
            self.texts[data.id, "test"] = texts_of(self.experiment, data, "test")
        return self.texts[data.id, "test"], data.rows_R

    def test_in_all_words(self, client: int) -> ClientData:
        """Return a client with its test texts encoded in the words of all clients, also those that are not its own."""
        whole = only_tests(self.experiment, self.corpus, client)
        name = self.clients[client].name if client in self.clients else whole.name
        return within(replace(whole, name=name), self.rows, self.beside)

    def texts_of(self, client: int, split: str) -> Texts:
        """Return a split of a client's texts, prepared for the model. It is cached."""
        if (client, split) not in self.texts:
            made = texts_of(self.experiment, self.clients[client], split)
            self.texts[client, split] = made if self.experiment.language else of_classes(made, self.parts[0])
        return self.texts[client, split]

    def stack(self, flat: NDArray[np.float32], members: Sequence[int]) -> Stack:
        """Load the parameters of some clients, which received ``flat``, into the workspace.

        Tables have a client's own R rows: its updates neither use nor change the others.
        """
        stack = self.workspaces.stack([len(self.clients[client].rows_R) for client in members])
        sources = self.given.all(flat)
        load_alike(stack, self.given.broadcast(flat), self.shared, self.alike)
        for place, client in enumerate(members):
            own, theirs = self.private.get(client, {}), self.ranks.masked(sources, client)
            for name, tensor in stack.loaded(place).items():
                if name in own:
                    load_into(tensor, own[name])
                elif is_table(name):
                    self.own_rows.load(tensor, theirs, client, name, self.clients[client].rows_R)
                elif name not in self.alike:
                    load_into(tensor, theirs[self.method.mirrors(name) or name])
        return stack

    def rows_of(self, flat: NDArray[np.float32], client: int, name: str, rows_X: NDArray[np.int32]) -> Tensor:
        """Return the initial values of some rows of a client's table.

        Args:
            flat: The shared parameters, flat.
            client: Id of the client.
            name: Name of the table.
            rows_X: Rows of the common table.

        Returns:
            The values, shape (X, D), on the host's device.
        """
        table_XD = torch.empty(len(rows_X), self.experiment.model.embedding.dim, device=self.device)
        self.own_rows.load(table_XD, self.given.all(flat), client, name, rows_X)
        return table_XD

    def problem(self, flat: NDArray[np.float32], members: Sequence[int]) -> Problem:
        """Return the optimization problem of these clients after they received ``flat``."""
        rows_R = self.clients[members[0]].rows_R if self.experiment.reads_table and len(members) == 1 else None
        given = self.given.received(flat)
        received = self.ranks.masked(given, members[0])  # of a transformer, whose clients are no stack
        state = self.state(flat, members[0]) if self.method.reads_state else None
        return Problem(self.method, self.network, Received(received, rows_R), state=state)

    def state(self, flat: NDArray[np.float32], client: int) -> State:
        """Return the state of a client after its last local update, or before its first one."""
        kept = self.kept(client, STATE)
        return grouped(kept) if kept else self.method.client_state(self._moved(flat, client))

    def _moved(self, flat: NDArray[np.float32], client: int) -> Tensors:
        """Return the received parameters that clients move, tables with the client's own rows."""
        held, fixes = Received(self.given.received(flat), self.clients[client].rows_R), self.experiment.model.fixes
        return Tensors({name: held[name] for name in held if not fixes(name)})

    def local(self, flat: NDArray[np.float32], client: int, stack: Stack) -> Local:
        """Return the local update of a client before its first step.

        Args:
            flat: The parameters that the client received, with the server's state if clients receive it.
            client: Id of the client.
            stack: Parameters of this client alone.
        """
        rows_R, server = self.clients[client].rows_R, dict[str, Tensor]()
        if self.method.sends_state:
            views = self.down.views(self.given.broadcast(flat))
            for name, values in ((n, v) for n, v in views.items() if n not in self.shared.shapes):
                own = chosen_rows(values, rows_R) if name.rpartition("/")[2] == TABLE else values
                server[name] = own if isinstance(own, Tensor) else torch.tensor(own)
        received, state = self._moved(flat, client), self.state(flat, client)
        samples = len(self.clients[client].train)
        return Local(received, state, grouped(server), Tensors(stack.tensors(0)), samples, {})

    def optimizer(self, phase: Phase, stack: Stack, members: Sequence[int]) -> LocalOptimizer:
        """Return an optimizer of the parameters that move in a phase, without state.

        Args:
            phase: The phase.
            stack: The parameters of the clients.
            members: Ids of the clients, in the order of the stack.
        """
        names = moving(phase, self.workspaces.layout.shapes, self.experiment.model.fixes)
        names -= shrinking(self.method, names, self.experiment.training.optimizer)
        made = self.workspaces.optimizer(stack, self.experiment.training.optimizer.lr * phase.lr, names)
        only = moving_rows(phase, [self.clients[client].rows_R for client in members], self.digits_V)
        made.only = None if only is None else to_device(only, self.device)
        return made

    def work(self, phase: Phase, members: Sequence[int], round_: int, last: bool = True) -> list[Work]:
        """Return the batches of clients in a phase.

        Args:
            phase: The phase.
            members: Ids of the clients.
            round_: Number of the round, on which the order of texts depends.
            last: Whether it is the last phase of a local update.

        Raises:
            ValueError: A client has no training texts.
        """
        made = []
        for client in members:
            texts = self.texts_of(client, "train")
            if not len(texts):
                raise ValueError("it has no training texts")
            made.append(Work(texts, list(order_of(self.experiment, texts, phase, round_, client, last))))
        return made

    def run(
        self, phase: Phase, stack: Stack, flat: NDArray[np.float32], members: Sequence[int], round_: int
    ) -> list[Outcome]:
        """Train clients through a phase before the last one, or before an evaluation.

        Args:
            phase: The phase.
            stack: The parameters of the clients, which change.
            flat: The parameters that the clients received, flat.
            members: Ids of the clients, in the order of the stack.
            round_: Number of the round.
        """
        optimizer = self.optimizer(phase, stack, members)
        return train(self.problem(flat, members), self.training, optimizer, self.work(phase, members, round_, False))

    def kept(self, client: int, prefix: str) -> dict[str, Tensor]:
        """Return the tensors of a client's private state whose names have a prefix: ``OPTIMIZER`` or ``STATE``.

        They are in the order of their names: a checkpoint has another one than the method, and sums of a hook over
        tensors would depend on it.
        """
        return {
            name.removeprefix(prefix): to_device(value.copy(), self.device)
            for name, value in sorted(self.private.get(client, {}).items())
            if name.startswith(prefix)
        }

    def private_states(self, members: Sequence[int] | None = None) -> dict[int, bytes]:
        """Return the encoded private tensors of these clients, see ``PrivateStates.encoded``."""
        return self.private.encoded(members)

    def restore(self, states: Mapping[int, bytes]) -> None:
        """Restore private states that ``private_states`` returned."""
        self.private.restore(states)

    def adopt(self, clients: Sequence[ClientData], states: Mapping[int, bytes]) -> None:
        """Add clients, with their private states. A corpus on disk has no ``clients`` to add."""
        add(self.clients, map(self._hosted, clients))
        self.restore(states)

    def release(self, members: Sequence[int]) -> dict[int, bytes]:
        """Remove clients, and return their private states."""
        states = self.private_states(members)
        remove(self.clients, members)
        for client in members:
            if client in self.private:  # ``pop`` would bring it into memory
                del self.private[client]
        self.texts = {key: texts for key, texts in self.texts.items() if key[0] not in states}
        return states
