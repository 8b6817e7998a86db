"""Clients of models that read features beside a text's words: their tables have no rows for them."""

from dataclasses import replace

import numpy as np

from fedtext.corpora.types import ClientData, TokenSet


def apart(client: ClientData, words: int, features: int) -> ClientData:
    """The client whose tokens are words alone, the first ``words`` entries of the vocabulary, each text's features
    standing beside them as ``features`` numbers."""
    is_word_R = client.rows_R < words
    before_R = np.cumsum(is_word_R, dtype=np.int32) - 1

    def parted(tokens: TokenSet) -> TokenSet:
        is_word_T = is_word_R[tokens.tokens_T]
        features_NK = np.zeros((len(tokens), features), np.float32)
        if tokens.values_T is not None:
            assert (tokens.values_T[is_word_T] == 1).all(), "only features come with numbers"
            text_T = np.repeat(np.arange(len(tokens)), np.diff(tokens.offsets))
            column_T = client.rows_R[tokens.tokens_T] - words
            features_NK[text_T[~is_word_T], column_T[~is_word_T]] = tokens.values_T[~is_word_T]
        offsets = np.concatenate([[0], np.cumsum(is_word_T)])[tokens.offsets]
        tokens_T = before_R[tokens.tokens_T[is_word_T]]
        return replace(tokens, tokens_T=tokens_T, offsets=offsets, values_T=None, features_NK=features_NK)

    return replace(
        client,
        rows_R=client.rows_R[is_word_R],
        train_rows=int(is_word_R[: client.train_rows].sum()),
        train=parted(client.train),
        validation=parted(client.validation),
        test=parted(client.test),
    )
