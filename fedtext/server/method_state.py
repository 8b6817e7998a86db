"""The state that a method keeps with the server, and its part in the server's step."""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from fedtext.layout import Layout
from fedtext.methods import layouts
from fedtext.methods.base import Method
from fedtext.methods.state import Tensors, flat, grouped

PREFIX = "#method/"  # of its tensors among those of the server's optimizer, in a checkpoint


class MethodState:
    """A method's server state.

    Args:
        method: The method.
        shared: The shared parameters before the first round.
        fixes: Returns whether one of them is the server's alone: ``ModelConfig.fixes``. The state is about the others.
        kept: The tensors that ``to_keep`` returned after an earlier round; None: the run begins.
    """

    def __init__(
        self,
        method: Method,
        shared: Mapping[str, NDArray[np.float32]],
        fixes: layouts.Fixes,
        kept: Mapping[str, NDArray[np.float32]] | None = None,
    ) -> None:
        self.method = method
        self.shared = Layout({name: tensor.shape for name, tensor in shared.items()})
        self.moved = layouts.moved(self.shared, fixes)
        self.sent = layouts.sent(method, self.shared, fixes)
        self.received = layouts.received(method, self.shared, fixes)
        self.tensors = {name.removeprefix(PREFIX): t for name, t in (kept or {}).items() if name.startswith(PREFIX)}
        if kept is None:
            begun = method.server_state(_torch({name: shared[name] for name in self.moved}))
            self.tensors = {name: tensor.to(torch.float32).numpy() for name, tensor in flat(begun).items()}

    @property
    def steps(self) -> bool:
        """Whether the method changes the server's step."""
        return type(self.method).server_step is not Method.server_step

    def to_keep(self) -> dict[str, NDArray[np.float32]]:
        """Return the tensors for a checkpoint."""
        return {PREFIX + name: tensor for name, tensor in self.tensors.items()}

    def with_state(self, flat_N: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the broadcast: the shared parameters, followed by the server's state if clients receive it."""
        if not self.method.sends_state:
            return flat_N
        return self.received.pack(self.shared.views(flat_N) | self.tensors)

    def step(self, change_N: NDArray[np.float64], share: float) -> NDArray[np.float64]:
        """Return the change of the shared parameters, and update the server's state.

        Args:
            change_N: The aggregated update, with the tensors sent beside it. It is overwritten.
            share: The participants' share of the weights of all clients.
        """
        if self.steps:
            views = self.sent.views(change_N)
            extras = {name: view for name, view in views.items() if name not in self.shared.shapes}
            kept = sorted(self.tensors.items())  # a checkpoint has another order than the method
            own = grouped({name: torch.from_numpy(tensor) for name, tensor in kept})
            change = Tensors({name: torch.from_numpy(views[name]) for name in self.moved})
            extras_ = grouped({name: torch.from_numpy(view) for name, view in extras.items()})
            state, moved = self.method.server_step(own, change, extras_, share)
            self.tensors = {name: tensor.to(torch.float32).numpy() for name, tensor in flat(state).items()}
            for name, tensor in moved.items():
                views[name][...] = tensor.numpy()
        return change_N[: self.shared.size]


def _torch(tensors: Mapping[str, NDArray[np.float32]]) -> Tensors:
    return Tensors({name: torch.tensor(tensor) for name, tensor in tensors.items()})
