"""The common base of FedMMD and FedFusion: besides its own feature extractor a client keeps the one that it received,
frozen, until its local update is over.

Legend: B batch, F features.
"""

import torch
from torch import Tensor, nn

from fedtext.methods.base import Batch, Method
from fedtext.models.parts import Parts, SingleBranch


class WithReceived(SingleBranch):
    """The plain classifier, and a second embedding and encoder."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.embedding_received, self.encoder_received = parts.embedding(), parts.encoder()
        for part in self.encoder_received.modules():
            if isinstance(part, nn.Dropout):
                part.p = 0.0  # a fixed point to compare with

    def features(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Local and received features_BF, the latter without a gradient."""
        with torch.no_grad():
            received_BF = self.encoder_received(self.embedding_received, batch)
        return self.encoder(self.embedding, batch), received_BF


class Frozen(Method):
    """A method on such a network: everything else is shared, and what was received is neither sent nor kept."""

    def private(self, parameter: str) -> bool:
        return bool(self.mirrors(parameter))

    def mirrors(self, parameter: str) -> str:
        part, _, rest = parameter.partition(".")
        return f"{part.removesuffix('_received')}.{rest}" if part.endswith("_received") else ""
