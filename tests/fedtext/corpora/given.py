"""Corpora of given clients."""

from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedtext.corpora.base import CorpusConfig
from fedtext.corpora.prepare import prepare
from fedtext.corpora.types import ClientData, Corpus, RawClient, RawCorpus, Split, TokenSet
from fedtext.models.base import Embedding
from fedtext.text.tokens import decode


def split(*texts: str, labels: list[int] | None = None) -> Split:
    return Split(list(texts), np.array(labels if labels is not None else [0] * len(texts), np.int64))


def corpus_of(*clients: RawClient, **options: Any) -> CorpusConfig:
    """A corpus that has exactly these clients."""

    class Given(CorpusConfig):
        name: Literal["given"] = "given"

        def read(self, data: Path | None, seed: int) -> RawCorpus:
            return RawCorpus("given", 2, list(clients))

    return Given(**options)


def encoded(config: CorpusConfig, seed: int = 0) -> Corpus:
    return prepare(config, Embedding(), seed, None)


def words(client: ClientData, tokens: TokenSet, corpus: Corpus) -> list[list[str]]:
    return decode(tokens.tokens_T, tokens.offsets, client.rows_R, corpus.vocabulary)


def faulty() -> RawClient:
    return RawClient("f", split("a b", "a b", "", "c", "a b"), split("c", "d", " ", "c", "a  b"))
