"""Who trains the clients: the interface that the round is written against."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedtext.evaluation import Evaluated
from fedtext.messages import Reply
from fedtext.server.aggregation import WeightedSum
from fedtext.state.model_folder import ClientPart
from fedtext.state.noise_key import NoiseKey


@dataclass(frozen=True)
class ClientInfo:
    """A client as the simulation knows it before the first round. ``rows`` counts its vocabulary's entries, <pad>,
    ``features`` and ``digits``, words with a digit in them, among them, ``tokens`` those of its training texts."""

    id: int
    name: str
    samples: int
    tokens: int
    rows: int
    features: int
    digits: int
    evaluates: bool


class Fleet(Protocol):
    """Clients somewhere. All results are keyed by client, so it does not matter where, nor in which order they come."""

    withheld: NDArray[np.int64] | None  # rows of the table that no client sends (Method.withholds)
    baselines: Mapping[str, float]  # metrics of models that need no training, by name (a language model's unigrams)
    noise: NoiseKey  # of the run: its clients draw from it, and so does its server

    @property
    def clients(self) -> Sequence[ClientInfo]:
        """Everybody, ascending by id; the ids are 0..n-1."""

    def broadcast(self, flat: NDArray[np.float32]) -> Any:
        """Hands the shared parameters to every place that hosts clients, once; the handle names them."""

    def train(self, handle: Any, round_: int, cohort: Sequence[int]) -> Iterator[Reply]:
        """Each cohort member's reply, as they finish. If sums are enough for the aggregation, a place may add the
        updates of its clients up and leave their payloads out: then ``partials`` has them."""

    def partials(self, round_: int) -> Iterator[WeightedSum]:
        """The sums of the updates whose replies came without a payload; to be asked for after the last reply."""

    def evaluate(self, handle: Any, round_: int, final: bool, splits: Sequence[str]) -> dict[int, Evaluated]:
        """Evaluate every client that has texts to evaluate on, on its ``test`` or ``validation`` texts or both;
        ``final``: with the evaluations that are made once, of the model that counts."""

    def report(self, handle: Any, client: int) -> dict[str, str]:
        """Return what the audits show of a client after it has been evaluated: texts by file name."""

    def parts(self, handle: Any, round_: int, clients: Sequence[int]) -> dict[int, ClientPart]:
        """Return the private parts of these clients' models after a round, for a model folder."""

    def private_states(self) -> dict[int, bytes]:
        """Every client's private state, for a checkpoint. It is the simulation's own, never the server's."""

    def restore(self, states: Mapping[int, bytes]) -> None:
        """Puts private states back."""
