"""Aggregation of low-rank factors, whose mean is not the mean of their products.

Legend: K updates, I inputs and O outputs of an adapted layer, R rank.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedtext.aggregations.base import IndividualAggregation, State, Weight, samples
from fedtext.aggregations.update_set import UpdateSet, moved
from fedtext.messages import Update
from fedtext.models.adapters import RESIDUAL, A, B
from fedtext.runtime.threads import one_blas_thread

Floats = NDArray[np.float64]


class LoRA(IndividualAggregation):
    """Mean of the clients' adapters of low rank (`model.adapter`), by factors or by products.

    Clients hold W + s B_k A_k, and the mean of that is not given by the mean factors: mean(B) mean(A) differs from
    mean(B A). `lora_error` is how far the new factors are from mean(B A), relative to it, in the Frobenius norm over
    all adapted layers.

    - `mean`: the mean of each factor. The error is that of the model.
    - `exact`: the mean of each factor, and mean(B A) - mean(B) mean(A) is added to the residual of the layer
      (FedEx-LoRA, Singhal et al. 2025). The model is exactly the mean.
    - `svd`: the best factors of mean(B A), by its singular value decomposition (FlexLoRA, Bai et al. 2024).

    A client of rank r (`model.adapter.lora.ranks`) has the first r rows of A and columns of B. With `svd` they are the
    best factors of rank r, and a direction shrinks by the share of the round's clients that lack it. With `mean` each
    row and column has the mean of the clients that have it (RBLA, Chen et al. 2024).

    All other tensors have the weighted mean of their updates.

    Memory: the factors of all updates of the round, in float64."""

    name: Literal["lora"] = "lora"
    factors: Literal["mean", "exact", "svd"] = Field("mean", description="how the factors of a layer are combined")
    weighted = True
    secure = "it reads each client's factors, which secure aggregation would hide"

    def changes(self, parameter: str) -> bool:
        return self.factors == "exact" and parameter.endswith(f".{RESIDUAL}")

    def aggregate(
        self, state: State, updates: Iterable[Update], weight: Weight = samples
    ) -> tuple[dict[str, NDArray[np.float32]], Mapping[str, float]]:
        held = UpdateSet(state, updates)
        share_K = np.array([weight(update) for update in held.updates], np.float64)
        share_K /= share_K.sum()
        missed = total = 0.0
        with one_blas_thread():
            changes = held.combined(lambda changes_KRN: np.tensordot(share_K, changes_KRN, 1))
            for layer in layers(state):
                among_holders(changes, layer, held, share_K)
            found = moved(state, changes)
            for layer in layers(state):
                old, first, second = Factors.of(state, layer), f"{layer}.{A}", f"{layer}.{B}"
                each = [old.changed(update.tensors[first], update.tensors[second]) for update in held.updates]
                product_OI = mean_product(each, share_K)
                if self.factors == "svd":
                    new = best_factors(product_OI, old.a_RI)
                    found[first], found[second] = (part.astype(np.float32) for part in (new.a_RI, new.b_OR))
                left_OI = product_OI - Factors.of(found, layer).product()
                if self.factors == "exact":
                    found[f"{layer}.{RESIDUAL}"] = (state[f"{layer}.{RESIDUAL}"] + left_OI).astype(np.float32)
                missed, total = missed + float(np.square(left_OI).sum()), total + float(np.square(product_OI).sum())
        return found, {"lora_error": (missed / total) ** 0.5 if total else 0.0}


@dataclass(frozen=True)
class Factors:
    """The factors A, shape (R, I), and B, shape (O, R), of one layer."""

    a_RI: Floats
    b_OR: Floats

    @classmethod
    def of(cls, state: State, layer: str) -> "Factors":
        """Return those in named tensors."""
        return cls(state[f"{layer}.{A}"].astype(np.float64), state[f"{layer}.{B}"].astype(np.float64))

    def changed(self, a_rI: NDArray[np.float32], b_Or: NDArray[np.float32]) -> "Factors":
        """Return the factors of a client of rank r, at most R, after its update of both."""
        rank = len(a_rI)
        return Factors(self.a_RI[:rank] + a_rI, self.b_OR[:, :rank] + b_Or)

    def product(self) -> Floats:
        """Return B A."""
        return self.b_OR @ self.a_RI


def layers(state: State) -> list[str]:
    """Return the names of the layers both of whose factors are shared."""
    firsts = (name.removesuffix(f".{A}") for name in state if name.endswith(f".{A}"))
    return [layer for layer in firsts if f"{layer}.{B}" in state]


def among_holders(changes: Mapping[str, Floats], layer: str, held: UpdateSet, share_K: Floats) -> None:
    """Divide changes of factors, which are means over all clients, by the share of those that have each row of A.

    Args:
        changes: The changes by name, which are changed.
        layer: Name of the layer.
        held: The updates.
        share_K: Weights of the clients, which add up to 1.
    """
    first_RI, second_OR = changes[f"{layer}.{A}"], changes[f"{layer}.{B}"]
    rank_K = np.array([len(update.tensors[f"{layer}.{A}"]) for update in held.updates])
    if (rank_K == len(first_RI)).all():
        return
    share_R = share_K @ (rank_K[:, None] > np.arange(len(first_RI)))
    share_R[share_R == 0] = 1.0  # of rows that no client has the change is 0
    first_RI /= share_R[:, None]
    second_OR /= share_R


def mean_product(each: list[Factors], share_K: Floats) -> Floats:
    """Return sum_k share_k B_k A_k, shape (O, I), as one product.

    Args:
        each: The factors of K clients.
        share_K: Weights of the clients.
    """
    left_OKR = np.concatenate([share * factors.b_OR for share, factors in zip(share_K, each, strict=True)], 1)
    return np.asarray(left_OKR @ np.concatenate([factors.a_RI for factors in each]))


def best_factors(product_OI: Floats, before_RI: Floats) -> Factors:
    """Return the factors of rank R whose product is closest to a matrix, with equal norms.

    A direction that the matrix lacks keeps its row of A, with zeros in B, so that both can be trained on.

    Args:
        product_OI: The matrix.
        before_RI: A before the round.
    """
    rank = len(before_RI)
    left_ON, values_N, right_NI = np.linalg.svd(product_OI, full_matrices=False)
    a_RI, b_OR = before_RI.copy(), np.zeros((len(product_OI), rank))
    there = int((values_N[:rank] > np.finfo(np.float64).eps * max(product_OI.shape) * values_N[0]).sum())
    root = np.sqrt(values_N[:there])
    a_RI[:there] = root[:, None] * right_NI[:there]
    b_OR[:, :there] = left_ON[:, :there] * root
    return Factors(a_RI, b_OR)
