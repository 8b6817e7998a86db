"""Pooled (``FS`` in the KTEPS paper): all training data in one place, as the reference without privacy."""

from typing import Literal

from fedtext.methods.fedavg import FedAvg


class Pooled(FedAvg):
    """Pooled: one model trained on the texts of all clients in one place, as the reference without privacy.

    One extra client has the training data of all clients and trains alone; all clients evaluate and personalise.
    """

    name: Literal["pooled"] = "pooled"  # type: ignore[assignment]
    pooled = True
