"""Local-only (``Indiv.`` in the KTEPS paper): every client trains alone, as the lower reference."""

from typing import Literal

from fedtext.methods.fedavg import FedAvg


class LocalOnly(FedAvg):
    """Local-only: every client trains alone, as the lower reference.

    Everything is private, nothing is sent. Ag and Ap are both the local model's accuracy, as in the paper.
    """

    name: Literal["local_only"] = "local_only"  # type: ignore[assignment]
    shares = False
    personalizes = False

    def private(self, parameter: str) -> bool:
        return True
