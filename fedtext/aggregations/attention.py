"""Attention over clients (Ji et al. 2019, FedAtt, equations 2-4): a client that moved a layer farther has more weight.

Legend: R rows of a layer, or of those that an update holds; N entries of a row.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedtext.aggregations.base import IndividualAggregation, State, Weight, samples
from fedtext.aggregations.norms import as_matrix, frobenius, parts, spectral
from fedtext.layout import TABLE
from fedtext.messages import Update
from fedtext.schema import Strict


class AttentionKeys(Strict):
    """The hyper-parameters of FedAtt."""

    step: float = Field(
        1.2, gt=0, description="epsilon of equation 4; the paper gives no value, its published code uses 1.2 (first 1)"
    )
    norm: Literal["frobenius", "spectral"] = Field(
        "frobenius",
        description="norm of a matrix: the paper's Euclidean distance, or the largest singular value, which its "
        "published code uses; attention: uniform needs neither",
    )
    attention: Literal["softmax", "uniform"] = Field(
        "softmax", description="uniform: equal weights, as a control; with step 1 the unweighted mean"
    )

    @model_validator(mode="after")
    def _norm_is_read(self) -> Self:
        if self.attention == "uniform" and self.norm != "frobenius":
            raise ValueError("norm: attention: uniform does not use distances: leave norm out")
        return self


class Attention(AttentionKeys, IndividualAggregation):
    """Attention over clients (Ji et al. 2019, FedAtt); a client that moved a layer farther has more weight in it.

    For each layer theta, which is one shared tensor, and each client k of the round: s_k = ||theta - theta_k||,
    alpha = softmax(s), theta <- theta - step * sum_k alpha_k (theta - theta_k) (equations 2-4). Sample counts are not
    used.

    Distances are between the server's parameters and the received ones, with noise and rounding of the uplink. The
    metric `attention_clients/<tensor>` is a layer's effective number of clients, 1 / sum_k alpha_k^2.

    Memory: one sum in float64. Updates are processed one at a time and not kept.
    """

    name: Literal["attention"] = "attention"
    secure = (
        "of each layer the sums of exp(s_k) and of exp(s_k) delta_k are enough, which secure aggregation could take if "
        "clients computed s_k themselves"
    )

    def aggregate(
        self, state: State, updates: Iterable[Update], weight: Weight = samples
    ) -> tuple[dict[str, NDArray[np.float32]], Mapping[str, float]]:
        layers: dict[str, Layer] = {}
        for update in updates:
            for name, delta in update.tensors.items():
                if name not in layers:
                    layers[name] = Layer(state[name])
                delta_RN = as_matrix(delta)
                score = self._distance(delta_RN) if self.attention == "softmax" else 0.0
                layers[name].add(score, delta_RN, update.rows if name == TABLE else None)
        metrics = {f"attention_clients/{name}": layers[name].clients for name in state if name in layers}
        moved = {n: layers.pop(n).moved(tensor, self.step) if n in layers else tensor for n, tensor in state.items()}
        return moved, metrics

    def _distance(self, delta_RN: NDArray[np.float32]) -> float:
        return spectral(delta_RN) if self.norm == "spectral" and len(delta_RN) > 1 else frobenius(delta_RN)


class Layer:
    """sum_k alpha_k delta_k of one layer, computed one client at a time.

    Exponentials are relative to the largest score so far, so that none overflows.
    """

    def __init__(self, tensor: NDArray[np.float32]) -> None:
        self.sum_RN = np.zeros(as_matrix(tensor).shape)
        self.largest, self.weight, self.squares = -math.inf, 0.0, 0.0  # of exp(s_k - largest): the sum, and of squares

    def add(self, score: float, delta_RN: NDArray[np.float32], rows: NDArray[np.int32] | None) -> None:
        """Add a client's change. The same order of clients gives the same bits.

        Args:
            score: s_k.
            delta_RN: The change of the layer, or of some of its rows.
            rows: The rows that changed; None: all.
        """
        if score > self.largest:
            smaller = math.exp(self.largest - score)
            self.sum_RN *= smaller
            self.weight *= smaller
            self.squares *= smaller**2
            self.largest = score
        weight = math.exp(score - self.largest)
        self.weight += weight
        self.squares += weight**2
        for part in parts(delta_RN):
            self.sum_RN[part if rows is None else rows[part]] += np.multiply(delta_RN[part], weight, dtype=np.float64)

    @property
    def clients(self) -> float:
        """Effective number of clients: their number if weights are equal, 1 if one outweighs all others."""
        return self.weight**2 / self.squares

    def moved(self, tensor: NDArray[np.float32], step: float) -> NDArray[np.float32]:
        """Return the layer after equation 4. The sum is used up."""
        self.sum_RN *= step / self.weight
        self.sum_RN += as_matrix(tensor)
        return self.sum_RN.astype(np.float32).reshape(tensor.shape)
