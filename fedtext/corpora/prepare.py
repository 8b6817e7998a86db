"""From texts to numbers: hold out, count, encode, once per corpus.

Legend: N texts, T tokens of a split laid end to end, R rows of a client's own table, V vocabulary, D embedding.
"""

import hashlib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedtext.corpora.base import CorpusConfig, cache_folder
from fedtext.corpora.statistics import describe
from fedtext.corpora.types import ClientData, Corpus, Coverage, RawClient, Split, TokenSet
from fedtext.errors import UserError
from fedtext.models.config import Embedding, FileInit, Word2VecInit
from fedtext.seeding import generator
from fedtext.text.embeddings import WordVectors, find_file, read_vectors, table
from fedtext.text.tokens import PAD_ID, encode
from fedtext.text.vocabulary import SPECIAL, WordIndex, build_vocabulary, count_words
from fedtext.text.word2vec import train_vectors


def prepare(config: CorpusConfig, embedding: Embedding, seed: int, data: Path | None) -> Corpus:
    """Reads the corpus and encodes it; the same arguments and files give the same numbers and the same digest.

    ``data`` is the folder given with --data, if any. Raises UserError when files are missing or malformed, or when an
    option would leave a client without texts.
    """
    raw = config.read(data, seed)
    used = [_select(client, config, seed, i) for i, client in enumerate(raw.clients)]
    counts = [count_words(client.train.texts) for client in used]
    vocabulary = build_vocabulary(counts, config.vocabulary)
    index = WordIndex(vocabulary)
    clients = [_encode_client(i, client, index, config.max_length) for i, client in enumerate(used)]
    vectors = _vectors(config, embedding, seed, data, index)
    table_VD = None if vectors is None else table(vocabulary, vectors, seed)
    return Corpus(
        name=raw.name,
        classes=raw.classes,
        vocabulary=vocabulary,
        clients=clients,
        report=[describe(*parts) for parts in zip(raw.clients, used, counts, strict=True)],
        digest=_digest(raw.classes, vocabulary, clients),
        table_VD=table_VD,
        table_digest="" if table_VD is None else hashlib.sha256(table_VD.data).hexdigest()[:32],
        coverage=None if vectors is None else _coverage(vocabulary, vectors, counts),
    )


def _select(client: RawClient, config: CorpusConfig, seed: int, number: int) -> RawClient:
    """The texts that are used: leaked test texts dropped, validation held out of train, a share drawn of what is left
    of it, each only if asked for."""
    if config.drop_leaked:
        seen = set(client.train.texts)
        client = replace(client, test=_subset(client.test, np.array([text not in seen for text in client.test.texts])))
        if not len(client.test):
            raise UserError(
                f"corpus.drop_leaked leaves client {client.name!r} without test texts, since all of them also stand in "
                "its train split: set it to false"
            )
    if config.validation and not config.brings_validation:
        client = _hold_out(client, config.validation, seed, number)
    if config.share < 1:
        client = replace(client, train=client.train.sample(config.share, generator(seed, "share", client=number)))
    return client


def _hold_out(client: RawClient, share: float, seed: int, number: int) -> RawClient:
    """Moves ``share`` of each class of train to validation, drawn from (seed, "validation", client).

    All copies of a text go to the same side, so validation never leaks from train.
    """
    _, group_N = np.unique(np.array(client.train.texts, dtype=object), return_inverse=True)
    sizes = np.bincount(group_N)
    label_of_group = np.zeros(len(sizes), np.int64)
    label_of_group[group_N[::-1]] = client.train.labels[::-1]  # a text that was given two labels counts as its first
    draw = generator(seed, "validation", client=number)
    held = np.zeros(len(sizes), bool)
    for label in np.unique(label_of_group):
        groups = draw.permutation(np.flatnonzero(label_of_group == label))
        wanted = round(share * int(sizes[groups].sum()))
        held[groups[np.cumsum(sizes[groups]) <= wanted]] = True
    held_N = held[group_N]
    if held_N.all() or not held_N.any():
        side = "train" if held_N.all() else "validation"
        raise UserError(
            f"corpus.validation = {share} leaves no {side} text of the {len(held_N)} train texts of client "
            f"{client.name!r}: {'lower' if held_N.all() else 'raise'} it"
        )
    return replace(client, train=_subset(client.train, ~held_N), validation=_subset(client.train, held_N))


def _subset(split: Split, keep_N: NDArray[np.bool_]) -> Split:
    texts = [text for text, keep in zip(split.texts, keep_N, strict=True) if keep]
    return Split(texts, split.labels[keep_N.astype(bool)])


def _encode_client(number: int, client: RawClient, index: WordIndex, max_length: int) -> ClientData:
    """The client's splits in local rows: <pad>, then what occurs in train, then what occurs only elsewhere."""
    splits = (client.train, client.validation, client.test)
    encoded = [encode(split.texts, index, max_length) for split in splits]
    train, *others = (np.unique(tokens_T) for tokens_T, _ in encoded)
    rows_R = np.concatenate([[PAD_ID], train, np.setdiff1d(np.concatenate(others), train)]).astype(np.int32)
    local_V = np.zeros(int(rows_R.max()) + 1, np.int32)
    local_V[rows_R] = np.arange(len(rows_R), dtype=np.int32)
    sets = [
        TokenSet(local_V[tokens_T], offsets, np.asarray(split.labels, np.int64))
        for split, (tokens_T, offsets) in zip(splits, encoded, strict=True)
    ]
    return ClientData(number, client.name, rows_R, 1 + len(train), *sets)


def _digest(classes: int, vocabulary: list[str], clients: list[ClientData]) -> str:
    """Identifies the encoded corpus: vocabulary, rows, tokens, labels and splits. The embedding table is not part of
    it, so that models with different embeddings are seen to have read the same data."""
    hasher = hashlib.sha256()

    def add(part: bytes) -> None:
        hasher.update(len(part).to_bytes(8, "little"))  # parts cannot run into one another
        hasher.update(part)

    add("\0".join([str(classes), *vocabulary]).encode())
    for client in clients:
        add(f"{client.name}/{client.train_rows}".encode())
        add(client.rows_R.tobytes())
        for tokens in (client.train, client.validation, client.test):
            for array in (tokens.tokens_T, tokens.offsets, tokens.labels_N):
                add(array.tobytes())
    return hasher.hexdigest()[:32]


def _vectors(
    config: CorpusConfig, embedding: Embedding, seed: int, data: Path | None, index: WordIndex
) -> WordVectors | None:
    """The word vectors the embedding starts from, or None where it is drawn at random with the model."""
    init = embedding.init
    if isinstance(init, FileInit):
        return read_vectors(find_file(init.path, data), embedding.dim, index)
    if isinstance(init, Word2VecInit):
        return train_vectors(config.read_unlabeled(data, seed), embedding.dim, init.epochs, init.window, cache_folder())
    return None


def _coverage(vocabulary: list[str], vectors: WordVectors, counts: list[Counter[str]]) -> Coverage:
    known = {word for word in vocabulary if word in vectors.row and word not in SPECIAL}
    found = sum(count for client in counts for word, count in client.items() if word in known)
    total = sum(client.total() for client in counts)
    return Coverage(len(known) / max(1, len(vocabulary) - len(SPECIAL)), found / max(1, total))
