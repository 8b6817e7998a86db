"""LG-FedAvg (Liang et al. 2020; ``LG.`` in the KTEPS paper, section 5.4): everything but the classifier stays on the
client."""

from typing import Literal

from fedtext.methods.fedavg import FedAvg


class LGFedAvg(FedAvg):
    """The head is shared, embedding and encoder are private; all are trained jointly. No whole model is shared, hence
    no Ag; LG-FedAvg's way with clients that took no part, an ensemble of all private models, is left out."""

    name: Literal["lg_fedavg"] = "lg_fedavg"  # type: ignore[assignment]
    complete = False

    def private(self, parameter: str) -> bool:
        return not parameter.startswith("head.")
