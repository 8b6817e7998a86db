"""Local updates that an attacker simulates with texts of its own, to learn what updates look like.

Legend: V vocabulary, R rows of the table of the texts' owner, N texts, F features.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtext.audits.gradients import last_phase
from fedtext.audits.known import Known, State
from fedtext.corpora.types import ClientData
from fedtext.layout import TABLE, Layout, is_table
from fedtext.mechanisms.base import Tensors, steps
from fedtext.methods import state as state_of
from fedtext.models.packing import Ints
from fedtext.seeding import torch_scope
from fedtext.training.batches import Assembler, Texts
from fedtext.training.examples import ExampleNoise
from fedtext.training.local import Problem, Work, train
from fedtext.training.optimizer import LocalOptimizer
from fedtext.training.phases import moving, moving_rows, shrinking
from fedtext.training.stack import Stack, Workspace

_PLAIN, _AHEAD = (Assembler(None, False, torch.device("cpu"), ahead=ahead) for ahead in (False, True))
_BUCKETS = 64  # features of a tensor


@dataclass(frozen=True)
class LocalSimulation:
    """Simulates local updates on texts of one client's split, by the steps that clients take.

    Hooks of the method and phases before the last one are left out, and private parameters have their initial values.

    Attributes:
        known: What the attacker knows.
        received: The shared parameters that were sent, tables with all rows.
        data: The owner of the texts.
        texts: The texts.
        names: Names of the tensors of an update.
        own_rows: Whether an update has only the rows of its texts' words.
        most: Largest number of steps that are simulated.
        digits_V: Which words have a digit in them.
    """

    known: Known
    received: State
    data: ClientData
    texts: Texts
    names: frozenset[str]
    own_rows: bool
    most: int
    digits_V: NDArray[np.bool_]

    def update(self, chosen: Ints, rng: np.random.Generator) -> tuple[Tensors, NDArray[np.int32] | None]:
        """Return the update of a client with these texts, as the server decodes it, and its rows of the table.

        Args:
            chosen: Indices of the texts.
            rng: Source of the batches, of dropout and noise, and of what mechanisms draw.
        """
        after, held = self._trained(chosen, rng), self._held(chosen)
        rows = self.data.rows_R[held]
        received = {name: self.received[name] for name in self.names & self._start.keys()}
        delta: Tensors = {n: (after[n] - self._start[n]).numpy() for n in sorted(received) if not is_table(n)}
        if TABLE in received:
            changed = (after[TABLE] - self._start[TABLE]).numpy()[held]
            if self.own_rows:
                delta[TABLE], received[TABLE] = changed, received[TABLE][rows]
            else:
                delta[TABLE] = np.zeros_like(received[TABLE])
                delta[TABLE][rows] = changed
        return self._sent(delta, received, rng), rows if self.own_rows and TABLE in received else None

    def _held(self, chosen: Ints) -> Ints:
        """Return the rows of the owner's table that a client with these texts sends."""
        experiment, rows_R = self.known.experiment, self.data.rows_R
        if experiment.whole_table or experiment.model.language:
            # Each of its rows moves: of a language model by the softmax, or by the decay of all words.
            held = np.arange(len(rows_R))
        else:
            held = np.unique(np.concatenate([self.texts.padded_NT[n, : self.texts.lengths_N[n]] for n in chosen]))
        return held[~self.digits_V[rows_R[held]]] if experiment.method.withholds else held

    @cached_property
    def _start(self) -> dict[str, Tensor]:
        """The parameters before local training."""
        return self.known.parameters(self.received, self.data.rows_R)

    @cached_property
    def _stack(self) -> Stack:
        layout = Layout({name: tuple(tensor.shape) for name, tensor in self._start.items()})
        return Stack(layout, [len(self.data.rows_R)], Workspace(torch.device("cpu")))

    @cached_property
    def _optimizer(self) -> LocalOptimizer:
        experiment, phase = self.known.experiment, last_phase(self.known.experiment)
        asked, model = experiment.training.optimizer, experiment.model
        names = moving(phase, self._start, model.fixes)
        made = LocalOptimizer(
            asked,
            self._stack,
            asked.lr * phase.lr,
            moving=names - shrinking(experiment.method, names, asked),
            task_of=experiment.method.task_of,
            scales={name: model.lr_scale(name) for name in self._start},
            bounds={name: between for name in self._start if (between := experiment.method.bounds(name))},
        )
        only = moving_rows(phase, [self.data.rows_R], self.digits_V)
        made.only = None if only is None else torch.from_numpy(only)
        return made

    def _trained(self, chosen: Ints, rng: np.random.Generator) -> Mapping[str, Tensor]:
        """Return the parameters after local training. They are overwritten by the next one."""
        known, training, parameters = self.known, self.known.experiment.training, self._stack.tensors(0)
        for name, tensor in parameters.items():
            tensor.copy_(self._start[name])
        self._optimizer.reset()
        batches = self._batches(chosen, training.batch(len(chosen)), rng)
        self._optimizer.plan([len(batches)])
        received = {name: self._start[name] for name in self.names & self._start.keys()}
        asked = training.dp_sgd
        examples = ExampleNoise(asked.clip_norm, known.multiplier, rng) if asked else None
        method = known.experiment.method
        # The attacker lacks the state that the client has by now.
        state = method.client_state(state_of.Tensors(received)) if method.reads_state else None
        problem = Problem(method, known.network, received, examples=examples, state=state)
        assembler = _AHEAD if known.experiment.model.language else _PLAIN
        try:
            with torch_scope(int(rng.integers(2**31)), "audits/shadows"):
                train(problem, assembler, self._optimizer, [Work(self.texts, batches[: self.most])])
        finally:
            known.network.eval()
        return parameters

    def _batches(self, chosen: Ints, size: int, rng: np.random.Generator) -> list[Ints]:
        made = []
        for _ in range(last_phase(self.known.experiment).epochs):
            order = rng.permutation(chosen)
            made += [order[start : start + size] for start in range(0, len(order), size)]
        return made

    def _sent(self, delta: Tensors, received: State, rng: np.random.Generator) -> Tensors:
        """Return an update after the uplink's mechanisms, as the server restores it."""
        uplink = [mechanism for mechanism in self.known.experiment.uplink if not mechanism.asks]
        for step in steps(uplink).values():
            delta = step(delta, received, rng)
        for mechanism in reversed(uplink):
            delta = mechanism.restore(delta, received)
        return delta


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
