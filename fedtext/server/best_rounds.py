"""Each client's best round by its test texts, as some papers report it.

A value that test texts choose is above what any model of the run has: of few texts far above. It is computed to be
compared with values that were chosen in the same way (FedeVocab, published code), and with nothing else.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtext.config.selection import BEST_ROUND
from fedtext.errors import ClientError
from fedtext.server.evaluations import warn_left_out
from fedtext.server.fleet import Fleet

MEASURES = "Local", "Global"
PREFIX = "#best_round/"  # of tensors of a checkpoint


class BestRounds:
    """The best accuracies of the clients' own models, after the rounds in which they took part.

    Args:
        clients: Number of clients, K.
        kept: The tensors of a checkpoint, with those that ``to_keep`` returned; None: the run begins.
    """

    def __init__(self, clients: int, kept: Mapping[str, NDArray[np.float32]] | None) -> None:
        none_K = np.full(clients, np.nan, np.float32)
        self.best = {name: np.array((kept or {}).get(PREFIX + name, none_K)) for name in MEASURES}

    def observe(self, fleet: Fleet, handle: Any, round_: int, members: Sequence[int]) -> dict[str, float]:
        """Evaluate the clients of a round, and return the means over all clients that have been evaluated so far.

        Args:
            fleet: The clients.
            handle: The parameters after the round.
            round_: Number of the round.
            members: Ids of the clients that completed it.

        Returns:
            ``Local_best_round`` and ``Global_best_round``; none before a client has been evaluated.

        Raises:
            ClientError: A client failed, and ``participation.on_client_error`` is ``fail``.
        """
        there = set(fleet.clients.evaluated())
        found = fleet.own_models(handle, round_, [client for client in sorted(members) if client in there])
        for client, evaluated in sorted(found.items()):
            if evaluated.problem:
                warn_left_out(ClientError(fleet.clients.names[client], round_, evaluated.problem))
            for name, best_K in self.best.items():
                if name in evaluated.metrics:
                    best_K[client] = np.fmax(best_K[client], np.float32(evaluated.metrics[name]))
        means = {name + BEST_ROUND: best_K[~np.isnan(best_K)] for name, best_K in self.best.items()}
        return {name: float(known.mean(dtype=np.float64)) for name, known in means.items() if len(known)}

    def to_keep(self) -> dict[str, NDArray[np.float32]]:
        """Return what a checkpoint has of them."""
        return {PREFIX + name: best_K for name, best_K in self.best.items()}
