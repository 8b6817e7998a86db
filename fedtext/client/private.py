"""The private tensors of a host's clients: those of recent clients in memory, the others on disk."""

import os
import tempfile
from collections import OrderedDict
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from numpy.typing import NDArray
from safetensors.numpy import load, save

from fedtext.errors import writing
from fedtext.state.seal import StateKey

MOST = 1 << 29  # bytes of private tensors that a host keeps in memory
Tensors = dict[str, NDArray]


class PrivateStates(MutableMapping[int, Tensors]):
    """The private tensors of clients by id. What does not fit in memory is in a file.

    The file has no name, ends with the process, and is encrypted by a key that only this process has if the library
    for it is installed. What a run is resumed from are its checkpoints.

    Args:
        most: Most bytes in memory, beside those of the client that was used last.
    """

    def __init__(self, most: int = MOST) -> None:
        self.most, self.size = most, 0
        self.recent: OrderedDict[int, Tensors] = OrderedDict()
        self.places: dict[int, tuple[int, int]] = {}  # where the others are: offset and size
        self.key = StateKey(os.urandom(32)) if find_spec("cryptography") else None
        self.file: IO[bytes] | None = None
        self.end = self.needed = 0  # bytes of the file, and those of them that are not superseded

    def __getitem__(self, client: int) -> Tensors:
        if client in self.recent:
            self.recent.move_to_end(client)
        else:
            encoded = self._encoded(client)
            self._forget(client)
            self._put(client, load(encoded))
        return self.recent[client]

    def __setitem__(self, client: int, tensors: Tensors) -> None:
        self.pop(client, None)
        self._put(client, tensors)

    def __delitem__(self, client: int) -> None:
        if client in self.recent:
            self.size -= _size(self.recent.pop(client))
        else:
            self._forget(client)

    def __contains__(self, client: object) -> bool:
        return client in self.recent or client in self.places

    def __iter__(self) -> Iterator[int]:
        return iter([*self.recent, *self.places])

    def __len__(self) -> int:
        return len(self.recent) + len(self.places)

    def encoded(self, members: Sequence[int] | None = None) -> dict[int, bytes]:
        """Return the encoded tensors of clients; empty for a client without any.

        Args:
            members: Ids of the clients; None: all that have tensors.
        """
        if members is None:
            members = sorted([*(client for client, tensors in self.recent.items() if tensors), *self.places])
        return {client: self._encoded(client) for client in members}

    def sizes(self) -> dict[int, int]:
        """Return about how many bytes the tensors of each client have that has any."""
        there = {client: _size(tensors) for client, tensors in self.recent.items() if tensors}
        return there | {client: size for client, (_, size) in self.places.items()}

    def restore(self, states: Mapping[int, bytes]) -> None:
        """Take over tensors that ``encoded`` returned."""
        for client, state in states.items():
            self[client] = load(state) if state else {}

    def _encoded(self, client: int) -> bytes:
        if client in self.recent or client not in self.places:
            tensors = self.recent.get(client)
            return save(tensors) if tensors else b""
        assert self.file is not None, "it has this client's"
        start, size = self.places[client]
        self.file.seek(start)
        content = self.file.read(size)
        return self.key.open(content, str(client)) if self.key else content

    def _forget(self, client: int) -> None:
        self.needed -= self.places.pop(client)[1]

    def _put(self, client: int, tensors: Tensors) -> None:
        self.recent[client] = tensors
        self.size += _size(tensors)
        while self.size > self.most and len(self.recent) > 1:
            oldest = next(iter(self.recent))
            self._page_out(oldest, self.recent[oldest])
            self.size -= _size(self.recent.pop(oldest))

    def _page_out(self, client: int, tensors: Tensors) -> None:
        if not tensors:
            return
        encoded = save(tensors)
        content = self.key.seal(encoded, str(client)) if self.key else encoded
        with writing(Path(tempfile.gettempdir()), "private states of clients", "$TMPDIR names it"):
            if self.file is None:
                self.file = tempfile.TemporaryFile()  # noqa: SIM115  # it is open as long as this host
            elif self.end > 2 * self.needed + self.most:
                self._compact()
            self.file.seek(self.end)
            self.file.write(content)
            self.file.flush()
        self.places[client] = self.end, len(content)
        self.end += len(content)
        self.needed += len(content)

    def _compact(self) -> None:
        """Write what is still needed into a new file."""
        assert self.file is not None, "or there is nothing to compact"
        made, places, end = tempfile.TemporaryFile(), dict[int, tuple[int, int]](), 0  # noqa: SIM115
        for client, (start, size) in self.places.items():
            self.file.seek(start)
            made.write(self.file.read(size))
            places[client] = end, size
            end += size
        self.file.close()
        self.file, self.places, self.end = made, places, end


def _size(tensors: Tensors) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())
