"""The clients' part of the protocol, for the clients that are hosted in one place.

Each client uses what it has itself and what it has received, never what the others in its place have.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedtext.accounting.masks import needed
from fedtext.config.experiment import Experiment
from fedtext.messages import Update
from fedtext.secure import records, shamir
from fedtext.secure.keys import KEY, KeyPair, add_mask, seal, unseal
from fedtext.secure.ring import Ring, Samples, in_integers
from fedtext.wire import encoding

SEED, PRIVATE = b"s", b"k"  # whose share an answer has: of a client's seed, or of the private key of its masks


@dataclass
class _Session:
    """The secrets of a client in a round."""

    channel: KeyPair = field(default_factory=KeyPair)
    masks: KeyPair = field(default_factory=KeyPair)
    seed: bytes = field(default_factory=lambda: secrets.token_bytes(KEY))
    peers: dict[int, bytes] = field(default_factory=dict)  # both public keys of each neighbour
    sealing: dict[int, bytes] = field(default_factory=dict)  # the key of shares to and from each neighbour
    boxes: dict[int, bytes] = field(default_factory=dict)  # sealed shares of each neighbour that has sent them


class SecureClients:
    """The sessions of clients in a round.

    Args:
        ring: How updates become integers.
    """

    def __init__(self, ring: Ring) -> None:
        self.ring, self.config = ring, ring.config
        self.sessions: dict[int, _Session] = {}
        self.steps = {"keys": self._keys, "shares": self._shares, "receive": self._receive, "open": self._open}

    def answer(self, step: str, messages: Mapping[int, bytes]) -> dict[int, bytes]:
        """Return the answers of clients to the server's messages in a step of the protocol.

        Args:
            step: ``keys``, ``shares``, ``receive`` or ``open``.
            messages: Messages by client.

        Raises:
            ValueError: A message is not as the protocol has it.
        """
        if step == "keys":  # of a new round, or of a round that is repeated
            self.sessions.clear()
        return {client: self.steps[step](client, message) for client, message in messages.items()}

    def _keys(self, client: int, message: bytes) -> bytes:
        """Make keys, and return the public ones."""
        session = self.sessions[client] = _Session()
        return session.channel.public + session.masks.public

    def _shares(self, client: int, message: bytes) -> bytes:
        """Receive the neighbours' public keys, and return sealed shares for them."""
        session = self.sessions[client]
        session.peers = peers = records.unpack(message)
        least, points = needed(self.config.threshold, len(peers)), [peer + 1 for peer in peers]
        seeds = shamir.split(session.seed, least, points)
        privates = shamir.split(session.masks.private, least, points)
        session.sealing = {peer: session.channel.agreed(keys[:KEY], b"shares") for peer, keys in peers.items()}
        sealed = {
            peer: seal(key, seed + private, records.pack_ids([client, peer]))
            for (peer, key), seed, private in zip(session.sealing.items(), seeds, privates, strict=True)
        }
        return records.pack(sealed)

    def _receive(self, client: int, message: bytes) -> bytes:
        """Receive the sealed shares of neighbours. Those that have sent none are not in the round."""
        session = self.sessions[client]
        session.boxes = records.unpack(message)
        if unknown := set(session.boxes) - set(session.peers):
            raise ValueError(f"shares came from clients that are no neighbours: {sorted(unknown)}")
        if len(session.boxes) < needed(self.config.threshold, len(session.peers)):
            raise ValueError("too few neighbours have shares of its secrets to remove its masks")
        return b""

    def payload(self, update: Update, rng: np.random.Generator | None = None) -> tuple[NDArray[np.uint8], float]:
        """Return a client's payload, and the share of its coordinates that were cut off.

        Args:
            update: The update as the server would decode it.
            rng: Source of its noise; None: it adds none.
        """
        integers_N, cut = self.ring.integers(update, rng)
        if self.config.masks:
            self.mask(update.client, integers_N)
        return np.frombuffer(encoding.encode(in_integers(update, integers_N)), np.uint8), cut

    def mask(self, client: int, vector_N: NDArray[np.uint32]) -> None:
        """Add a client's masks to its update in integers, in place.

        Args:
            client: The client, which has received its neighbours' shares.
            vector_N: All its coordinates, which go to the server.
        """
        session = self.sessions[client]
        add_mask(vector_N, session.seed)
        for peer in session.boxes:
            add_mask(vector_N, session.masks.agreed(session.peers[peer][KEY:], b"masks"), negative=peer < client)

    def _open(self, client: int, message: bytes) -> bytes:
        """Receive the ids of the clients whose updates are in the sum, and return one share of each neighbour.

        The session ends with it: no server has shares of both secrets of a neighbour from one client.
        """
        summed = set(records.unpack_ids(message))
        session = self.sessions.pop(client, None)
        if session is None:
            raise ValueError("it has opened the sum of this round already")
        if client not in summed:
            raise ValueError("it is asked to open a sum that it is not in")
        if self.ring.grid and len(summed) < self.ring.grid.clients:
            raise ValueError(f"it is asked to open a sum with the noise of {len(summed)} clients, which is too little")
        opened: dict[int, bytes] = {}
        for peer, box in session.boxes.items():
            both = unseal(session.sealing[peer], box, records.pack_ids([peer, client]))
            seed, private = both[: shamir.SHARE], both[shamir.SHARE :]
            opened[peer] = SEED + seed if peer in summed else PRIVATE + private
        return records.pack(opened)


def secure_clients(experiment: Experiment, samples: Samples, coordinates: int) -> SecureClients | None:
    """Return the clients' part of an experiment's secure aggregation; None without it.

    Args:
        experiment: The experiment.
        samples: Number of train texts of each client that could ever take part.
        coordinates: Number of coordinates of an update.
    """
    return SecureClients(Ring(experiment, samples, coordinates)) if experiment.server.secure_aggregation else None
