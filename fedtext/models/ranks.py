"""Clients of unequal ranks: how much of a model's low-rank factors each of them has.

Some tensors have an axis of ranks (``ModelConfig.rank_axis``). The server has all R entries of it, a client of rank r
the first r, and no others are sent. In a client's memory there are R entries, the others zeros. In factors A and B of a
product B A these have no gradient, since both are zero: no step moves them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedtext.layout import Shapes
from fedtext.models.base import ModelConfig
from fedtext.seeding import generator


def assigned(shares: Mapping[int, float], seed: int, clients: int) -> NDArray[np.int64]:
    """Return the rank of each client.

    As many clients have a rank as its share says, to less than one client: what is left of the rounded down numbers
    goes to the ranks with the largest remainders. Which clients these are is a draw of the experiment.

    Args:
        shares: Share of the clients by rank.
        seed: The experiment's seed.
        clients: Number of clients.
    """
    ranks = sorted(shares)
    exact = clients * np.array([shares[rank] for rank in ranks]) / sum(shares.values())
    counts = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: clients - counts.sum()]] += 1
    return generator(seed, "ranks").permutation(np.repeat(ranks, counts))


@dataclass(frozen=True)
class Ranks:
    """The rank of each client.

    Attributes:
        axis: Returns the axis of ranks of a tensor, by its name; None: it has none.
        rank_K: The ranks by client; None: every client has all of every tensor.
    """

    axis: Callable[[str], int | None]
    rank_K: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, model: ModelConfig, seed: int, clients: int) -> "Ranks":
        """Return the ranks of an experiment's clients.

        Args:
            model: The model.
            seed: The experiment's seed.
            clients: Number of clients.
        """
        return cls(model.rank_axis, assigned(model.ranks, seed, clients) if model.ranks else None)

    def rank(self, client: int) -> int | None:
        """Return the rank of a client; None: it has all of every tensor."""
        return None if self.rank_K is None else int(self.rank_K[client])

    def shapes(self, shapes: Shapes, client: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of what a client has of tensors of these shapes."""
        found, rank = dict(shapes), self.rank(client)
        for name, axis in self._cut(shapes, client).items():
            assert rank is not None, "or nothing is cut"
            found[name] = (*found[name][:axis], rank, *found[name][axis + 1 :])
        return found

    def held(self, tensors: Mapping[str, Any], client: int) -> dict[str, Any]:
        """Return what a client has of tensors, of numpy or torch, as views."""
        cut = self._cut(tensors, client)
        return dict(tensors) | {name: tensors[name][self._first(axis, client)] for name, axis in cut.items()}

    def masked(self, tensors: Mapping[str, Any], client: int) -> dict[str, Any]:
        """Return tensors of which a client has all that is not zero: copies where it does not have all."""
        found = dict(tensors)
        for name, axis in self._cut(tensors, client).items():
            first, whole = self._first(axis, client), tensors[name]
            made = torch.zeros_like(whole) if isinstance(whole, torch.Tensor) else np.zeros_like(whole)
            made[first] = whole[first]
            found[name] = made
        return found

    def lacking(self, shapes: Shapes) -> float:
        """Return the number of coordinates of tensors of these shapes that a client lacks, mean over clients."""
        if self.rank_K is None:
            return 0.0
        axes = {name: axis for name in shapes if (axis := self.axis(name)) is not None}
        return sum(
            float(np.prod(shapes[name])) * (1.0 - float(self.rank_K.mean()) / shapes[name][axis])
            for name, axis in axes.items()
        )

    def _cut(self, names: Mapping[str, Any], client: int) -> dict[str, int]:
        """Return the axes of the tensors of which a client may not have all."""
        if self.rank(client) is None:
            return {}
        return {name: axis for name in names if (axis := self.axis(name)) is not None}

    def _first(self, axis: int, client: int) -> tuple[slice, ...]:
        """Return the place of a client's part of a tensor."""
        return (*[slice(None)] * axis, slice(self.rank(client)))


ALIKE = Ranks(lambda name: None)  # every client has all of every tensor
