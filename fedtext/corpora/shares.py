"""Equal shares of one set of texts, for corpora that bring no clients of their own."""

import numpy as np

from fedtext.corpora.types import RawClient, Split
from fedtext.errors import UserError
from fedtext.seeding import generator


def deal(train: Split, test: Split, clients: int, seed: int) -> list[RawClient]:
    """``clients`` clients with an equal share each of train and of test, drawn at random from the seed and from nothing
    else (RR-LDP paper, section 4.2): IID, labels not balanced. Every text goes to one client, and shares differ by one
    text at most. Raises UserError when there are fewer texts than clients."""
    for side, split in (("train", train), ("test", test)):
        if len(split) < clients:
            raise UserError(f"corpus.clients: {clients} clients cannot share {len(split)} {side} texts: lower it")
    shares = [
        np.array_split(generator(seed, f"shares of {side}").permutation(len(split)), clients)
        for side, split in (("train", train), ("test", test))
    ]
    digits = len(str(clients))
    return [
        RawClient(f"share-{number:0{digits}}", train.take(np.sort(trained)), test.take(np.sort(tested)))
        for number, (trained, tested) in enumerate(zip(*shares, strict=True), start=1)
    ]
