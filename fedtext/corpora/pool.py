"""All clients' training data as one more client, on which ``pooled`` methods train."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtext.corpora.types import ClientData, TokenSet
from fedtext.text.tokens import PAD_ID, UNK_ID

EMPTY = TokenSet(np.zeros(0, np.int32), np.zeros(1, np.int64), np.zeros(0, np.int64))


def pool(clients: Sequence[ClientData]) -> ClientData:
    """Return a client with the train texts of all clients, in their order, and without texts to evaluate on."""
    rows_R = np.unique(np.concatenate([client.rows_R[: client.train_rows] for client in clients]))
    tokens = [np.searchsorted(rows_R, c.rows_R[c.train.tokens_T]).astype(np.int32) for c in clients]
    lengths_N = np.concatenate([np.diff(client.train.offsets) for client in clients])
    train = TokenSet(
        np.concatenate(tokens),
        np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths_N, dtype=np.int64)]),
        np.concatenate([client.train.labels_N for client in clients]),
        np.repeat([client.id for client in clients], [len(client.train) for client in clients]),
        _of_all([client.train for client in clients], "values_T"),
        bytes_N=_of_all([client.train for client in clients], "bytes_N"),
    )
    return ClientData(len(clients), "pooled", rows_R.astype(np.int32), len(rows_R), train, EMPTY, EMPTY)


def union_of_tests(tests: Sequence[TokenSet]) -> ClientData:
    """Return a client with the test texts of all clients.

    Args:
        tests: Each client's test texts, in rows of the global vocabulary.

    Returns:
        A client whose rows include <pad> and <unk> in any case.
    """
    together_T = np.concatenate([tokens.tokens_T for tokens in tests])
    rows_R = np.union1d(together_T, [PAD_ID, UNK_ID]).astype(np.int32)
    lengths_N = np.concatenate([np.diff(tokens.offsets) for tokens in tests])
    test = TokenSet(
        np.searchsorted(rows_R, together_T).astype(np.int32),
        np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths_N, dtype=np.int64)]),
        np.concatenate([tokens.labels_N for tokens in tests]),
        values_T=_of_all(tests, "values_T"),
        bytes_N=_of_all(tests, "bytes_N"),
    )
    return ClientData(-1, "union", rows_R, len(rows_R), EMPTY, EMPTY, test)


def _of_all(splits: Sequence[TokenSet], name: str) -> NDArray[Any] | None:
    """Return an attribute of all splits, one after the other; None if they have none."""
    parts = [part for split in splits if (part := getattr(split, name)) is not None]
    assert len(parts) in (0, len(splits)), f"all splits of a corpus have {name}, or none has"
    return np.concatenate(parts) if parts else None
