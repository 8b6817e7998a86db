"""The number of bytes that clients receive."""

from collections.abc import Callable, Sequence

from fedtext.config.experiment import Experiment
from fedtext.layout import TABLE, Layout
from fedtext.models.ranks import ALIKE, Ranks
from fedtext.parameters import table_rows
from fedtext.server.fleet import ClientInfo
from fedtext.wire import encoding


class Downlink:
    """Counts the bytes that the server sends.

    Args:
        experiment: The experiment.
        received: The layout of the broadcast, tables with all rows.
        cohort: Function that returns the ids of a round's clients.
        ranks: What each client receives of the tensors.
    """

    def __init__(
        self,
        experiment: Experiment,
        received: Layout,
        cohort: Callable[[int], Sequence[int]],
        ranks: Ranks = ALIKE,
    ) -> None:
        self.experiment, self.received, self.cohort, self.ranks = experiment, received, cohort, ranks
        self.took_part: dict[int, int] = {}  # the last round of each client, of the first ``drawn``
        self.drawn = 0

    def size(self, clients: Sequence[ClientInfo], round_: int) -> int:
        """Return the bytes that a round's clients receive.

        They receive the parameters that are shared in this round, and those shared in earlier rounds that have changed
        since they last received them.

        Args:
            clients: The clients of the round.
            round_: Number of the round.
        """
        changes = self.experiment.aggregation.changes

        def shared_in(name: str, round_: int) -> bool:
            return changes(name) or self.experiment.shared_in(name, round_)

        unsent = [name for name in self.received.shapes if not shared_in(name, round_)]
        before = range(round_ - 1, 0, -1)
        earlier = {name: next((one for one in before if shared_in(name, one)), 0) for name in unsent}
        for one in range(self.drawn + 1, round_) if unsent else ():
            self.took_part |= dict.fromkeys(self.cohort(one), one)
            self.drawn = one
        # by rows of the table, what a client knows, and its rank
        sizes: dict[tuple[int, frozenset[str], int | None], int] = {}
        total = 0
        for client in clients:
            known = frozenset(
                name for name, changed in earlier.items() if not changed or self.took_part.get(client.id, 0) > changed
            )
            alike = self._rows(client), known, self.ranks.rank(client.id)
            if alike not in sizes:
                shapes = self.ranks.shapes(self.received.with_rows(alike[0]).shapes, client.id)
                sizes[alike] = encoding.encoded_size({n: shape for n, shape in shapes.items() if n not in known})
            total += sizes[alike]
        return total

    def _rows(self, client: ClientInfo) -> int:
        """Return the number of rows of the table that a client receives."""
        if not self.experiment.own_rows:
            return self.received.shapes.get(TABLE, (0,))[0]
        withheld = client.digits if self.experiment.method.withholds else 0
        return len(table_rows(self.experiment, client.rows, client.features)) - withheld
