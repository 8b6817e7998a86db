"""An attack on one client's local update: a search for word vectors that lead to the same update, and for their words.

Legend: N texts of the client, B texts that are attacked, T places, M = B x T dummies, V vocabulary, D embedding.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from fedtext.audits.base import LocalUpdate
from fedtext.audits.decoding import Against, exchangeable
from fedtext.audits.first_layer import FirstLayer, eps_of, everywhere, first_layer
from fedtext.audits.gradients import local_steps, mean_gradient, rate_scale, rescaled
from fedtext.audits.label_leakage import inferred_shares
from fedtext.audits.matching import Client, Search
from fedtext.models.packing import Ints
from fedtext.seeding import generator
from fedtext.training.config import SGD


class Attacker(Search):
    """The assumptions about an attacker, and its search."""

    texts: int = Field(4, ge=1, description="number of texts to search for; others of the client are not recovered")
    labels: Literal["known", "inferred", "optimised"] = Field(
        "known",
        description="labels of the texts; inferred: from the output layer (label_leakage); optimised: with the dummies",
    )
    lengths: Literal["known", "longest"] = Field(
        "known", description="lengths of the texts; longest: all have corpus.max_length words, also for ``span``"
    )
    unroll: int = Field(4, ge=1, description="local steps that are simulated one by one")


@dataclass(frozen=True)
class Attack:
    """The result of a search for B texts, and its inputs.

    Attributes:
        search: The search.
        client: The simulated client.
        target: The received mean gradient, by parameter.
        lengths_N: Lengths of all texts behind the update.
        layer: The encoder's first layer.
        vectors: Its inputs that were found, shape (T, D) for each text.
        labels_B: Labels of the texts, known or found.
        distance: The distance of the updates that was reached.
        rng: Source of random numbers.
    """

    search: Search
    client: Client
    target: Mapping[str, Tensor]
    lengths_N: Tensor
    layer: FirstLayer
    vectors: list[NDArray[np.float32]]
    labels_B: Tensor
    distance: float
    rng: np.random.Generator

    def arranged(self, found: list[Ints], against: Against, table_VD: NDArray[np.float32]) -> list[Ints]:
        """Assign the words of each place to the texts that explain the update best.

        A transformer's first layer discloses which words are at a place, but not in which text. Without places, or if
        nothing is known about the words, ``found`` is returned.

        Args:
            found: Rows of each text, as decoded with the table.
            against: How badly the table fits.
            table_VD: The table.
        """
        if against.lost == 1 or not self.layer.places:
            return found
        lengths_B = self.lengths_N[: len(found)]
        longest = int(lengths_B.max())
        rows_BT = np.zeros((len(found), longest), np.int64)
        for row_T, text_T in zip(rows_BT, found, strict=True):
            row_T[: len(text_T)] = text_T
        rows_M = self.search.arranged(
            self.client,
            self.target,
            lengths_B,
            self.labels_B,
            torch.from_numpy(table_VD),
            torch.from_numpy(rows_BT.ravel()),
            exchangeable([len(text_T) for text_T in found], longest),
            self.rng,
        )
        return [row_T[: len(text_T)] for row_T, text_T in zip(rows_M.view(len(found), -1).numpy(), found, strict=True)]


def attack(attacker: Attacker, local: LocalUpdate) -> Attack:
    """Search for word vectors with which this client would have sent the same update."""
    known, data = local.known, local.data
    experiment, count = known.experiment, len(data.train)
    texts = known.read(data, "train")
    size = min(count, attacker.texts)
    lengths_N = torch.from_numpy(texts.lengths_N)
    if attacker.lengths == "longest":
        lengths_N = torch.full((count,), experiment.corpus.max_length or 0)
    lengths_B = lengths_N[:size]
    target = {name: torch.from_numpy(tensor) for name, tensor in mean_gradient(local).items()}
    steps, optimizer = local_steps(experiment, local.update.samples), experiment.training.optimizer
    whole = steps <= attacker.unroll and size == count
    client = Client(
        experiment.method,
        known.network,
        known.parameters(local.received),
        list(target),
        experiment.training.batch(count) if whole else size,
        [optimizer.lr * optimizer.slope(step, steps) for step in range(steps)] if whole else [optimizer.lr],
        optimizer.momentum if isinstance(optimizer, SGD) else 0.0,
        not isinstance(optimizer, SGD),
        rescaled(local),
        {name: rate_scale(experiment, name) for name in known.parameters(local.received)},
    )
    rng = generator(experiment.seed, "audits/gradient_inversion", local.round, data.id)
    table_VD = torch.tensor(known.table(local.received))  # a copy: what was received is read-only
    dim = table_VD.shape[1]
    read = int(lengths_N.sum())
    layer = everywhere(dim)
    if attacker.span:
        layer = first_layer(target, client.start, read, dim, client.squashed, eps_of(known.network))
    inputs_VD = layer.inputs(table_VD, 0)
    spread = float(inputs_VD.mean()), float(inputs_VD.std(unbiased=False))
    found_MD, labels_B, distance = attacker.reconstruct(
        client, target, lengths_B, _labels(attacker, local, size), spread, rng, layer
    )
    found_BTD = found_MD.detach().view(size, -1, dim).numpy()
    # in models for which padding counts as words a text includes it; an attacker who knows lengths leaves it out
    real_B = np.diff(data.train.offsets)[:size] if attacker.lengths == "known" else lengths_B.numpy()
    vectors = [text_TD[:length] for text_TD, length in zip(found_BTD, real_B, strict=True)]
    return Attack(attacker, client, target, lengths_N, layer, vectors, labels_B, distance, rng)


def _labels(attacker: Attacker, local: LocalUpdate, size: int) -> Tensor | int:
    """Return the labels of the attacked texts; or the number of classes, if labels are optimised."""
    if attacker.labels == "known":
        return torch.from_numpy(np.asarray(local.data.train.labels_N[:size], np.int64))
    if attacker.labels == "optimised":
        return local.known.classes
    shares_C = inferred_shares(local)
    ends_C = np.round(np.cumsum(shares_C) * size).astype(np.int64)
    return torch.from_numpy(np.repeat(np.arange(len(shares_C)), np.diff(ends_C, prepend=0)))
