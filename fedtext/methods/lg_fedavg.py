"""LG-FedAvg (Liang et al. 2020; ``LG.`` in the KTEPS paper, section 5.4): a model's first layers stay on the client."""

from typing import Literal

from pydantic import Field

from fedtext.methods.fedavg import FedAvg


class LGFedAvg(FedAvg):
    """LG-FedAvg (Liang et al. 2020): FedAvg whose clients keep the first layers and share the last ones.

    The head is shared, embedding and encoder are private; all are trained jointly. No complete model is shared, hence
    there is no Ag. LG-FedAvg's evaluation of new clients, by an ensemble of all private models, is not implemented.

    The published code starts from a model trained with FedAvg: set ``pretrain`` to a number of rounds of FedAvg, in
    which everything is shared. After them each client receives the whole model once more, with its first local update,
    and keeps its own embedding and encoder from then on. Without them the initial values are drawn as for other
    methods.
    """

    name: Literal["lg_fedavg"] = "lg_fedavg"  # type: ignore[assignment]
    shared: Literal["head", "encoder"] = Field(
        "head",
        description="first shared layer (tuned in the FedeVocab paper); with encoder only the embedding is private",
    )
    pretrain: int = Field(
        0, ge=0, description="number of rounds of FedAvg at the beginning; then the first layers become private"
    )
    complete = False

    def private(self, parameter: str) -> bool:
        return not self.pretrain and self._local(parameter)

    def shared_in(self, parameter: str, round_: int) -> bool:
        return round_ <= self.pretrain or not self._local(parameter)

    def _local(self, parameter: str) -> bool:
        """Whether it belongs to the layers that are private after ``pretrain`` rounds."""
        return parameter.startswith("embedding.") if self.shared == "encoder" else not parameter.startswith("head.")
