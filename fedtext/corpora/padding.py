"""Clients of models that read no padding: their tables have no row for it."""

from dataclasses import replace

from fedtext.corpora.types import ClientData, TokenSet


def without_padding(client: ClientData) -> ClientData:
    """The client without <pad>, its first row: nothing of it is then kept, trained or sent."""

    def shifted(tokens: TokenSet) -> TokenSet:
        return replace(tokens, tokens_T=tokens.tokens_T - 1)

    return replace(
        client,
        rows_R=client.rows_R[1:] - 1,
        train_rows=client.train_rows - 1,
        train=shifted(client.train),
        validation=shifted(client.validation),
        test=shifted(client.test),
    )
