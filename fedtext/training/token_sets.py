"""Token sets: the tokens of a text that a model uses, and their values.

Legend: N texts, T tokens of all texts laid end to end.
"""

from dataclasses import replace
from typing import Literal

import numpy as np

from fedtext.corpora.types import TokenSet

Counting = Literal["binary", "counts", "shares"]


def sets(tokens: TokenSet, rows: int, counting: Counting = "binary") -> TokenSet:
    """Return each text's distinct tokens, ascending, with their values.

    Args:
        tokens: The texts.
        rows: Number of rows of the client's table.
        counting: The value of a token. ``counts``: the sum of its values, or its number of occurrences if there are no
            values; ``shares``: this divided by the sum over the text; ``binary``: the value of its first occurrence, if
            there are values.
    """
    text_T = np.repeat(np.arange(len(tokens)), np.diff(tokens.offsets))
    pairs_T, values_T = text_T * rows + tokens.tokens_T, tokens.values_T
    if counting == "binary":
        if values_T is None:
            pairs_T = np.unique(pairs_T)
        else:
            pairs_T, first = np.unique(pairs_T, return_index=True)
            values_T = values_T[first]
    else:
        pairs_T, place, times = np.unique(pairs_T, return_inverse=True, return_counts=True)
        counts_T = times if values_T is None else np.bincount(place, values_T, len(pairs_T))
        if counting == "shares":
            counts_T = counts_T / np.bincount(pairs_T // rows, counts_T, len(tokens))[pairs_T // rows]
        values_T = counts_T.astype(np.float32)
    text_T, tokens_T = np.divmod(pairs_T, rows)
    offsets = np.searchsorted(text_T, np.arange(len(tokens) + 1))
    return replace(tokens, tokens_T=tokens_T.astype(np.int32), offsets=offsets, values_T=values_T)


def common(tokens: TokenSet, rows: int, most: int) -> TokenSet:
    """Return each text's most frequent distinct tokens, the most frequent first.

    Equally frequent tokens are in the order of the text.

    Args:
        tokens: The texts.
        rows: Number of rows of the client's table.
        most: Largest number of tokens of a text.
    """
    text_T = np.repeat(np.arange(len(tokens)), np.diff(tokens.offsets))
    pairs_U, first_U, times_U = np.unique(text_T * rows + tokens.tokens_T, return_index=True, return_counts=True)
    text_U, tokens_U = np.divmod(pairs_U, rows)
    order_U = np.lexsort((first_U, -times_U, text_U))
    found = replace(
        tokens, tokens_T=tokens_U[order_U].astype(np.int32), offsets=np.searchsorted(text_U, np.arange(len(tokens) + 1))
    )
    return first(found, most)


def first(tokens: TokenSet, most: int) -> TokenSet:
    """Return each text's first ``most`` tokens."""
    lengths_N = np.diff(tokens.offsets)
    place_T = np.arange(len(tokens.tokens_T)) - np.repeat(tokens.offsets[:-1], lengths_N)
    kept_N = np.minimum(lengths_N, most)
    return replace(tokens, tokens_T=tokens.tokens_T[place_T < most], offsets=np.concatenate([[0], np.cumsum(kept_N)]))
