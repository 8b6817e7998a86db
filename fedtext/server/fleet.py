"""The interface between the server's loop over rounds and the clients."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from fedtext.evaluation import Evaluated
from fedtext.messages import Reply
from fedtext.server.aggregation import Sum
from fedtext.state.noise_key import NoiseKey
from fedtext.state.trained import ClientPart

LEAST = 20  # number of clients that audits attack in the last round, or all that have taken part


@dataclass(frozen=True)
class ClientInfo:
    """A client as the simulation knows it before the first round.

    Attributes:
        id: Index of the client.
        name: Name of the client.
        samples: n_k, the number of its train texts.
        tokens: Number of tokens of its train texts.
        rows: Number of entries of its vocabulary, including <pad>, features and words with a digit.
        features: Number of entries that are features.
        digits: Number of entries that are words with a digit.
        evaluates: Whether it has texts to evaluate on, and is one of those that are evaluated.
    """

    id: int
    name: str
    samples: int
    tokens: int
    rows: int
    features: int
    digits: int
    evaluates: bool


class ClientTable(Sequence[ClientInfo]):
    """All clients in the order of their ids, as columns: a population takes some bytes for each client.

    Args:
        names: Their names.
        samples: n_k, shape (K,).
        tokens: Numbers of tokens of their train texts, shape (K,).
        entries: Numbers of entries of their vocabularies, of features and of words with a digit among them, shape
            (K, 3); (1, 3) if those of all clients are the same.
        evaluates: Which have texts to evaluate on, shape (K,).
        first: Id of the first one.
    """

    def __init__(
        self,
        names: Sequence[str],
        samples: NDArray[np.int64],
        tokens: NDArray[np.int64],
        entries: NDArray[np.int64],
        evaluates: NDArray[np.bool_],
        first: int = 0,
    ) -> None:
        self.names, self.samples, self.tokens = names, samples, tokens
        self.entries, self.evaluates = entries, evaluates
        self.ids = range(first, first + len(samples))

    def __len__(self) -> int:
        return len(self.samples)

    @overload
    def __getitem__(self, index: int) -> ClientInfo: ...

    @overload
    def __getitem__(self, index: slice) -> "ClientTable": ...

    def __getitem__(self, index: int | slice) -> "ClientInfo | ClientTable":
        if isinstance(index, slice):
            ids = self.ids[index]
            assert ids.step == 1, "clients of a table have consecutive ids"
            numbers = self.samples[index], self.tokens[index], self._entries(index), self.evaluates[index]
            return ClientTable(self.names[index], *numbers, ids.start)
        place = range(len(self))[index]
        rows, features, digits = self._entries(slice(place, place + 1))[0].tolist()
        counts = int(self.samples[place]), int(self.tokens[place]), rows, features, digits
        return ClientInfo(self.ids[place], self.names[place], *counts, bool(self.evaluates[place]))

    def _entries(self, index: slice) -> NDArray[np.int64]:
        return self.entries[index] if len(self.entries) == len(self) else self.entries

    def evaluated(self) -> list[int]:
        """Return the ids of the clients that are evaluated."""
        return (self.ids.start + np.flatnonzero(self.evaluates)).tolist()

    def audited(self, cohort: Sequence[int], last: bool) -> list[int]:
        """Return the ids of those clients of a round that audits attack: the evaluated ones, ascending.

        In the last round others follow, ascending as well, until there are ``LEAST``. An attack needs no evaluation,
        and few of a sample, or none, may be evaluated.

        Args:
            cohort: Ids of the clients of the round.
            last: Whether it is the last round.
        """
        evaluated = [client for client in sorted(cohort) if self.evaluates[client - self.ids.start]]
        others = sorted(set(cohort) - set(evaluated)) if last else []
        return evaluated + others[: max(0, LEAST - len(evaluated))]


class Fleet(Protocol):
    """The clients of a run, wherever they are. Results are keyed by client, and do not depend on place or order.

    Attributes:
        withheld: Rows of the table that no client sends; None if there are none.
        baselines: Metrics of models without training, by name (for language models those of unigrams).
        noise: The run's key of random draws that hide something, for its clients and its server.
        left_out: Ids of the clients that are not trained, since they failed in this round before it was repeated.
    """

    withheld: NDArray[np.int64] | None
    baselines: Mapping[str, float]
    noise: NoiseKey
    left_out: Collection[int]

    @property
    def clients(self) -> ClientTable:
        """All clients, in the order of their ids 0..n-1."""

    @property
    def machines(self) -> Collection[str]:
        """Names of the machines that clients are trained on (``state.machine``), in any order."""

    def broadcast(self, flat: NDArray[np.float32]) -> Any:
        """Give the shared parameters to every place that hosts clients, once.

        Returns:
            A handle of these parameters, for the other methods.
        """

    def exchange(self, step: str, messages: Mapping[int, bytes]) -> dict[int, bytes]:
        """Pass the server's messages of secure aggregation to clients.

        Args:
            step: The step of the protocol (``SecureClients.answer``). ``keys`` begins an attempt at a round.
            messages: Messages by client.

        Returns:
            Their answers.
        """

    def train(self, handle: Any, round_: int, cohort: Sequence[int]) -> Iterator[Reply]:
        """Run the local updates of a round.

        If the aggregation needs only sums, a place may add up the updates of its clients and leave their payloads out;
        ``partials`` then returns the sums.

        Args:
            handle: The parameters that clients receive.
            round_: Number of the round.
            cohort: Ids of the clients.

        Returns:
            The reply of each client that is not left out, in the order in which they finish.
        """

    def train_each(self, groups: Sequence[tuple[Any, Sequence[int]]], round_: int) -> Iterator[Reply]:
        """Run the local updates of a round whose clients have received different parameters.

        Places that work at the same time begin with all groups at once: none of them waits for clients of another one.

        Args:
            groups: The parameters that clients have received, and the ids of these clients.
            round_: Number of the round.

        Returns:
            The replies, as those of ``train``.
        """

    def partials(self, round_: int) -> Iterator[Sum]:
        """Return the sums of the updates whose replies have no payload. Call it after the last reply."""

    def evaluate(
        self, handle: Any, round_: int, final: bool, splits: Sequence[str], attacked: Sequence[int] = ()
    ) -> dict[int, Evaluated]:
        """Evaluate the clients of ``ClientTable.evaluated``, and attack clients.

        Args:
            handle: The parameters that clients receive.
            round_: Number of the round.
            final: Whether to include the evaluations that are made once, with the final model.
            splits: ``test``, ``validation`` or both.
            attacked: Ids of the clients that audits attack (``ClientTable.audited``), of those that have completed the
                round.

        Returns:
            Evaluations by client, with the metrics of audits. A client that is only attacked has no others.
        """

    def own_models(self, handle: Any, round_: int, clients: Sequence[int]) -> dict[int, Evaluated]:
        """Evaluate clients' own models on test texts: ``Local`` and ``Global``.

        Args:
            handle: The parameters that clients receive.
            round_: Number of the round.
            clients: Ids of the clients.

        Returns:
            Evaluations by client.
        """

    def report(self, handle: Any, client: int) -> dict[str, str]:
        """Return the files of audits for a client, after it has been evaluated: texts by file name."""

    def parts(self, handle: Any, round_: int, clients: Sequence[int]) -> dict[int, ClientPart]:
        """Return the private parts of these clients' models after a round, for a model folder.

        Args:
            handle: The parameters that clients receive.
            round_: Number of the round.
            clients: Ids of the clients.

        Returns:
            The parts by client.
        """

    def private_states(self, clients: Sequence[int] | None = None) -> dict[int, bytes]:
        """Return the private states of these clients, for a checkpoint or to go back to. A real server would not have
        them.

        Args:
            clients: Ids of the clients. A client without a state has an empty one. None: all clients that have one.
        """

    def restore(self, states: Mapping[int, bytes]) -> None:
        """Restore private states that ``private_states`` returned."""

    def close(self) -> None:
        """Free what the clients hold, such as processes."""


FleetT = TypeVar("FleetT", bound=Fleet)
