"""The texts of each client that an experiment uses: validation texts held out of train, leaked texts dropped, a share
of train drawn.

Legend: N texts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtext.corpora.base import CorpusConfig
from fedtext.corpora.leaks import Seen, Where, identities
from fedtext.corpora.types import Leaks, RawClient, RawCorpus, Split
from fedtext.errors import UserError
from fedtext.seeding import generator

SMALL = 5  # held-out texts of a class: of fewer, rounding to the nearest would prefer the larger classes


@dataclass(frozen=True)
class Leaking:
    """Which evaluated texts of a corpus training has seen.

    Texts are compared as the corpus reads them, independently of ``corpus.text``. Sentences of a corpus for language
    models must agree word for word.
    """

    train: list[list[bytes]]  # identities of each client's train texts
    validation: list[list[bytes]]  # identities of validation texts, if the corpus has its own
    unlabeled: list[bytes] | None
    tests: list[Where]

    @classmethod
    def of(cls, corpus: RawCorpus, config: CorpusConfig, data: Path | None, seed: int) -> "Leaking":
        """Compare the texts of a corpus, as ``config.read(data, seed)`` returned it.

        Args:
            corpus: The corpus as ``config.read`` returned it.
            config: Keys of the corpus.
            data: The folder given with --data, if any.
            seed: Seed with which the corpus was read.
        """
        exact = config.language
        train = [identities(client.train, exact) for client in corpus.clients]
        unlabeled = _unlabeled(config, data, seed)
        seen = Seen(train, unlabeled)
        return cls(
            train,
            [identities(client.validation, exact) for client in corpus.clients],
            unlabeled,
            [seen.find(number, identities(client.test, exact)) for number, client in enumerate(corpus.clients)],
        )

    def counts(self) -> list[Leaks]:
        """Count the leaked texts among each client's test texts, before any are dropped."""
        return [where.count() for where in self.tests]


def _unlabeled(config: CorpusConfig, data: Path | None, seed: int) -> list[bytes] | None:
    """Return the identities of the unlabeled texts.

    None if there are none, or if they are needed for counts alone and cannot be read or would have to be downloaded.
    """
    dropped = config.drop_leaked == "all"
    if config.unlabeled == "none" or (config.unlabeled == "remote" and not dropped):
        return None
    try:
        texts = [text.text for text in config.read_unlabeled(data, seed)]
    except UserError:
        if dropped:
            raise
        return None
    return identities(Split(texts, np.zeros(len(texts), np.int64))) if texts else None


def used(corpus: RawCorpus, config: CorpusConfig, seed: int, leaking: Leaking) -> list[RawClient]:
    """Select each client's texts, in three steps, each only if the experiment asks for it.

    1. A share of train is held out as validation (``corpus.validation``).
    2. Leaked texts are dropped (``corpus.drop_leaked``): test texts that are in the train split as it was read, and
       validation texts that are in the rest of train, so that neither depends on ``corpus.share``.
    3. A share is drawn of the rest of train (``corpus.share``).

    Args:
        corpus: The corpus as it was read.
        config: Keys of the corpus.
        seed: Seed of the draws.
        leaking: The leaked texts of the corpus.

    Raises:
        UserError: A client is left without texts in a split.
    """
    clients, left = corpus.clients, leaking.train
    evaluated = leaking.validation
    brought = config.brings_validation or any(len(client.validation) for client in clients)
    if config.validation and not brought:
        of = config.validation, seed
        held = [_held(client, *of, number, not config.language) for number, client in enumerate(clients)]
        clients = [_moved(client, held_N) for client, held_N in zip(clients, held, strict=True)]
        left, evaluated = ([_chosen(keys, held_N == out) for keys, held_N in zip(leaking.train, held, strict=True)]
                           for out in (False, True))  # fmt: skip
    if config.drop_leaked != "none":
        seen = Seen(left, leaking.unlabeled)
        clients = [
            replace(
                client,
                test=_kept(client, "test", leaking.tests[number], config),
                validation=_kept(client, "validation", seen.find(number, evaluated[number]), config),
            )
            for number, client in enumerate(clients)
        ]
    if config.share < 1:
        clients = [
            replace(client, train=client.train.sample(config.share, generator(seed, "share", client=number)))
            for number, client in enumerate(clients)
        ]
    return clients


def _chosen(keys: Sequence[bytes], chosen_N: NDArray[np.bool_]) -> list[bytes]:
    return [key for key, chosen in zip(keys, chosen_N, strict=True) if chosen]


def _kept(client: RawClient, side: str, where: Where, config: CorpusConfig) -> Split:
    """Drop the leaked texts among a client's test or validation texts. Raises UserError if none remain."""
    split: Split = getattr(client, side)
    kept = split.take(where.kept(config.drop_leaked))
    if len(split) and not len(kept):
        own = config.drop_leaked == "own"
        raise UserError(
            f"corpus.drop_leaked: {config.drop_leaked} leaves client {client.name!r} without {side} texts, since all "
            f"are also in {'its train split' if own else 'a train split or the unlabeled texts'}: set it to "
            f"{'none' if own else 'own or none'}"
        )
    return kept


def held_out(
    split: Split, share: float, draw: np.random.Generator, least: int = 0, by_class: bool = True
) -> NDArray[np.bool_]:
    """Draw the texts that are held out: a share of all, and of each class but for rounding, which is drawn.

    All copies of a text are on the same side, so that no held-out text is also among the others. Fewer texts are held
    out if this requires it.

    Args:
        split: The N texts.
        share: Share of the texts.
        draw: Source of the random numbers.
        least: Smallest number of held-out texts of all classes together. Unless it is 0, a text and its copies are held
            out in any case, if there is another text.
        by_class: Whether labels are classes.

    Returns:
        Whether each text is held out, shape (N,).
    """
    _, group_N = np.unique(np.array(split.identities(), dtype=object), return_inverse=True)
    sizes = np.bincount(group_N)
    label_of_group = np.zeros(len(sizes), np.int64)
    if by_class:
        label_of_group[group_N[::-1]] = split.labels[::-1]  # of a text with two labels the first one counts
    held = np.zeros(len(sizes), bool)
    labels, class_of_group = np.unique(label_of_group, return_inverse=True)
    of_class = [draw.permutation(np.flatnonzero(label_of_group == label)) for label in labels]
    wanted_C = _wanted(share, np.bincount(class_of_group, sizes, len(labels)), draw)
    for groups, wanted in zip(of_class, wanted_C, strict=True):
        held[groups[np.cumsum(sizes[groups]) <= wanted]] = True
    left = draw.permutation(np.flatnonzero(~held))
    held[left[np.cumsum(sizes[left]) <= least - sizes[held].sum()]] = True
    if least and not held.any() and len(sizes) > 1:
        held[left[sizes[left].argmin()]] = True
    return held[group_N]


def _wanted(share: float, sizes_C: NDArray[Any], draw: np.random.Generator) -> NDArray[np.int64]:
    """Return how many texts of each class are held out: a share of all, rounded once.

    If the shares of the classes, rounded, are that many, and none is small, it is they. Else each class has its share
    rounded down, and the classes of the others are drawn by what rounding has left over of each (systematic sampling in
    random order), so that over many clients no class is preferred.
    """
    exact_C, total = share * sizes_C, round(share * int(sizes_C.sum()))
    if exact_C.min() >= SMALL and np.rint(exact_C).sum() == total:
        return np.rint(exact_C).astype(np.int64)
    wanted_C = np.floor(exact_C).astype(np.int64)
    more = total - int(wanted_C.sum())
    left_C = exact_C - wanted_C
    if more > 0 and left_C.any():
        order = draw.permutation(len(left_C))
        ends = np.cumsum(left_C[order])
        wanted_C[order] += np.diff(np.floor(ends * (more / ends[-1]) + draw.random()).astype(np.int64), prepend=0)
    return wanted_C


def _held(client: RawClient, share: float, seed: int, number: int, by_class: bool) -> NDArray[np.bool_]:
    """Draw the train texts that are held out for validation, from (seed, "validation", client)."""
    held_N = held_out(client.train, share, generator(seed, "validation", client=number), by_class=by_class)
    if len(held_N) == 1:
        raise UserError(
            f"corpus.validation = {share}: client {client.name!r} has 1 train text, and needs another one to hold out: "
            "add texts, leave this client out, or set corpus.validation to 0"
        )
    if held_N.all() or not held_N.any():
        side = "train" if held_N.all() else "validation"
        raise UserError(
            f"corpus.validation = {share} leaves no {side} text of the {len(held_N)} train texts of client "
            f"{client.name!r}: {'lower' if held_N.all() else 'raise'} it"
        )
    return held_N


def _moved(client: RawClient, held_N: NDArray[np.bool_]) -> RawClient:
    """Return the client with these train texts moved to validation."""
    held, left = np.flatnonzero(held_N), np.flatnonzero(~held_N)
    return replace(client, train=client.train.take(left), validation=client.train.take(held))
