"""The clients of a corpus on disk that a host has read lately."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from fedtext.corpora.stored import StoredClients
from fedtext.corpora.types import ClientData
from fedtext.evaluation import SPLITS
from fedtext.training.batches import Texts

TRIGGERED = "triggered"  # the test texts that measure a backdoor, beside the splits
MOST = 4_000_000  # tokens of the clients that are kept


class RecentClients(Mapping[int, ClientData]):
    """All clients of a corpus on disk. Those that were used lately are in memory, up to a number of tokens.

    Args:
        clients: The clients.
        hosted: Returns a client as it takes part.
        dropped: Called with the id of each client that leaves the memory.
        most: Most tokens that are kept.
    """

    def __init__(
        self,
        clients: StoredClients,
        hosted: Callable[[ClientData], ClientData],
        dropped: Callable[[int], object],
        most: int = MOST,
    ) -> None:
        self.clients, self.hosted, self.dropped, self.most = clients, hosted, dropped, most
        self.kept: OrderedDict[int, ClientData] = OrderedDict()
        self.tokens = 0

    def __getitem__(self, client: int) -> ClientData:
        if client in self.kept:
            self.kept.move_to_end(client)
            return self.kept[client]
        if not 0 <= client < len(self.clients):
            raise KeyError(client)
        self.kept[client] = data = self.hosted(self.clients[client])
        self.tokens += _tokens(data)
        while self.tokens > self.most and len(self.kept) > 1:
            oldest, left = self.kept.popitem(last=False)
            self.tokens -= _tokens(left)
            self.dropped(oldest)
        return data

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.clients)))

    def __len__(self) -> int:
        return len(self.clients)


def _tokens(client: ClientData) -> int:
    return sum(len(side.tokens_T) for side in (client.train, client.validation, client.test))


def kept_clients(
    clients: Sequence[ClientData], hosted: Callable[[ClientData], ClientData], dropped: Callable[[int], object]
) -> Mapping[int, ClientData]:
    """Return the clients of a host by id: all of those in memory, and of those on disk the recent ones.

    Args:
        clients, hosted, dropped: As in ``RecentClients``.
    """
    if isinstance(clients, StoredClients):
        return RecentClients(clients, hosted, dropped)
    return {client.id: hosted(client) for client in clients}


def add(clients: Mapping[int, ClientData], arriving: Iterable[ClientData]) -> None:
    """Add clients to those of a host: none of a corpus on disk, of which every host has all."""
    for client in arriving:
        _movable(clients)[client.id] = client


def remove(clients: Mapping[int, ClientData], leaving: Iterable[int]) -> None:
    """Remove clients from those of a host, unless they are on disk, where every host can read them."""
    for client in leaving if not isinstance(clients, RecentClients) else ():
        del _movable(clients)[client]


def _movable(clients: Mapping[int, ClientData]) -> dict[int, ClientData]:
    assert isinstance(clients, dict), "every host has all clients of a corpus on disk"
    return clients


def dropped(texts: dict[tuple[int, str], Texts], client: int) -> None:
    """Drop the prepared texts of a client."""
    for split in ("train", *SPLITS, TRIGGERED):
        texts.pop((client, split), None)
