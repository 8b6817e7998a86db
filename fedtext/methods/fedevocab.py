"""FedeVocab: every client has its own embedding and vocabulary (Zhang et al. 2022, algorithm 1, equations 1 and 2)."""

from collections.abc import Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from fedtext.methods.base import Phase
from fedtext.methods.fedavg import FedAvg


class FedeVocab(FedAvg):
    """FedeVocab (Zhang et al. 2022): FedAvg whose clients keep an embedding and a vocabulary of their own.

    The embedding stays on the client, also between rounds; encoder and head (W_s) are shared. A local update begins
    with adaptation: only the client's embedding is trained, to fit the shared parameters, which have changed since its
    last local update. Then everything is trained jointly, and W_s is sent. (Equation 1 is the objective; the server's
    W_s is the mean of the clients', weighted by n_k.)

    In the published code the gradients of W_s during adaptation are added to the first joint step, since they are not
    cleared; here they are not computed. No complete model is shared, hence there is no Ag.
    """

    name: Literal["fedevocab"] = "fedevocab"  # type: ignore[assignment]
    adaptive: bool = Field(
        True, description="whether a local update begins with adaptation; false: the paper's ablation"
    )
    adaptation_epochs: int = Field(1, ge=1, description="epochs in which the embedding alone is trained")
    keeps: Literal["words", "block"] = Field(
        "words",
        description="private parameters of a transformer; words: the word vectors; block: the whole embedding block, "
        "with positions and its layer norm, as in the published code",
    )
    complete = False
    language = False  # the words that are predicted would have to be common ones
    own_vocabularies = True

    @model_validator(mode="after")
    def _adapts(self) -> Self:
        if not self.adaptive and self.adaptation_epochs != 1:
            raise ValueError("adaptation_epochs: adaptive: false has no adaptation: leave adaptation_epochs out")
        return self

    def private(self, parameter: str) -> bool:
        return parameter.startswith(("embedding.", "encoder.embeddings.") if self.keeps == "block" else "embedding.")

    def phases(self, epochs: int) -> Sequence[Phase]:
        adaptation = Phase("adaptation", self.adaptation_epochs, self.private)
        return (*([adaptation] if self.adaptive else []), *super().phases(epochs))
