"""The server's part of the protocol: it passes messages on, and removes the masks that are left in a sum."""

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from fedtext.accounting.masks import Graph, graph
from fedtext.config.experiment import Experiment
from fedtext.errors import UserError
from fedtext.secure import records, shamir
from fedtext.secure.client import PRIVATE, SEED
from fedtext.secure.graph import neighbors_of
from fedtext.secure.keys import KEY, KeyPair, add_mask, check_installed
from fedtext.secure.ring import RingSum
from fedtext.server.aggregation import Sum
from fedtext.server.fleet import Fleet
from fedtext.server.repeats import TooFewClientsError
from fedtext.server.sampling import HIDING, Returned, answering, vanished
from fedtext.state.noise_key import NoiseKey


class SecureAggregation:
    """The rounds of an experiment with ``server.secure_aggregation``; without it, or without masks, it does nothing.

    Args:
        experiment: The experiment.
        fleet: The clients.
        noise: The run's key, for the random graph if it is secret.
    """

    def __init__(self, experiment: Experiment, fleet: Fleet, noise: NoiseKey) -> None:
        config = experiment.server.secure_aggregation
        self.config = config if config and config.masks else None
        self.experiment, self.fleet, self.noise = experiment, fleet, noise
        self.keys: dict[int, bytes] = {}  # both public keys of each client of the round
        self.around: dict[int, list[int]] = {}  # its neighbours, of those who have shared their keys
        self.plan: Graph | None = None
        self.up = self.down = 0
        if self.config:
            check_installed()

    def begin(self, round_: int, attempt: int, sample: Returned) -> None:
        """Have the clients of an attempt at a round agree on keys, and share them.

        Args:
            round_: Number of the round.
            attempt: Number of the attempt, from 1.
            sample: All clients that receive the parameters, also those that will drop out or be late. Of those that
                drop out some do before they share their keys: without them the round has no masks of theirs.

        Raises:
            TooFewClientsError: There are fewer than three, or too few neighbours of one to remove its masks.
        """
        config, invited = self.config, sample.invited
        if not config:
            return
        self.around = {}
        if attempt == 1:
            self.up = self.down = 0  # bytes of all attempts
        if not invited:  # a Poisson sample may be empty, and nothing is sent then
            return
        gone = set(vanished(self.experiment, sample.dropped, round_, attempt))
        sharing = [client for client in invited if client not in gone]
        if len(sharing) < HIDING:
            raise TooFewClientsError(
                f"round {round_}: server.secure_aggregation: it has {len(sharing)} clients, and a sum hides the "
                f"updates of {HIDING} or more",
                "raise participation.fraction",
            )
        given = config.neighbors, config.threshold, config.colluding, config.dropping
        self.plan = graph(
            len(invited), *given, self.experiment.participation.late(len(self.fleet.clients), len(invited))
        )
        rng = self.noise.paired(self.experiment.seed, f"neighbors/{attempt}", round_)
        around = neighbors_of(invited, self.plan.neighbors, rng)
        self.keys = self._ask("keys", dict.fromkeys(invited, b""))
        peers = {client: records.pack({peer: self.keys[peer] for peer in around[client]}) for client in sharing}
        boxes: dict[int, dict[int, bytes]] = defaultdict(dict)
        for client, sealed in self._ask("shares", peers).items():
            for peer, box in records.unpack(sealed).items():
                boxes[peer][client] = box
        self.around = {client: sorted(boxes[client]) for client in sharing}
        for client, left in self.around.items():
            self._check(client, len(left), round_)
        self._ask("receive", {client: records.pack(boxes[client]) for client in sharing})

    def _ask(self, step: str, messages: Mapping[int, bytes]) -> dict[int, bytes]:
        """Return the clients' answers in a step."""
        answers = self.fleet.exchange(step, messages)
        self.down += sum(map(len, messages.values()))
        self.up += sum(map(len, answers.values()))
        return answers

    def open(self, total: Sum, round_: int, attempt: int) -> Mapping[str, float]:
        """Remove the masks that are left in the sum of a round.

        Args:
            total: The sum of masked updates.
            round_: Number of the round.
            attempt: Number of the attempt at the round, from 1.

        Returns:
            Metrics of the round.

        Raises:
            TooFewClientsError: So few neighbours of a client answer that its masks stay.
            UserError: Shares of a client that dropped out are wrong.
        """
        if not self.around:
            return {}
        assert self.plan is not None, "a round begins with keys"
        assert isinstance(total, RingSum), "the sum of masked updates"
        summed = set(total.members)
        there = answering(self.experiment, sorted(summed), round_, attempt)
        ids = records.pack_ids(sorted(summed))
        shares: dict[int, dict[int, bytes]] = defaultdict(dict)  # by client, and by the point of who answers
        for client, answer in self._ask("open", dict.fromkeys(there, ids)).items():
            for peer, share in records.unpack(answer).items():
                if share[:1] == (SEED if peer in summed else PRIVATE):
                    shares[peer][client + 1] = share[1:]
        masks_N = np.zeros(total.coordinates, np.uint32)
        for client in sorted(self.around):
            partners = [peer for peer in self.around[client] if peer in summed]
            if client not in summed and not partners:
                continue  # none of its masks is in the sum
            secret = self._opened(client, shares[client], round_)
            if client in summed:
                add_mask(masks_N, secret)
                continue
            pair = KeyPair(secret)
            if pair.public != self.keys[client][KEY:]:
                raise UserError(
                    f"round {round_}: server.secure_aggregation: the shares of client {client}'s key give another one: "
                    "a client has sent a wrong share, and the sum cannot be read"
                )
            for peer in partners:
                add_mask(masks_N, pair.agreed(self.keys[peer][KEY:], b"masks"), negative=client < peer)
        total.subtract(masks_N)
        return {
            "secure_bytes_up": float(self.up),
            "secure_bytes_down": float(self.down),
            "secure_removed": float(len(self.around) - len(summed)),
        }

    def _opened(self, client: int, shares: Mapping[int, bytes], round_: int) -> bytes:
        """Return the secret of a client."""
        assert self.plan is not None
        self._check(client, len(shares), round_)
        return shamir.combine(dict(list(shares.items())[: self.plan.threshold]))

    def _check(self, client: int, answering: int, round_: int) -> None:
        """Raise TooFewClientsError if so few neighbours of a client answer that its masks would stay."""
        assert self.plan is not None
        if answering < self.plan.threshold:
            raise TooFewClientsError(
                f"round {round_}: server.secure_aggregation: {answering} of the {self.plan.neighbors} neighbours of "
                f"client {client} answer, and its masks are removed with {self.plan.threshold}",
                "lower threshold, or set dropping to the share of clients that drop out or miss deadline_s",
            )
