"""Equal shares of one set of texts, for corpora without clients."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedtext.corpora.types import RawClient, Split
from fedtext.errors import UserError
from fedtext.seeding import generator


def deal(train: Split, test: Split, clients: int, seed: int, validation: Split | None = None) -> list[RawClient]:
    """Split texts over clients in equal shares, IID (RR-LDP paper, section 4.2).

    The draw depends on the seed alone; labels are not balanced. Every text goes to one client, and shares differ by one
    text at most. FedAtt's paper gives each client floor(N / clients) texts and drops the rest.

    Args:
        train, test: The texts.
        clients: Number of clients.
        seed: Seed of the draw.
        validation: Validation texts, if there are some.

    Raises:
        UserError: There are fewer texts than clients in a split.
    """
    sides = sides_of(train, test, clients, validation)
    shares = {
        side: np.array_split(generator(seed, f"shares of {side}").permutation(len(split)), clients)
        for side, split in sides.items()
    }
    return dealt(sides, shares)


def sides_of(train: Split, test: Split, clients: int, validation: Split | None = None) -> dict[str, Split]:
    """Return the splits by the names of the fields of ``RawClient``.

    Args:
        train: Train texts.
        test: Test texts.
        clients: Number of clients.
        validation: Validation texts; None: there are none.

    Raises:
        UserError: A split has fewer texts than there are clients.
    """
    sides = {"train": train, "test": test} | ({} if validation is None else {"validation": validation})
    for side, split in sides.items():
        if len(split) < clients:
            advice = ", or raise corpus.validation if it is below 1" if side == "validation" else ""
            raise UserError(
                f"corpus.clients: {clients} clients cannot share {len(split)} {side} texts: lower it{advice}"
            )
    return sides


def dealt(sides: Mapping[str, Split], shares: Mapping[str, list[NDArray[np.int64]]]) -> list[RawClient]:
    """Make the clients, given the indices of each client's texts in each split. Texts keep the order of the corpus."""
    clients = len(shares["train"])
    digits = len(str(clients))
    return [
        RawClient(
            f"share-{number + 1:0{digits}}",
            **{side: split.take(np.sort(shares[side][number])) for side, split in sides.items()},
        )
        for number in range(clients)
    ]
