"""Random generators, each derived from (seed, purpose, round, client).

No generator is used for more than one purpose of one client in one round. Results therefore do not depend on the order
in which actors draw, on the placement of clients, or on interruptions of a run.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

SERVER = -1  # the "client" of draws of the server, or of draws that are common to all clients


def derive(seed: int, purpose: str, round_: int = 0, client: int = SERVER) -> int:
    """Return a 64-bit seed for one purpose. Different arguments give unrelated seeds.

    Args:
        seed: The experiment's seed.
        purpose: Name of the purpose.
        round_: Number of the round.
        client: The client's id; by default the draw is not for a single client.
    """
    key = f"{seed}/{purpose}/{round_}/{client}".encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")


def generator(seed: int, purpose: str, round_: int = 0, client: int = SERVER) -> np.random.Generator:
    """Return a new generator for one purpose.

    Args:
        seed: The experiment's seed.
        purpose: Name of the purpose, such as "batches".
        round_: Number of the round.
        client: The client's id; by default the draw is not for a single client.
    """
    return np.random.Generator(np.random.Philox(key=derive(seed, purpose, round_, client)))


@contextmanager
def torch_scope(seed: int, purpose: str, round_: int = 0, client: int = SERVER) -> Iterator[None]:
    """Seed torch's global generators (initialisation, dropout) within the block, and restore their states after it.

    Within it new parameters are in float32, whatever torch's default in the user's program: draws in float64 differ.

    Args:
        seed: The experiment's seed.
        purpose: Name of the purpose.
        round_: Number of the round.
        client: The client's id; by default the draw is not for a single client.
    """
    with torch.random.fork_rng():
        # without a GPU torch.manual_seed has the same effect, but records a stack trace with each call
        seeded = torch.manual_seed if torch.cuda.is_available() else torch.default_generator.manual_seed
        seeded(derive(seed, purpose, round_, client) & (2**63 - 1))
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(default)
