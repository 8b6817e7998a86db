"""The common base of FedMMD and FedFusion: during a local update a client has its own encoder and a frozen copy of the
received one.

Legend: B batch, F features.
"""

import torch
from torch import Tensor, nn

from fedtext.methods.base import Batch, Method
from fedtext.models.parts import Parts, SingleBranch


class WithReceived(SingleBranch):
    """A classifier with a second embedding and encoder."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.embedding_received, self.encoder_received = parts.embedding(), parts.encoder()
        for part in self.encoder_received.modules():
            if isinstance(part, nn.Dropout):
                part.p = 0.0  # the features it is compared with are deterministic

    def features(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return features_BF of the own and of the received encoder, the latter without a gradient."""
        with torch.no_grad():
            received_BF = self.encoder_received(self.embedding_received, batch)
        return self.encoder(self.embedding, batch), received_BF


class Frozen(Method):
    """Base of methods with such a network: the received encoder is neither sent nor kept, all else is shared."""

    def private(self, parameter: str) -> bool:
        return bool(self.mirrors(parameter))

    def mirrors(self, parameter: str) -> str:
        part, _, rest = parameter.partition(".")
        return f"{part.removesuffix('_received')}.{rest}" if part.endswith("_received") else ""
