"""LG-FedAvg (Liang et al. 2020; ``LG.`` in the KTEPS paper, section 5.4): a model's first layers stay on the client."""

from typing import Literal

from pydantic import Field

from fedtext.methods.fedavg import FedAvg


class LGFedAvg(FedAvg):
    """The head is shared, embedding and encoder are private; all are trained jointly, from where every other method
    starts: the published code begins with a model that FedAvg has trained. No whole model is shared, hence no Ag;
    LG-FedAvg's way with clients that took no part, an ensemble of all private models, is left out."""

    name: Literal["lg_fedavg"] = "lg_fedavg"  # type: ignore[assignment]
    shared: Literal["head", "encoder"] = Field(
        "head", description="from which layer on (the FedeVocab paper tunes it): encoder leaves the embedding private"
    )
    complete = False

    def private(self, parameter: str) -> bool:
        return parameter.startswith("embedding.") if self.shared == "encoder" else not parameter.startswith("head.")
