"""Partitions of one set of labelled texts over clients.

A client's train, validation and test texts have the same proportions of classes (FedeVocab paper, section 4.1: a local
test follows the local train), as far as there are enough texts of each class. Every text goes to one client. If test
has other class shares than train, as in SST-2, clients with few classes cannot all have equal proportions. A partition
depends only on the seed, the labels and the keys below.

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

_SPREAD = 1.0  # standard deviation of the logarithm of a drawn client size
_STEPS = 200  # of iterative fitting; a remaining difference is filled up with the texts that are left
_TINY = 1e-9  # smaller differences are rounding errors, which depend on the processor


class IID(Strict):
    """Equal shares, drawn at random."""

    name: Literal["iid"] = "iid"

    def deal(
        self, train: Split, test: Split, classes: int, clients: int, seed: int, validation: Split | None = None
    ) -> list[RawClient]:
        """Split the texts over clients at random.

        Args:
            train, test: The texts.
            classes: Number of classes; not used.
            clients: Number of clients K.
            seed: Seed of the draws.
            validation: Validation texts, if there are some.

        Raises:
            UserError: A client would have no text in a split.
        """
        return deal(train, test, clients, seed, validation)


class Skewed(Strict, ABC):
    """Base of partitions whose clients differ in their classes. A subclass implements ``counts``."""

    def deal(
        self, train: Split, test: Split, classes: int, clients: int, seed: int, validation: Split | None = None
    ) -> list[RawClient]:
        """Split the texts over clients, so that each text goes to one client.

        Args:
            train, test: The texts.
            classes: Number of classes C.
            clients: Number of clients K.
            seed: Seed of the draws.
            validation: Validation texts, if there are some.

        Raises:
            UserError: A client would have no text in a split.
        """
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
        """Return the number of texts of each class at each client, for each split.

        Args:
            totals: Number of texts of each class in each split, shape (C,).
            clients: Number of clients K.
            seed: Seed of the draws.

        Returns:
            Arrays of shape (K, C) by the names of the splits, whose sums over clients are ``totals``.
        """


class Dirichlet(Skewed):
    """Clients whose proportions of classes are drawn from a Dirichlet distribution.

    The proportions are drawn once for all splits of a client (FedeVocab paper, section 4.1: D ~ Dir(alpha), alpha = 1).

    The paper does not define the base measure. ``per_class_prior`` is Dir(alpha p), where p are the class shares of
    train, as in FedNLP, which the paper follows: with alpha = 1 and 20, 4 or 2 equal classes, a client has an effective
    number of classes exp(entropy) of 2.7, 2.0 or 1.5. ``symmetric`` is Dir(alpha, ..., alpha): 13.5, 3.0 or 1.7.

    The sum of the drawn proportions over clients differs from the number of texts of a class. Each draw is therefore
    multiplied by a factor of its class and one of its client, so that all texts are used and sizes are met (iterative
    proportional fitting). Clients remain as uneven as drawn. FedNLP instead assigns texts to one client after the
    other; once a class is used up, later clients receive other classes. With 100 clients and 20 classes the first
    twenty clients then have 2.8 effective classes, the last twenty 6.1, and all 4.0 on average. FedNLP draws test
    separately.
    """

    name: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(1.0, gt=0, description="concentration; smaller values make clients more uneven")
    reading: Literal["per_class_prior", "symmetric"] = Field(
        "per_class_prior",
        description="per_class_prior: Dir(alpha p) with the class shares p of train; symmetric: Dir(alpha, ..., alpha)",
    )
    sizes: Literal["equal", "drawn"] = Field(
        "equal",
        description="number of texts of a client; equal: the same for all, to within one; drawn: log-normal, with a "
        "standard deviation of 1",
    )

    def counts(self, totals: Mapping[str, NDArray[np.int64]], clients: int, seed: int) -> dict[str, NDArray[np.int64]]:
        weights_K = np.ones(clients)
        if self.sizes == "drawn":
            weights_K = np.exp(_SPREAD * generator(seed, "sizes of clients").standard_normal(clients))
        train_KC = fitted(self.proportions(totals["train"], clients, seed), totals["train"], weights_K)
        # The other splits follow the fitted train counts, not the draw.
        return {"train": train_KC} | {
            side: fitted(train_KC.astype(float), totals_C, weights_K)
            for side, totals_C in totals.items()
            if side != "train"
        }

    def proportions(self, totals_C: NDArray[np.int64], clients: int, seed: int) -> NDArray[np.float64]:
        """Draw the clients' proportions of classes, shape (K, C).

        They are normalised gamma variables, computed from logarithms: with a small alpha the variables would underflow.
        A class without train texts is drawn like the others under ``symmetric``, and never under ``per_class_prior``.

        Args:
            totals_C: Number of train texts of each class.
            clients: Number of clients K.
            seed: Seed of the draws.
        """
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

    Each client has texts of ``classes`` classes (McMahan et al. 2017, section 3). They are drawn so that each
    class has the same number of clients, to within one. The texts of a class are split equally over its clients.
    With ``classes: 1`` and as many clients as classes, each client has one class to itself.
    """

    name: Literal["pathological"] = "pathological"
    classes: int = Field(2, ge=1, description="number of classes of a client")

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
        for client in draws.permutation(clients):  # so that shares that are larger by one do not all go to the first
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
    """Split ``total`` texts in the proportions ``weights_K``, at least one each, by the largest-remainder method."""
    wanted_K = (total - len(weights_K)) * weights_K / weights_K.sum()
    sizes_K = np.floor(wanted_K + _TINY).astype(np.int64)
    order_K = np.argsort(-np.round(wanted_K - sizes_K, 9), kind="stable")
    sizes_K[order_K[: total - len(weights_K) - sizes_K.sum()]] += 1
    return sizes_K + 1


def fitted(
    proportions_KC: NDArray[np.float64], totals_C: NDArray[np.int64], weights_K: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Fit integer counts of texts to proportions, by iterative proportional fitting and rounding.

    Args:
        proportions_KC: Proportions of classes of each client.
        totals_C: Number of texts of each class.
        weights_K: Relative sizes of the clients.

    Returns:
        Counts of shape (K, C) near the proportions. Their sums over clients are ``totals_C``, and their sums over
        classes are the clients' sizes.
    """
    sizes_K = sizes_of(int(totals_C.sum()), weights_K)
    counts_KC = proportions_KC / proportions_KC.sum(1, keepdims=True) * sizes_K[:, None]
    for _ in range(_STEPS):
        counts_KC = counts_KC * _ratio(totals_C, counts_KC.sum(0))
        rows_K = counts_KC.sum(1)
        if np.abs(rows_K - sizes_K).max() < 1e-6:
            break
        counts_KC = counts_KC * _ratio(sizes_K, rows_K)[:, None]
    # If too few clients were drawn for a class: reduce sums that are too large, and fill up with the texts left over.
    counts_KC = counts_KC * np.minimum(1, _ratio(totals_C, counts_KC.sum(0)))
    counts_KC = counts_KC * np.minimum(1, _ratio(sizes_K, counts_KC.sum(1)))[:, None]
    open_K, left_C = np.maximum(0, sizes_K - counts_KC.sum(1)), np.maximum(0, totals_C - counts_KC.sum(0))
    if open_K.sum() > _TINY:
        counts_KC = counts_KC + np.outer(open_K, left_C) / open_K.sum()
    return _rounded(counts_KC, sizes_K, totals_C)


def _ratio(wanted: NDArray[np.int64], found: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return wanted / found; 1 where nothing was found, or so little that the ratio is no finite number."""
    return np.divide(wanted, found, out=np.ones(len(found)), where=found > wanted / np.finfo(np.float64).max)


def _rounded(
    counts_KC: NDArray[np.float64], sizes_K: NDArray[np.int64], totals_C: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Round up where the fraction is largest, as long as both sums lack a text."""
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
    """Draw the indices of each client's texts, given its number of texts of each class."""
    parts = [
        np.split(
            generator(seed, f"texts of class {label} of {side}").permutation(np.flatnonzero(labels_N == label)),
            np.cumsum(counts_K)[:-1],
        )
        for label, counts_K in enumerate(counts_KC.T)
    ]
    return [np.concatenate(own) for own in zip(*parts, strict=True)]
