"""FedAtt (Ji et al. 2019, equations 2-4): clients that moved a layer farther count for more in it.

Legend: R rows of a layer, or of those an update holds; N numbers in a row.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedtext.layout import TABLE
from fedtext.messages import Update
from fedtext.methods.base import Individual, State
from fedtext.methods.fedavg import FedAvg
from fedtext.runtime.threads import one_blas_thread

_CHUNK = 1 << 15  # numbers at a time, so that intermediate results stay in the cache


class FedAtt(FedAvg, Individual):
    """FedAtt (Ji et al. 2019): attention over clients; who moved a layer further counts for more in it.

    For each layer theta, which is one shared tensor, and each client k of the round: s_k = ||theta - theta_k||,
    alpha = softmax(s), theta <- theta - step * sum_k alpha_k (theta - theta_k). Sample counts play no part.

    Distances are between what the server has and what arrives: noise and rounding of the uplink are in them. A round's
    row has each layer's effective number of clients, 1 / sum_k alpha_k^2, as ``attention_clients/<tensor>``."""

    name: Literal["fedatt"] = "fedatt"  # type: ignore[assignment]
    step: float = Field(
        1.2, gt=0, description="epsilon of equation 4; the paper gives no value, its published code 1.2 (at first 1)"
    )
    norm: Literal["frobenius", "spectral"] = Field(
        "frobenius",
        description="of a matrix: the paper's Euclidean distance, or the largest singular value, which its published "
        "code takes; attention: uniform needs neither",
    )
    attention: Literal["softmax", "uniform"] = Field(
        "softmax", description="uniform: the control, all clients alike; with step 1 the unweighted mean"
    )

    @model_validator(mode="after")
    def _norm_is_read(self) -> "FedAtt":
        if self.attention == "uniform" and self.norm != "frobenius":
            raise ValueError("norm: with attention: uniform no distance is taken: leave norm out")
        return self

    def aggregate(self, state: State, updates: Iterable[Update]) -> tuple[State, Mapping[str, float]]:
        """Takes the updates in one by one and keeps none, so that its memory is the sums', whatever the cohort."""
        layers = {name: Layer(tensor) for name, tensor in state.items()}
        for update in updates:
            for name, delta in update.tensors.items():
                delta_RN = _as_matrix(delta)
                score = self._distance(delta_RN) if self.attention == "softmax" else 0.0
                layers[name].add(score, delta_RN, update.rows if name == TABLE else None)
        figures = {f"attention_clients/{name}": layer.clients for name, layer in layers.items()}
        return {name: layers.pop(name).moved(tensor, self.step) for name, tensor in state.items()}, figures

    def _distance(self, delta_RN: NDArray[np.float32]) -> float:
        return spectral(delta_RN) if self.norm == "spectral" and len(delta_RN) > 1 else frobenius(delta_RN)


class Layer:
    """sum_k alpha_k delta_k of one layer, whose scores are learned one after another: everything is relative to the
    largest so far, so that no exponential overflows."""

    def __init__(self, tensor: NDArray[np.float32]) -> None:
        self.sum_RN = np.zeros(_as_matrix(tensor).shape)
        self.largest, self.weight, self.squares = -math.inf, 0.0, 0.0  # of exp(s_k - largest): the sum, and of squares

    def add(self, score: float, delta_RN: NDArray[np.float32], rows: NDArray[np.int32] | None) -> None:
        """A client's change; rows that it leaves out have not changed. Clients have to come in the same order whenever
        the same bits are wanted."""
        if score > self.largest:
            smaller = math.exp(self.largest - score)
            self.sum_RN *= smaller
            self.weight *= smaller
            self.squares *= smaller**2
            self.largest = score
        weight = math.exp(score - self.largest)
        self.weight += weight
        self.squares += weight**2
        for part in _parts(delta_RN):
            self.sum_RN[part if rows is None else rows[part]] += np.multiply(delta_RN[part], weight, dtype=np.float64)

    @property
    def clients(self) -> float:
        """The effective number: of equal weights as many as there are, of one that outweighs all others 1."""
        return self.weight**2 / self.squares

    def moved(self, tensor: NDArray[np.float32], step: float) -> NDArray[np.float32]:
        """Equation 4. The sum is used up."""
        self.sum_RN *= step / self.weight
        self.sum_RN += _as_matrix(tensor)
        return self.sum_RN.astype(np.float32).reshape(tensor.shape)


def frobenius(delta_RN: NDArray[np.float32]) -> float:
    """Row by row, and then exactly: rows of zeros, which an update may leave out, change no bit."""
    squares = (np.square(delta_RN[part], dtype=np.float64).sum(1).tolist() for part in _parts(delta_RN))
    return math.sqrt(math.fsum(square for chunk in squares for square in chunk))


def spectral(delta_RN: NDArray[np.float32]) -> float:
    """The root of the largest eigenvalue of the smaller Gram matrix, which costs far less than a decomposition of a
    table of many words, and no copy of it."""
    tall_RN = delta_RN.T if len(delta_RN) < delta_RN.shape[1] else delta_RN
    gram_NN = np.zeros((tall_RN.shape[1], tall_RN.shape[1]))
    with one_blas_thread():
        for part in _parts(tall_RN, at_least=len(gram_NN)):
            rows_RN = tall_RN[part].astype(np.float64)
            gram_NN += rows_RN.T @ rows_RN
        return math.sqrt(np.linalg.eigvalsh(gram_NN).max(initial=0.0))


def _as_matrix(tensor: NDArray[np.float32]) -> NDArray[np.float32]:
    """A vector as one row; of more axes than two, all but the first make a row."""
    return tensor.reshape(len(tensor), math.prod(tensor.shape[1:])) if tensor.ndim > 1 else tensor.reshape(1, -1)


def _parts(matrix_RN: NDArray[np.float32], at_least: int = 1) -> Iterator[slice]:
    """Its rows, some at a time."""
    step = max(at_least, _CHUNK // max(1, matrix_RN.shape[1]))
    return (slice(start, start + step) for start in range(0, len(matrix_RN), step))
