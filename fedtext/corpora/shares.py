"""Equal shares of one set of texts, for corpora that bring no clients of their own."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedtext.corpora.types import RawClient, Split
from fedtext.errors import UserError
from fedtext.seeding import generator


def deal(train: Split, test: Split, clients: int, seed: int, validation: Split | None = None) -> list[RawClient]:
    """``clients`` clients with an equal share each of train, of test and of validation if there is one, drawn at random
    from the seed and from nothing else (RR-LDP paper, section 4.2): IID, labels not balanced. Every text goes to one
    client, and shares differ by one text at most; FedAtt's paper gives each floor(N / clients) and drops the rest.
    Raises UserError when there are fewer texts than clients."""
    sides = sides_of(train, test, clients, validation)
    shares = {
        side: np.array_split(generator(seed, f"shares of {side}").permutation(len(split)), clients)
        for side, split in sides.items()
    }
    return dealt(sides, shares)


def sides_of(train: Split, test: Split, clients: int, validation: Split | None = None) -> dict[str, Split]:
    """What is dealt out, by the names a RawClient has for it. Raises UserError when there are fewer texts than
    clients."""
    sides = {"train": train, "test": test} | ({} if validation is None else {"validation": validation})
    for side, split in sides.items():
        if len(split) < clients:
            advice = ", or raise corpus.validation if it is below 1" if side == "validation" else ""
            raise UserError(
                f"corpus.clients: {clients} clients cannot share {len(split)} {side} texts: lower it{advice}"
            )
    return sides


def dealt(sides: Mapping[str, Split], shares: Mapping[str, list[NDArray[np.int64]]]) -> list[RawClient]:
    """The clients whose texts have these numbers, client by client, in the order of the corpus."""
    clients = len(shares["train"])
    digits = len(str(clients))
    return [
        RawClient(
            f"share-{number + 1:0{digits}}",
            **{side: split.take(np.sort(shares[side][number])) for side, split in sides.items()},
        )
        for number in range(clients)
    ]
