"""How the server folds the clients' updates into the shared parameters."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedtext.models.recurrent import TABLE


@dataclass(frozen=True)
class Update:
    """What one client changed: ``tensors`` are differences to the parameters it received.

    ``rows`` names the rows of the embedding table that ``tensors[TABLE]`` holds; None: all of them.
    ``samples`` is n_k, the client's number of training texts.
    """

    client: int
    samples: int
    tensors: Mapping[str, NDArray[np.float32]]
    rows: NDArray[np.int32] | None = None


def weighted_mean(
    state: Mapping[str, NDArray[np.float32]], updates: Iterable[Update], *, uniform: bool, holders_only: bool
) -> dict[str, NDArray[np.float32]]:
    """theta + sum_k w_k delta_k with w_k = n_k / sum_j n_j over the participants, or equal weights.

    Updates are folded as they come into one float64 accumulator, so memory does not grow with the cohort. With
    ``holders_only`` an embedding row is averaged over the clients that sent it; otherwise an absent row counts as
    unchanged, exactly as if the client had sent the whole table.
    """
    sums = {name: np.zeros(tensor.shape) for name, tensor in state.items()}
    total, holders = 0.0, None
    for update in updates:
        weight = 1.0 if uniform else float(update.samples)
        total += weight
        for name, delta in update.tensors.items():
            if name == TABLE and update.rows is not None:
                sums[name][update.rows] += weight * delta.astype(np.float64)
                if holders_only:
                    holders = np.zeros(len(sums[name])) if holders is None else holders
                    holders[update.rows] += weight
            else:
                sums[name] += weight * delta.astype(np.float64)
    if not total:  # nobody took part: the round changes nothing
        return dict(state)
    result = {}
    for name, tensor in state.items():
        share: float | NDArray[np.float64] = total
        if name == TABLE and holders is not None:
            share = np.maximum(holders, np.finfo(float).tiny)[:, None]
        result[name] = (tensor + sums[name] / share).astype(np.float32)
    return result
