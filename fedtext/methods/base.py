"""A federated method: a few pure functions of its hyper-parameters.

A method defines the network, which of its parameters stay private, the local objective, and the aggregation if that is
not the weighted mean. It is written for one client and one batch, independently of the engine, the placement of clients
and the encoding of updates.

A method can also keep state with each client and with the server, change gradients, send tensors beside an update, and
change the server's step. These hooks are pure functions of named tensors (``fedtext.methods.state``).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from fedtext.aggregations import Aggregation
from fedtext.aggregations.mean import Mean
from fedtext.methods.model import Model
from fedtext.methods.state import Local, State, Tensors
from fedtext.models.batch import Batch
from fedtext.models.fused import FusedLoss
from fedtext.models.parts import Parts
from fedtext.schema import Strict

Inference = Literal["both", "shared", "private"]
FUSES = ("loss", "weights", "objective")  # what ``Method.fused`` computes in their place


@dataclass(frozen=True)
class Phase:
    """A part of a client's local update, with an optimizer of its own: ``epochs`` passes over some of its train texts,
    in which some parameters move. ``support`` and ``query`` are two halves of the texts, drawn once for each client."""

    name: str
    epochs: int
    moves: Callable[[str], bool] = lambda parameter: True
    rows: Literal["all", "digits", "others"] = "all"  # of the embedding: those of words with a digit in them, or others
    texts: Literal["all", "support", "query"] = "all"
    lr: float = 1.0  # times training.optimizer.lr


class Method(Strict, ABC):
    """Base of all methods. Subclasses are immutable; all state lives with the server and the clients."""

    name: str
    pooled: ClassVar[bool] = False  # one extra client holds the training data of all, and it alone trains
    shares: ClassVar[bool] = True  # False: nothing leaves a client
    # True: the loss, or ``gradient``, uses the embedding table beyond the rows of the batch's tokens
    reads_table: ClassVar[bool] = False
    reads_state: ClassVar[bool] = False  # True: the loss reads the client's state (``Model.state``)
    # Derivatives that the loss takes itself, by ``torch.autograd.grad``: with 1, stacks of clients do not go through
    # it; with 2 it has ``create_graph=True``, and engine ``reference`` trains, which has second derivatives
    derivatives: ClassVar[Literal[0, 1, 2]] = 0
    whole_table: ClassVar[bool] = False  # True: local updates move rows of words that a client does not have
    sends_state: ClassVar[bool] = False  # True: clients receive the server's state with the parameters
    takes_sgd: ClassVar[bool] = False  # True: it reads the mean gradient off an update (``Local.mean_gradient``)
    separates: ClassVar[bool] = False  # True: where texts of several clients are pooled, a batch is of one of them
    two_branches: ClassVar[bool] = False  # True: ``probabilities`` reads ``inference``
    personalizes: ClassVar[bool] = True  # False: Ap is Ag, since no further training is meant
    complete: ClassVar[bool] = True  # the shared parameters are a whole model; False: there is no Ag
    own_vocabularies: ClassVar[bool] = False  # True: by default each client has a vocabulary of its own
    withholds: ClassVar[bool] = False  # True: rows of words with a digit in them do not leave a client
    # True: the objective of a batch is one of its texts, each alone; said by the class that defines ``loss``
    examplewise: ClassVar[bool] = False
    language: ClassVar[bool] = False  # True: its network may be a language model; ``probabilities`` is not called then

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        if cls.changes_gradients() or cls.reads_state:
            cls.reads_table = True  # both have the rows of the table that a batch lacks

    @classmethod
    def changes_gradients(cls) -> bool:
        """Whether a step is along something else than the objective's gradient."""
        return cls.gradient is not Method.gradient

    @classmethod
    def by_text(cls) -> bool:
        """Whether the objective is known to be one of single texts: the class that defines ``loss`` has to say so."""
        for each in cls.__mro__:
            if "examplewise" in vars(each) or "loss" in vars(each):
                return bool(vars(each).get("examplewise", False))
        return False

    @classmethod
    def has_hooks(cls) -> bool:
        """Whether a local update is more than its steps: it keeps state, sends extras, or changes gradients or what is
        sent. Its clients are trained one by one."""
        kept = cls.after_update is not Method.after_update or cls.after_sending is not Method.after_sending
        return cls.changes_gradients() or cls.changes_updates() or cls.reads_state or kept

    @classmethod
    def changes_updates(cls) -> bool:
        """Whether clients send something else than the change of their parameters."""
        return cls.before_sending is not Method.before_sending

    @abstractmethod
    def network(self, parts: Parts) -> nn.Module:
        """Build the network, from modules of ``parts``. Names of parameters must tell ``private`` which ones are."""

    def private(self, parameter: str) -> bool:
        """Whether this parameter stays on the client, between rounds as well."""
        return False

    def shared_in(self, parameter: str, round_: int) -> bool:
        """Whether clients send this parameter in this round. It differs from ``private`` in a method of several stages:
        what is shared in some rounds only is not ``private``. The server keeps its last shared value; in the other
        rounds each client trains and keeps a value of its own, which begins as that one."""
        return not self.private(parameter)

    def mirrors(self, parameter: str) -> str:
        """Return the shared parameter whose value a private one has at the beginning of every local update; empty for
        private parameters that are kept."""
        return ""

    def task_of(self, parameter: str) -> int | None:
        """The task whose batches alone train this parameter, where a batch is of one task (``separates``); None: every
        batch does. The optimizer leaves it alone in all other steps."""
        return None

    def bounds(self, parameter: str) -> tuple[float, float] | None:
        """Return the least and the largest value of this parameter, which is no table: each step ends with the nearest
        value between them. None: it may have any."""
        return None

    def phases(self, epochs: int) -> Sequence[Phase]:
        """Return the phases of a client's local update, of which the last has ``training.local_epochs`` epochs."""
        return (Phase("joint", epochs),)

    def before_evaluation(self) -> Sequence[Phase]:
        """Return the phases in which a client adapts the parameters it received before it evaluates with them."""
        return ()

    @abstractmethod
    def loss(self, model: Model, received: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """Compute the terms of the local objective on one batch, without their weights.

        Args:
            model: the network with the client's parameters.
            received: the shared parameters as they came from the server this round.
            batch: texts of one client.

        Returns:
            Scalars by the name under which they are logged (``loss_<name>``). A term whose weight is 0 is left out.
        """

    def fused(self, network: nn.Module) -> FusedLoss | None:
        """Return the terms of ``loss`` and the gradients of ``objective`` as one function; None: there is none.

        Engine ``native`` calls it instead of ``loss`` where it can. It belongs to the class that defines it: if a
        subclass overrides what it computes (``FUSES``) and not ``fused``, it is not asked.

        Args:
            network: What ``network`` built.
        """
        return None

    @classmethod
    def fuses(cls) -> bool:
        """Whether ``fused`` computes this class's objective, and not one that a subclass has replaced."""
        owners = {name: next(c for c in cls.__mro__ if name in vars(c)) for name in (*FUSES, "fused")}
        return all(issubclass(owners["fused"], owners[name]) for name in FUSES)

    def client_state(self, received: Tensors) -> State:
        """Return the state of a client before its first local update. It stays on the client, is checkpointed, and
        moves with it.

        Args:
            received: The shared parameters that clients move, of whose shapes state usually is.
        """
        return {}

    def server_state(self, shared: Tensors) -> State:
        """Return the state of the server before the first round, in float32.

        Args:
            shared: The shared parameters that clients move, tables with all rows.
        """
        return {}

    def extras(self, shared: Tensors) -> State:
        """Return tensors of the shapes of what clients send beside an update. Their values do not matter.

        Args:
            shared: The shared parameters that clients move; empty where only the names of groups are asked for.
        """
        return {}

    def gradient(self, gradients: Tensors, local: Local) -> Tensors:
        """Change the gradient of a step of the last phase, before it is clipped.

        A method that overrides it trains its clients one by one (``reads_table``).

        Args:
            gradients: The objective's gradients, by the names of the parameters that move.
            local: The client's local update so far.
        """
        return gradients

    def after_update(self, local: Local) -> tuple[State, State]:
        """Return a client's next state, and what it sends beside its update: tensors of the shapes of ``extras``.

        Mechanisms of the uplink are applied to update and extras together: a clip bounds the norm of both as one
        vector, noise is added to each coordinate, and the ledger counts them all.
        """
        return local.state, {}

    def before_sending(self, local: Local) -> Tensors:
        """Return the update that a client sends, of the names and shapes of ``Local.delta``, which it is by default.

        Mechanisms of the uplink are applied to it. The client's own parameters stay as they were trained. With
        ``after_sending`` a method can keep what mechanisms leave out, and send it in a later round (error feedback).

        Args:
            local: The client's local update. Its state is that before ``after_update``.
        """
        return local.delta

    def after_sending(self, local: Local, state: State, update: Tensors, extras: State) -> State:
        """Return a client's next state if mechanisms of the uplink change what it sends, after ``after_update``.

        Args:
            local: The client's local update.
            state: The next state that ``after_update`` returned.
            update: The update as the server decodes it, in the client's own rows of tables, without tensors that are
                not shared in the round (``shared_in``).
            extras: The tensors beside it as the server decodes them.
        """
        return state

    def server_step(self, server: State, change: Tensors, extras: State, share: float) -> tuple[State, Tensors]:
        """Change the step that ``server.optimizer`` is then applied to. It is not called in a round without updates.

        Args:
            server: The server's state.
            change: The aggregated update of the shared parameters, in float64.
            extras: The mean of what clients sent beside their updates, under the same weights.
            share: The participants' share of the weights of all clients; with server.weights: uniform, of all clients.

        Returns:
            The server's next state, and the change of the shared parameters.
        """
        return server, change

    @property
    def aggregation(self) -> Aggregation:
        """How the server combines updates where ``server.aggregation`` is auto."""
        return Mean()

    @property
    def weights(self) -> Mapping[str, float]:
        """The weights of the terms that ``loss`` returns, by name; of a term that is not named here it is 1.

        A name with a weight other than 0 that the loss of no client returns in the first round is refused.
        """
        return {}

    def objective(self, terms: Mapping[str, Tensor]) -> Tensor:
        """Combine the terms of ``loss`` into the scalar that is minimised: sum_t weight_t * term_t.

        Args:
            terms: scalars; or, of a stack, tensors with an axis of clients, which is summed over as well. The gradient
                of a client does not depend on the others.
        """
        weights = self.weights
        weighted = [weights[name] * term if name in weights else term for name, term in terms.items()]
        return weighted[0] if len(weighted) == 1 and not weighted[0].dim() else torch.stack(weighted).sum()

    @abstractmethod
    def probabilities(self, model: Model, batch: Batch, inference: Inference) -> Tensor:
        """Return class probabilities_BC.

        Args:
            model: the network with the client's parameters.
            batch: texts of one client.
            inference: the branches to use, if a method has two.
        """
