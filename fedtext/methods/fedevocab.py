"""FedeVocab: every client has an embedding, and a vocabulary, of its own (papers' Algorithm 1, equations 1 and 2)."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from fedtext.methods.base import Phase
from fedtext.methods.fedavg import FedAvg


class FedeVocab(FedAvg):
    """The embedding stays on the client, between rounds as well; encoder and head are shared. A turn begins with
    adaptation: the client's embedding alone is trained, to what has become of the rest since its last turn. Then all
    is trained jointly, and W_s is sent. (Equation 1 is the objective; W_s is the mean of the clients', by n_k.)

    The published code counts adaptation's gradients of W_s into the first joint step, since nothing clears them; here
    they are never taken. No whole model is shared, hence no Ag.
    """

    name: Literal["fedevocab"] = "fedevocab"  # type: ignore[assignment]
    adaptive: bool = Field(True, description="whether a turn begins with adaptation; false: the paper's ablation")
    adaptation_epochs: int = Field(1, ge=1)
    keeps: Literal["block", "words"] = Field(
        "block",
        description="of a transformer: the whole embedding block, positions and its layer norm with it, as the "
        "published code does, or the words' vectors alone",
    )
    complete = False
    own_vocabularies = True

    def private(self, parameter: str) -> bool:
        return parameter.startswith(("embedding.", "encoder.embeddings.") if self.keeps == "block" else "embedding.")

    def phases(self, epochs: int) -> Sequence[Phase]:
        adaptation = Phase("adaptation", self.adaptation_epochs, self.private)
        return (*([adaptation] if self.adaptive else []), *super().phases(epochs))
