"""FedeVocab: every client has an embedding, and a vocabulary, of its own (papers' Algorithm 1, equations 1 and 2)."""

from collections.abc import Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from fedtext.methods.base import Phase
from fedtext.methods.fedavg import FedAvg


class FedeVocab(FedAvg):
    """FedeVocab (Zhang et al. 2022): FedAvg whose clients keep an embedding and a vocabulary of their own.

    The embedding stays on the client, between rounds as well; encoder and head are shared. A local update begins with
    adaptation: the client's embedding alone is trained, to what has become of the rest since its last local update.
    Then all is trained jointly, and W_s is sent. (Equation 1 is the objective; W_s is the mean of the clients', by
    n_k.)

    The published code counts adaptation's gradients of W_s into the first joint step, since nothing clears them; here
    they are never taken. No whole model is shared, hence no Ag.
    """

    name: Literal["fedevocab"] = "fedevocab"  # type: ignore[assignment]
    adaptive: bool = Field(
        True, description="whether a local update begins with adaptation; false: the paper's ablation"
    )
    adaptation_epochs: int = Field(1, ge=1, description="epochs in which the embedding alone is trained")
    keeps: Literal["words", "block"] = Field(
        "words",
        description="of a transformer: the words' vectors alone, or the whole embedding block, positions and its layer "
        "norm with it, as the published code does",
    )
    complete = False
    language = False  # the words that are predicted would have to be common ones
    own_vocabularies = True

    @model_validator(mode="after")
    def _adapts(self) -> Self:
        if not self.adaptive and self.adaptation_epochs != 1:
            raise ValueError("adaptation_epochs: without adaptation (adaptive: false) there are none: leave it out")
        return self

    def private(self, parameter: str) -> bool:
        return parameter.startswith(("embedding.", "encoder.embeddings.") if self.keeps == "block" else "embedding.")

    def phases(self, epochs: int) -> Sequence[Phase]:
        adaptation = Phase("adaptation", self.adaptation_epochs, self.private)
        return (*([adaptation] if self.adaptive else []), *super().phases(epochs))
