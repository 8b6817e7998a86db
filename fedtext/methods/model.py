"""A network with the parameters of one client, as a method's loss and probabilities are given it."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedtext.methods.state import State
from fedtext.models.batch import Batch
from fedtext.models.places import places_of

Result = TypeVar("Result")


class Model:
    """A network with one client's parameters. Calling it with a batch returns the network's outputs.

    It does what torch's ``functional_call`` does, without searching the network in each call. A parameter that the
    network has in several places, such as a weight that two layers share, is the same in all of them.

    Args:
        network: The network.
        parameters: The client's parameters.
        state: The client's state; empty unless a loss is given it (``Method.reads_state``).

    Attributes:
        state: The client's state after its last local update, or that of ``Method.client_state``.
    """

    def __init__(self, network: nn.Module, parameters: Mapping[str, Tensor], state: State | None = None) -> None:
        self.network, self.parameters = network, dict(parameters)
        self.state: State = state or {}

    def __call__(self, batch: Batch):  # type: ignore[no-untyped-def]  # a method knows what its own network returns
        return self.run(lambda network: network(batch))

    def run(self, function: Callable[[Any], Result]) -> Result:
        """Call a function with the network, which has the parameters meanwhile."""
        places, before = places_of(self.network), {}
        try:
            for name, tensor in places.everywhere(self.parameters).items():
                place, leaf = places.of[name]
                before[name], place[leaf] = place[leaf], tensor
            return function(self.network)
        finally:
            for name, tensor in before.items():
                place, leaf = places.of[name]
                place[leaf] = tensor

    def cross_entropy(self, batch: Batch) -> Tensor:
        """Compute the mean cross-entropy of the batch's labels. The network must return logits_BC.

        It equals ``cross_entropy(model(batch), batch.labels_B)`` to rounding, and is one function where the network
        has one (``SingleBranch.cross_entropy``).
        """
        own = getattr(self.network, "cross_entropy", None)
        loss = self.run(lambda network: network.cross_entropy(batch)) if own else None
        return cross_entropy(self(batch), batch.labels_B) if loss is None else loss
