"""FedPer (Arivazhagan et al. 2019; KTEPS paper, section 5.4): the classifier stays on the client."""

from typing import Literal

from fedtext.methods.fedavg import FedAvg


class FedPer(FedAvg):
    """FedPer (Arivazhagan et al. 2019): FedAvg whose clients keep a classifier of their own.

    Embedding and encoder are shared, the head is private. No complete model is shared, hence there is no Ag.
    """

    name: Literal["fedper"] = "fedper"  # type: ignore[assignment]
    complete = False

    def private(self, parameter: str) -> bool:
        return parameter.startswith("head.")
