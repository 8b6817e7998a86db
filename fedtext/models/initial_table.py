"""The initial embedding table, if it is not drawn with the model.

Legend: V vocabulary, D embedding.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedtext.models.base import Embedding
from fedtext.models.inits import CheckpointInit, FileInit, OwnStart, RandomInit, Source, Word2VecInit
from fedtext.runtime.folders import cache_folder, folders
from fedtext.seeding import generator
from fedtext.text.embeddings import WordVectors, find_file, read_vectors, table
from fedtext.text.pretrained import word_vectors
from fedtext.text.tokens import Unlabeled
from fedtext.text.vocabulary import WordIndex
from fedtext.text.word2vec import UntrainedError, train_vectors


def initial_table(
    embedding: Embedding,
    seed: int,
    words: list[str],
    index: WordIndex,
    features: int,
    data: Path | None,
    texts: Callable[[Literal["unlabeled", "train", "full"]], list[Unlabeled]],
    train: bool = True,
) -> tuple[NDArray[np.float32] | None, list[WordVectors | None]]:
    """Build the initial embedding table.

    Args:
        embedding: Keys of the embedding.
        seed: Seed of the draws.
        words: The vocabulary without features.
        index: The row of each word.
        features: Number of features, whose rows follow those of the words.
        data: The folder given with --data, if any.
        texts: Returns the texts on which word vectors are trained.
        train: Whether vectors are trained that are not in the cache.

    Returns:
        The table, shape (V, D), or (S, V, D) with several sources; None if rows are drawn with the model. And the word
        vectors of each source; None if it is random.

    Raises:
        UntrainedError: Vectors are not in the cache, and ``train`` is false.
    """
    if isinstance(embedding.init, RandomInit):
        return None, [None]
    found, untrained = list[WordVectors | None](), None
    for source in embedding.sources:
        try:
            found.append(_vectors(embedding, source, data, index, texts, train))
        except UntrainedError as error:  # the other sources are read all the same, which checks them
            untrained = error
    if untrained:
        raise untrained
    tables = [
        _table(words, features, vectors, embedding.dim, source, seed, place)
        for place, (vectors, source) in enumerate(zip(found, embedding.sources, strict=True))
    ]
    return (tables[0] if len(tables) == 1 else np.stack(tables)), found


def public_words(
    words: list[str], found: Sequence[WordVectors | None], own: OwnStart | None, digits_V: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return public_SV: the words that are in the vectors of each source, and so known to all who have them.

    Args:
        words: The vocabulary.
        found: The vectors of each source, if it has some.
        own: The words whose rows each client draws for itself, which are left out; None: none.
        digits_V: The words with digits.
    """
    drawn_V = np.zeros(len(words), bool) if own is None else digits_V | (own.words == "all")
    return np.array([[vectors is not None and word in vectors.row for word in words] for vectors in found]) & ~drawn_V


def source_of(seed: int, client: int, sources: int) -> int:
    """Draw the index of the embedding source that a client starts from.

    Args:
        seed: The seed of the experiment.
        client: Id of the client.
        sources: Number of sources.
    """
    return int(generator(seed, "embedding source", client=client).integers(sources))


def _vectors(
    embedding: Embedding,
    init: Source,
    data: Path | None,
    index: WordIndex,
    texts: Callable[[Literal["unlabeled", "train", "full"]], list[Unlabeled]],
    train: bool,
) -> WordVectors | None:
    """Return the word vectors of a source; None if it is random. The arguments are those of ``initial_table``."""
    if isinstance(init, FileInit):
        return read_vectors(find_file(init.path, folders(data)), embedding.dim, index)
    if isinstance(init, CheckpointInit):
        return word_vectors(init.source, embedding.dim)
    if isinstance(init, Word2VecInit):
        more = init.epochs, init.window, cache_folder(), init.min_count, init.skip_gram, train
        return train_vectors(texts(init.corpus), embedding.dim, *more)
    return None


def _table(
    words: list[str],
    features: int,
    vectors: WordVectors | None,
    dim: int,
    init: Source,
    seed: int,
    place: int,
) -> NDArray[np.float32]:
    """Build a source's table, shape (V, D). Rows of features are drawn with the deviation of the word vectors."""
    if vectors is None or isinstance(init, RandomInit):
        assert isinstance(init, RandomInit), "other sources have vectors"
        shape = len(words) + features, dim
        return np.float32(init.std) * generator(seed, f"embedding/{place}").standard_normal(shape, np.float32)
    table_VD = table(words, vectors, seed, zero=init.missing == "zero")
    size = np.float32(vectors.vectors_WD.std())
    drawn = size * generator(seed, "features").standard_normal((features, dim), np.float32)
    return np.concatenate([table_VD, drawn]) if features else table_VD
