"""LG-FedAvg (Liang et al. 2020; ``LG.`` in the KTEPS paper, section 5.4): a model's first layers stay on the client."""

from typing import Literal

from pydantic import Field

from fedtext.methods.fedavg import FedAvg


class LGFedAvg(FedAvg):
    """LG-FedAvg (Liang et al. 2020): FedAvg whose clients keep the first layers and share the last ones.

    The head is shared, embedding and encoder are private; all are trained jointly. No whole model is shared, hence
    no Ag; LG-FedAvg's evaluation of clients that took no part, by an ensemble of all private models, is left out.

    The published code starts from a model that FedAvg has trained: ``pretrain`` rounds of FedAvg come first, in which
    everything is shared. After them each client receives the whole model once more, with its first local update, and
    keeps its own embedding and encoder from then on. Without them these start as drawn, like every other method's.
    """

    name: Literal["lg_fedavg"] = "lg_fedavg"  # type: ignore[assignment]
    shared: Literal["head", "encoder"] = Field(
        "head", description="from which layer on (the FedeVocab paper tunes it): encoder leaves the embedding private"
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
        """Whether it belongs to the layers that are private in the end."""
        return parameter.startswith("embedding.") if self.shared == "encoder" else not parameter.startswith("head.")
