"""Local updates that an attacker simulates with texts of its own, to learn what updates look like.

Legend: B texts of a batch, R rows of the table of the texts' owner, D embedding, F features.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtext.audits.base import Known, Setting, State
from fedtext.audits.gradients import last_phase, rate_scale
from fedtext.corpora.types import ClientData
from fedtext.layout import TABLE, is_table
from fedtext.mechanisms.base import Tensors, steps
from fedtext.methods.base import Model
from fedtext.models.packing import Ints
from fedtext.training.batches import Assembler, Texts
from fedtext.training.config import SGD, AdamW

_PLAIN = Assembler(None, False, torch.device("cpu"))
_BUCKETS = 64  # features of a tensor


@dataclass(frozen=True)
class LocalSimulation:
    """Simulates local updates on texts of one client's split.

    Dropout, hooks of the method, and phases before the last one are left out, and private parameters have their initial
    values.

    Attributes:
        known: What the attacker knows.
        received: The shared parameters that were sent, tables with all rows.
        data: The owner of the texts.
        texts: The texts.
        names: Names of the tensors of an update.
        own_rows: Whether an update has only the rows of its texts' words.
        most: Largest number of steps that are simulated.
    """

    known: Known
    received: State
    data: ClientData
    texts: Texts
    names: frozenset[str]
    own_rows: bool
    most: int

    def update(self, chosen: Ints, rng: np.random.Generator) -> tuple[Tensors, NDArray[np.int32] | None]:
        """Return the update of a client with these texts, as the server decodes it, and its rows of the table.

        Args:
            chosen: Indices of the texts.
            rng: Source of the batches, and of what mechanisms draw.
        """
        start = self.known.parameters(self.received, self.data.rows_R)
        after = self._trained(start, chosen, rng)
        held = np.unique(np.concatenate([self.texts.padded_NT[n, : self.texts.lengths_N[n]] for n in chosen]))
        rows = self.data.rows_R[held]
        received = {name: self.received[name] for name in self.names & start.keys()}
        delta: Tensors = {name: (after[name] - start[name]).numpy() for name in sorted(received) if not is_table(name)}
        if TABLE in received:
            changed = (after[TABLE] - start[TABLE]).numpy()[held]
            if self.own_rows:
                delta[TABLE], received[TABLE] = changed, received[TABLE][rows]
            else:
                delta[TABLE] = np.zeros_like(received[TABLE])
                delta[TABLE][rows] = changed
        return self._sent(delta, received, rng), rows if self.own_rows and TABLE in received else None

    def _trained(self, start: Mapping[str, Tensor], chosen: Ints, rng: np.random.Generator) -> dict[str, Tensor]:
        """Return the parameters after local training."""
        experiment, network = self.known.experiment, self.known.network
        method, training = experiment.method, experiment.training
        parameters = {name: tensor.clone().requires_grad_() for name, tensor in start.items()}
        received = {name: start[name] for name in self.names & start.keys()}
        optimizer = _optimizer(experiment, parameters)
        for batch_B in self._batches(chosen, training.batch(len(chosen)), rng):
            batch, _ = _PLAIN.single(self.texts, batch_B)
            optimizer.zero_grad()
            loss = method.objective(method.loss(Model(network, parameters), received, batch))
            loss.backward()
            optimizer.step()
        return {name: tensor.detach() for name, tensor in parameters.items()}

    def _batches(self, chosen: Ints, size: int, rng: np.random.Generator) -> Iterator[Ints]:
        left = self.most
        for _ in range(last_phase(self.known.experiment).epochs):
            order = rng.permutation(chosen)
            for start in range(0, len(order), size):
                if not left:
                    return
                left -= 1
                yield order[start : start + size]

    def _sent(self, delta: Tensors, received: State, rng: np.random.Generator) -> Tensors:
        """Return an update after the uplink's mechanisms, as the server restores it."""
        uplink = [mechanism for mechanism in self.known.experiment.uplink if not mechanism.asks]
        for step in steps(uplink).values():
            delta = step(delta, received, rng)
        for mechanism in reversed(uplink):
            delta = mechanism.restore(delta, received)
        return delta


def _optimizer(experiment: Setting, parameters: Mapping[str, Tensor]) -> torch.optim.Optimizer:
    asked = experiment.training.optimizer
    rates = {name: asked.lr * rate_scale(experiment, name) for name in parameters}
    groups = [{"params": [tensor], "lr": rates[name]} for name, tensor in parameters.items()]
    if isinstance(asked, SGD):
        return torch.optim.SGD(groups, asked.lr, asked.momentum)
    if isinstance(asked, AdamW):
        return torch.optim.AdamW(groups, asked.lr, weight_decay=asked.weight_decay)
    return torch.optim.Adam(groups, asked.lr)


@dataclass(frozen=True)
class Sketch:
    """Features of updates that can be compared: a random projection of each tensor, and the rows of some words.

    An update is divided by its length, which clipping would change. Each of its tensors is cut into at most 64 parts of
    equal size, and a part's coordinates are added up with random signs. Of the table there are the lengths of the rows
    of ``words``, relative to the root mean square of all rows that are not zero; 0 for a row that was not sent.

    Attributes:
        seed: Seed of the signs.
        words: Rows of words in the table.
    """

    seed: int
    words: Ints

    def features(self, update: Mapping[str, NDArray[np.float32]], rows: NDArray[np.int32] | None) -> NDArray:
        """Return features_F of an update.

        Args:
            update: The update, as the server decodes it.
            rows: Rows of the table that it has; None: all.
        """
        flat = {name: np.ravel(tensor).astype(np.float64) for name, tensor in sorted(update.items()) if name != TABLE}
        length = np.sqrt(sum(float(values @ values) for values in flat.values())) or 1.0
        parts = [self._projected(values / length, number) for number, values in enumerate(flat.values())]
        if TABLE in update:
            parts.append(self._rows(update[TABLE], rows))
        return np.concatenate(parts)

    def _projected(self, values: NDArray, number: int) -> NDArray:
        if len(values) <= _BUCKETS:
            return values
        signs = np.random.default_rng([self.seed, number]).integers(0, 2, len(values), np.int8) * 2 - 1
        return np.add.reduceat(values * signs, np.linspace(0, len(values), _BUCKETS, endpoint=False).astype(np.int64))

    def _rows(self, table: NDArray, rows: NDArray[np.int32] | None) -> NDArray:
        squares = np.square(table, dtype=np.float64).sum(1)
        mean = squares[squares > 0].mean() if squares.any() else 1.0
        named = np.arange(len(table)) if rows is None else rows
        return np.sqrt(np.array([squares[named == word].sum() for word in self.words]) / mean)
