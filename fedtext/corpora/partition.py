"""How one set of labelled texts is dealt out to clients that differ in their classes.

A client's train, validation and test texts have the same proportions of classes (FedeVocab paper, section 4.1: a local
test follows the local train) as nearly as there are such texts, and every text goes to one client. Where test has other
shares of the classes than train, as in SST-2, clients with few classes cannot all have them alike. All depends on the
seed, the labels and the keys below alone.

Legend: K clients, C classes, N texts.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedtext.corpora.shares import deal, dealt, sides_of
from fedtext.corpora.types import RawClient, Split
from fedtext.errors import UserError
from fedtext.schema import Strict, entry
from fedtext.seeding import generator

_SPREAD = 1.0  # of the logarithm of a drawn client's size
_STEPS = 200  # of fitting; what is not reached in so many is filled in from what is left
_TINY = 1e-9  # less than what is meant by a difference: processors round differently


class IID(Strict):
    """Equal shares, drawn at random."""

    name: Literal["iid"] = "iid"

    def deal(
        self, train: Split, test: Split, classes: int, clients: int, seed: int, validation: Split | None = None
    ) -> list[RawClient]:
        return deal(train, test, clients, seed, validation)


class Skewed(Strict, ABC):
    """Clients that differ in their classes."""

    def deal(
        self, train: Split, test: Split, classes: int, clients: int, seed: int, validation: Split | None = None
    ) -> list[RawClient]:
        """``clients`` clients that have every text of train, of test and of validation if there is one, each text
        once. Raises UserError when a client would have none of one of them."""
        sides = sides_of(train, test, clients, validation)
        totals = {side: np.bincount(split.labels, minlength=classes) for side, split in sides.items()}
        counts = self.counts(totals, clients, seed)
        for side, counts_KC in counts.items():
            bare_K = np.flatnonzero(counts_KC.sum(1) == 0)
            if len(bare_K):
                raise UserError(
                    f"corpus.partition: {len(bare_K)} of {clients} clients would have no {side} text: lower "
                    "corpus.clients, or raise the number of classes a client has"
                )
        return dealt(sides, {side: _draw(split.labels, counts[side], side, seed) for side, split in sides.items()})

    @abstractmethod
    def counts(self, totals: Mapping[str, NDArray[np.int64]], clients: int, seed: int) -> dict[str, NDArray[np.int64]]:
        """How many texts of each class a client has of each side (K x C), of which there are ``totals`` (C)."""


class Dirichlet(Skewed):
    """Clients whose proportions of classes are drawn from a Dirichlet distribution.

    Each client's proportions of classes are drawn from a Dirichlet distribution (FedeVocab paper, section 4.1: D ~
    Dir(alpha), alpha = 1), once for all its texts.

    The paper does not say over what. ``per_class_prior`` is Dir(alpha p), p the classes' shares of train, as FedNLP has
    it, which the paper follows: with alpha = 1 and 20, 4 or 2 equal classes a client has exp(entropy) = 2.7, 2.0 or 1.5
    of them. ``symmetric`` is Dir(alpha, ..., alpha): 13.5, 3.0 or 1.7.

    What clients would have by their draws is not what there is of a class. Here every draw is weighed with a factor of
    its class and one of its client, so that all texts are dealt out and sizes are met (iterative proportional fitting):
    clients stay as uneven as they were drawn. FedNLP serves one client after the other, and fills up those that
    come to a class too late from the others: of 100 clients and 20 classes the first twenty have 2.8, the last twenty
    6.1, all 4.0. It draws anew for test.
    """

    name: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(1.0, gt=0, description="less makes clients more uneven")
    reading: Literal["per_class_prior", "symmetric"] = Field(
        "per_class_prior", description="Dir(alpha p) with the classes' shares p of train, or Dir(alpha, ..., alpha)"
    )
    sizes: Literal["equal", "drawn"] = Field(
        "equal", description="texts of a client: equally many to within one, or log-normal with a deviation of 1"
    )

    def counts(self, totals: Mapping[str, NDArray[np.int64]], clients: int, seed: int) -> dict[str, NDArray[np.int64]]:
        weights_K = np.ones(clients)
        if self.sizes == "drawn":
            weights_K = np.exp(_SPREAD * generator(seed, "sizes of clients").standard_normal(clients))
        train_KC = fitted(self.proportions(totals["train"], clients, seed), totals["train"], weights_K)
        # The others follow what train has come to, not what was drawn for it.
        return {"train": train_KC} | {
            side: fitted(train_KC.astype(float), totals_C, weights_K)
            for side, totals_C in totals.items()
            if side != "train"
        }

    def proportions(self, totals_C: NDArray[np.int64], clients: int, seed: int) -> NDArray[np.float64]:
        """The draws (K x C): normalised gammas, from their logarithms, since those of a small alpha are too small for
        numbers. A class without train texts is drawn like others by ``symmetric`` and never by ``per_class_prior``."""
        prior_C = totals_C / totals_C.sum()
        alpha_C = self.alpha * (prior_C if self.reading == "per_class_prior" else np.ones(len(prior_C)))
        there = np.flatnonzero(alpha_C)
        draws = generator(seed, "proportions of classes")
        shape_KC = np.broadcast_to(alpha_C[there], (clients, len(there)))
        log_KC = np.log(draws.standard_gamma(shape_KC + 1)) + np.log1p(-draws.random(shape_KC.shape)) / shape_KC
        proportions_KC = np.zeros((clients, len(prior_C)))
        proportions_KC[:, there] = np.exp(log_KC - log_KC.max(1, keepdims=True))
        return proportions_KC / proportions_KC.sum(1, keepdims=True)


class Pathological(Skewed):
    """Clients with few classes each (McMahan et al. 2017).

    Each client has texts of so many classes and of no other (McMahan et al. 2017, section 3), and an equal share of
    each of them among the clients that have it. Every class is had by equally many clients to within one; which, is
    drawn. One class each of as many clients as classes gives every class to a client of its own."""

    name: Literal["pathological"] = "pathological"
    classes: int = Field(2, ge=1, description="that a client has")

    def counts(self, totals: Mapping[str, NDArray[np.int64]], clients: int, seed: int) -> dict[str, NDArray[np.int64]]:
        there = np.flatnonzero(sum(totals.values()))
        if not self.classes <= len(there) <= clients * self.classes:
            raise UserError(
                f"corpus.partition.pathological.classes: {clients} clients of {self.classes} classes each cannot have "
                f"all texts of {len(there)} classes: "
                + ("lower it" if self.classes > len(there) else "raise it, or corpus.clients")
            )
        draws = generator(seed, "classes of clients")
        holders_C = np.zeros(len(there), np.int64)
        counts = {side: np.zeros((clients, len(totals_C)), np.int64) for side, totals_C in totals.items()}
        has_KC = np.zeros((clients, len(there)), bool)
        for client in draws.permutation(clients):  # so that a share that is larger by one does not go to the first ones
            chosen = np.lexsort((draws.random(len(there)), holders_C))[: self.classes]
            has_KC[client, chosen] = True
            holders_C[chosen] += 1
        for column, label in enumerate(there):
            holders = draws.permutation(np.flatnonzero(has_KC[:, column]))
            for side, totals_C in totals.items():
                each, more = divmod(int(totals_C[label]), len(holders))
                counts[side][holders, label] = each + (np.arange(len(holders)) < more)
        return counts


if TYPE_CHECKING:
    PartitionField: TypeAlias = IID | Dirichlet | Pathological
else:
    PartitionField = entry(IID, Dirichlet, Pathological)


def sizes_of(total: int, weights_K: NDArray[np.float64]) -> NDArray[np.int64]:
    """``total`` texts in these proportions, at least one each, by the largest remainders, of equal ones the first."""
    wanted_K = (total - len(weights_K)) * weights_K / weights_K.sum()
    sizes_K = np.floor(wanted_K + _TINY).astype(np.int64)
    order_K = np.argsort(-np.round(wanted_K - sizes_K, 9), kind="stable")
    sizes_K[order_K[: total - len(weights_K) - sizes_K.sum()]] += 1
    return sizes_K + 1


def fitted(
    proportions_KC: NDArray[np.float64], totals_C: NDArray[np.int64], weights_K: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Whole numbers of texts (K x C) near to these proportions of a client, whose sums over classes are the clients'
    sizes (as ``weights_K`` has them) and over clients the ``totals_C`` there are."""
    sizes_K = sizes_of(int(totals_C.sum()), weights_K)
    counts_KC = proportions_KC / proportions_KC.sum(1, keepdims=True) * sizes_K[:, None]
    for _ in range(_STEPS):
        counts_KC = counts_KC * _ratio(totals_C, counts_KC.sum(0))
        rows_K = counts_KC.sum(1)
        if np.abs(rows_K - sizes_K).max() < 1e-6:
            break
        counts_KC = counts_KC * _ratio(sizes_K, rows_K)[:, None]
    # Where no one, or not enough, was drawn for a class: no sum too large, and what is missing from what is left.
    counts_KC = counts_KC * np.minimum(1, _ratio(totals_C, counts_KC.sum(0)))
    counts_KC = counts_KC * np.minimum(1, _ratio(sizes_K, counts_KC.sum(1)))[:, None]
    open_K, left_C = np.maximum(0, sizes_K - counts_KC.sum(1)), np.maximum(0, totals_C - counts_KC.sum(0))
    if open_K.sum() > _TINY:
        counts_KC = counts_KC + np.outer(open_K, left_C) / open_K.sum()
    return _rounded(counts_KC, sizes_K, totals_C)


def _ratio(wanted: NDArray[np.int64], found: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(wanted, found, out=np.ones(len(found)), where=found > 0)


def _rounded(
    counts_KC: NDArray[np.float64], sizes_K: NDArray[np.int64], totals_C: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Rounded up where the fraction is largest and both sums still lack a text."""
    whole_KC = np.floor(counts_KC + _TINY).astype(np.int64)
    open_K, left_C = sizes_K - whole_KC.sum(1), totals_C - whole_KC.sum(0)
    order = np.argsort(-np.round(counts_KC - whole_KC, 9), axis=None, kind="stable")
    clients, labels = np.unravel_index(order, counts_KC.shape)
    while open_K.any():
        for client, label in zip(clients.tolist(), labels.tolist(), strict=True):
            if open_K[client] > 0 and left_C[label] > 0:
                whole_KC[client, label] += 1
                open_K[client] -= 1
                left_C[label] -= 1
    return whole_KC


def _draw(labels_N: NDArray[np.int64], counts_KC: NDArray[np.int64], side: str, seed: int) -> list[NDArray[np.int64]]:
    """Which texts of its classes a client has."""
    parts = [
        np.split(
            generator(seed, f"texts of class {label} of {side}").permutation(np.flatnonzero(labels_N == label)),
            np.cumsum(counts_K)[:-1],
        )
        for label, counts_K in enumerate(counts_KC.T)
    ]
    return [np.concatenate(own) for own in zip(*parts, strict=True)]
