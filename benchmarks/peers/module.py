"""The interface of a workload's model for the systems that train modules."""

from abc import abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy


class Module(nn.Module):
    """A classifier, called with (tokens_BT, lengths_B), that returns logits_BC."""

    def shared(self) -> dict[str, Tensor]:
        """Return the parameters that are trained and sent, by fedtext's names, sharing the module's memory."""
        return dict(self.state_dict())

    def receive(self, tensors: Mapping[str, Tensor]) -> None:
        """Set the parameters that are trained."""
        for name, own in self.shared().items():
            own.copy_(tensors[name])

    @abstractmethod
    def optimizer(self) -> torch.optim.Optimizer:
        """Return an optimizer of the parameters that are trained, without a state."""

    def loss(self, tokens_BT: Tensor, lengths_B: Tensor, labels_B: Tensor) -> Tensor:
        return cross_entropy(self(tokens_BT, lengths_B), labels_B)
