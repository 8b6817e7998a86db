"""FedRecon (Singhal et al. 2021; in the FedeVocab paper, appendix A.2): what is private is made anew in every local
update."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from fedtext.methods.base import Phase
from fedtext.methods.fedavg import FedAvg


class FedRecon(FedAvg):
    """FedRecon (Singhal et al. 2021): private embedding rows, reconstructed in each local update and never kept.

    Private are the embedding's rows of words with a digit in them, numbers and codes; all others are shared, as are
    encoder and head. Clients keep no state: a local update begins with the initial rows, the same for all clients. They
    are trained on one half of the client's texts while the rest stands still; then the rest is trained on the other
    half while they stand still. For evaluation a client's rows are reconstructed in the same way, from all its train
    texts.

    With ``model.embedding.own: {words: digits}`` each client begins with private rows that it alone knows, the same
    ones in every local update. The FedeVocab paper's attack on this method takes that for granted.

    Updates are weighted by n_k, of which each half has the same share. Words must be told apart by their letters:
    hashed ones cannot.
    """

    name: Literal["fedrecon"] = "fedrecon"  # type: ignore[assignment]
    reconstruction_epochs: int = Field(1, ge=1, description="epochs in which the private rows alone are trained")
    reconstruction_lr: float = Field(1.0, gt=0, description="times training.optimizer.lr")
    joint: bool = Field(False, description="the private rows go on learning with the rest")
    complete = False
    language = False
    withholds = True

    def phases(self, epochs: int) -> Sequence[Phase]:
        rest = Phase("query", epochs, rows="all" if self.joint else "others", texts="query")
        return (self._reconstruction("support"), rest)

    def before_reading(self) -> Sequence[Phase]:
        return (self._reconstruction("all"),)

    def _reconstruction(self, texts: Literal["all", "support"]) -> Phase:
        def table(parameter: str) -> bool:
            return parameter.startswith("embedding.")

        return Phase("reconstruction", self.reconstruction_epochs, table, "digits", texts, self.reconstruction_lr)
