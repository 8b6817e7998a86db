"""A local update after its last step: the method's next state of the client, and the tensors that stay with it."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtext.client.host import OPTIMIZER, STATE
from fedtext.layout import TABLE, Layout, finite
from fedtext.messages import Update
from fedtext.methods.base import Method
from fedtext.methods.state import Local, State, Tensors, grouped
from fedtext.methods.state import flat as by_name
from fedtext.runtime.devices import to_device
from fedtext.training.local import Outcome
from fedtext.training.optimizer import LocalOptimizer
from fedtext.training.stack import Stack


class Completed(NamedTuple):
    """The results of a method's hooks for a local update; empty for a method without hooks.

    Attributes:
        local: The completed local update.
        state: The method's next state of the client.
        extras: The tensors that the client sends beside its update, by ``group/name``.
        update: What it sends in the place of the change of its parameters; None: that change.
    """

    local: Local | None
    state: State
    extras: Mapping[str, NDArray]
    update: Mapping[str, NDArray] | None


@dataclass(frozen=True)
class Trained:
    """A stack of clients after training.

    Attributes:
        flat: The parameters that they received.
        round: Number of the round.
        stack: Their parameters.
        optimizer: Their optimizer.
        local: The argument of the method's hooks, of a client that is alone; None: the method has none.
        own: Names of the parameters that stay with clients.
        noised: Whether steps have noise on the gradients of texts (``training.dp_sgd``), which terms of the loss lack.
    """

    flat: NDArray[np.float32]
    round: int
    stack: Stack
    optimizer: LocalOptimizer
    local: Local | None
    own: Sequence[str]
    noised: bool = False

    def completed(
        self, method: Method, outcome: Outcome, drawn: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> Completed:
        """Call ``Method.after_update`` and ``Method.before_sending`` for the client, which is alone in its stack.

        Args:
            method: The method.
            outcome: The result of the client's training.
            drawn: Makes the block in which a hook is called, which seeds torch's generators. A hook that is called
                again, as ``after_sending`` may do with ``before_sending``, draws the same if it draws first.

        Raises:
            ValueError: ``before_sending`` returns another update than it has to.
        """
        if self.local is None:
            return Completed(None, {}, {}, None)
        lr_sums = self.optimizer.lr_sums(self.local.received, outcome.steps)
        parameters, terms = Tensors(self.stack.tensors(0)), {} if self.noised else dict(outcome.terms)
        local = replace(self.local, parameters=parameters, lr_sums=lr_sums, steps=outcome.steps, terms=terms)
        with torch.no_grad():
            with drawn():
                state, extras = method.after_update(local)
            update = None
            if method.changes_updates():
                with drawn():
                    sent = method.before_sending(local)
                _check_sent(sent, local)
                update = {name: tensor.cpu().numpy().copy() for name, tensor in sent.items()}
        return Completed(local, state, arrays(extras), update)

    def kept(
        self, parameters: Mapping[str, Tensor], place: int, state: Mapping[str, NDArray], persist: bool
    ) -> dict[str, NDArray]:
        """Return the tensors that stay with a client after its local update.

        Args:
            parameters: Its parameters, on the CPU.
            place: Its place in the stack.
            state: The method's next state of it, by ``group/name``.
            persist: Whether the optimizer's state is among them.

        Raises:
            ValueError: The method's state is not finite.
        """
        if not all(map(finite, state.values())):
            raise ValueError("the state that its method keeps is not finite: lower training.optimizer.lr")
        kept = {name: parameters[name].numpy().copy() for name in self.own}
        if persist:
            kept |= {OPTIMIZER + n: value.cpu().numpy().copy() for n, value in self.optimizer.state(place).items()}
        return kept | {STATE + name: tensor for name, tensor in state.items()}


def _check_sent(sent: Mapping[str, Tensor], local: Local) -> None:
    """Raise ValueError unless an update has the names, shapes and types of the client's own one, and is finite."""
    if not isinstance(sent, Mapping):
        raise ValueError(f"before_sending of its method returns {sent!r}, and no tensors by name")
    if further := sorted(set(sent) - set(local.received)):
        raise ValueError(f"before_sending of its method returns {further[0]}, which local.delta does not have")
    for name, tensor in local.received.items():
        there = sent.get(name)
        if there is None or there.shape != tensor.shape or there.dtype != tensor.dtype:
            raise ValueError(f"before_sending of its method returns {name} in another shape or type, or not at all")
    if infinite := next((name for name, tensor in sent.items() if not tensor.isfinite().all()), ""):
        raise ValueError(f"before_sending of its method returns {infinite} with numbers that are not finite")


def state_as_sent(
    method: Method, local: Local, state: State, update: Update, layout: Layout, rows_R: NDArray[np.int32]
) -> State:
    """Call ``Method.after_sending`` for a client.

    Args:
        method: The method.
        local: The completed local update.
        state: The method's next state of the client.
        update: The client's update, as the server decodes it.
        layout: The shared tensors, tables with all rows.
        rows_R: Rows of the table that the client has.

    Returns:
        The method's next state of the client.
    """
    tensors, device = {}, next(iter(local.parameters.values())).device
    for name, values in update.tensors.items():
        if name == TABLE and update.rows is not None:
            whole = np.zeros(layout.shapes[TABLE], np.float32)
            whole[update.rows] = values
            values = whole
        tensors[name] = to_device(values[rows_R] if name.rpartition("/")[2] == TABLE else values, device)
    shared = Tensors({name: tensor for name, tensor in tensors.items() if name in layout.shapes})
    beside = grouped({name: tensor for name, tensor in tensors.items() if name not in shared})
    with torch.no_grad():
        return method.after_sending(local, state, shared, beside)


def arrays(state: State) -> dict[str, NDArray]:
    """Return copies of the tensors of all groups by ``group/name``."""
    return {name: tensor.cpu().numpy().copy() for name, tensor in by_name(state).items()}
