"""Clients of models that read no padding: their tables have no row for it."""

from dataclasses import replace

import numpy as np

from fedtext.corpora.types import ClientData, TokenSet
from fedtext.text.tokens import PAD_ID


def without_padding(client: ClientData) -> ClientData:
    """The client without <pad>, its first row: nothing of it is then kept, trained or sent. A text of <pad> alone, as
    one without words is encoded where there is no <unk>, has no token left."""

    def shifted(tokens: TokenSet) -> TokenSet:
        is_word_T = tokens.tokens_T != PAD_ID
        before_T = np.concatenate([[0], np.cumsum(is_word_T)])
        values_T = None if tokens.values_T is None else tokens.values_T[is_word_T]
        offsets, tokens_T = before_T[tokens.offsets], tokens.tokens_T[is_word_T] - 1
        return replace(tokens, tokens_T=tokens_T, offsets=offsets, values_T=values_T)

    return replace(
        client,
        rows_R=client.rows_R[1:] - 1,
        train_rows=client.train_rows - 1,
        train=shifted(client.train),
        validation=shifted(client.validation),
        test=shifted(client.test),
    )
