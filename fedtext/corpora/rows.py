"""A client's texts in the rows of its model's table.

The table may lack the vocabulary's first entry, <pad>, and its last ones. An entry without a row is not stored, trained
or sent.
"""

from dataclasses import replace

import numpy as np

from fedtext.corpora.types import ClientData, TokenSet


def with_all_rows(client: ClientData, rows: int) -> ClientData:
    """Return the client with all ``rows`` of the table, as if its train texts contained all words."""

    def renumbered(tokens: TokenSet) -> TokenSet:
        return replace(tokens, tokens_T=client.rows_R[tokens.tokens_T])

    return replace(
        client,
        rows_R=np.arange(rows, dtype=np.int32),
        train_rows=rows,
        train=renumbered(client.train),
        validation=renumbered(client.validation),
        test=renumbered(client.test),
    )


def within(client: ClientData, kept: range, features: int) -> ClientData:
    """Restrict a client to some entries of the vocabulary.

    Args:
        client: The client.
        kept: The entries whose tokens remain; rows are counted from the first of them. A text may have no token left.
        features: Number of entries after ``kept`` that become dense features of a text (``TokenSet.features_NK``).
    """
    is_kept_R = (client.rows_R >= kept.start) & (client.rows_R < kept.stop)
    place_R = np.cumsum(is_kept_R, dtype=np.int32) - 1

    def restricted(tokens: TokenSet) -> TokenSet:
        is_kept_T, values_T = is_kept_R[tokens.tokens_T], tokens.values_T
        offsets = np.concatenate([[0], np.cumsum(is_kept_T)])[tokens.offsets]
        left = replace(
            tokens,
            tokens_T=place_R[tokens.tokens_T[is_kept_T]],
            offsets=offsets,
            values_T=None if values_T is None else values_T[is_kept_T],
        )
        if not features:
            return left
        features_NK = np.zeros((len(tokens), features), np.float32)
        if values_T is not None:
            assert (values_T[is_kept_T] == 1).all(), "only features have values"
            text_T = np.repeat(np.arange(len(tokens)), np.diff(tokens.offsets))
            column_T = client.rows_R[tokens.tokens_T] - kept.stop
            beside_T = column_T >= 0
            features_NK[text_T[beside_T], column_T[beside_T]] = values_T[beside_T]
        return replace(left, values_T=None, features_NK=features_NK)

    return replace(
        client,
        rows_R=client.rows_R[is_kept_R] - np.int32(kept.start),
        train_rows=int(is_kept_R[: client.train_rows].sum()),
        train=restricted(client.train),
        validation=restricted(client.validation),
        test=restricted(client.test),
    )
