"""FedRecon (Singhal et al. 2021; FedeVocab paper, appendix A.2): private parameters are reconstructed in every local
update."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from fedtext.methods.base import Phase
from fedtext.methods.fedavg import FedAvg


class FedRecon(FedAvg):
    """FedRecon (Singhal et al. 2021): private embedding rows, reconstructed in each local update and never kept.

    The embedding rows of words with a digit in them, such as numbers and codes, are private; all other parameters are
    shared. Clients keep no state: a local update begins with the initial rows, the same for all clients. First they
    alone are trained on one half of the client's texts; then the other parameters are trained on the other half, with
    these rows fixed. For evaluation a client's rows are reconstructed in the same way, from all its train texts.

    With ``model.embedding.own: {words: digits}`` each client begins with private rows that it alone knows, the same
    ones in every local update. The FedeVocab paper's attack on this method assumes this.

    Updates are weighted by n_k, of which each half has the same share. Tokens must be words, since buckets of a hash
    have no digits.
    """

    name: Literal["fedrecon"] = "fedrecon"  # type: ignore[assignment]
    reconstruction_epochs: int = Field(1, ge=1, description="epochs in which only the private rows are trained")
    reconstruction_lr: float = Field(
        1.0, gt=0, description="learning rate of these epochs, as a multiple of training.optimizer.lr"
    )
    joint: bool = Field(False, description="whether the private rows are also trained together with the others")
    complete = False
    language = False
    withholds = True

    def phases(self, epochs: int) -> Sequence[Phase]:
        rest = Phase("query", epochs, rows="all" if self.joint else "others", texts="query")
        return (self._reconstruction("support"), rest)

    def before_evaluation(self) -> Sequence[Phase]:
        return (self._reconstruction("all"),)

    def _reconstruction(self, texts: Literal["all", "support"]) -> Phase:
        def table(parameter: str) -> bool:
            return parameter.startswith("embedding.")

        return Phase("reconstruction", self.reconstruction_epochs, table, "digits", texts, self.reconstruction_lr)
