"""A corpus whose encoded texts are on disk."""

import hashlib
from functools import partial
from pathlib import Path

import numpy as np

from fedtext.corpora.stored import stored
from fedtext.corpora.streamed import StreamedCorpus
from fedtext.corpora.types import Corpus, RawCorpus
from fedtext.corpora.vectors import texts_for_vectors
from fedtext.models.base import Embedding
from fedtext.models.initial_table import initial_table
from fedtext.runtime.folders import check_folder
from fedtext.text.vocabulary import WordIndex, bears_digit


def load(config: StreamedCorpus, embedding: Embedding, seed: int, data: Path | None) -> Corpus:
    """Return a corpus whose encoded texts are on disk, with the same bits as one in memory.

    Args:
        config: The corpus.
        embedding: The embedding, for its initial table.
        seed: Seed of the draws.
        data: The folder given with --data, if any.

    Raises:
        UserError: Files are missing or malformed, or the cache cannot be written.
    """
    check_folder(data)
    clients = stored(config, seed, data)
    words = list(clients.vocabulary)
    without = partial(texts_for_vectors, config, data, seed, RawCorpus(config.name, 0, []))
    table_VD, _ = initial_table(embedding, seed, words, WordIndex(words), 0, data, without)
    return Corpus(
        name=config.name,
        classes=len(words) - 1,
        vocabulary=words,
        clients=clients,
        report=[],
        digest=clients.digest,
        table_VD=table_VD,
        table_digest="" if table_VD is None else hashlib.sha256(table_VD.data).hexdigest()[:32],
        coverage=None,
        digits_V=np.array([bears_digit(word) for word in words]),
    )
