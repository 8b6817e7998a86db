"""Preparation of a corpus: hold out texts, count words, encode.

Legend: N texts, T tokens of a split laid end to end, R rows of a client's own table, V vocabulary, D embedding.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedtext.corpora import splits
from fedtext.corpora.base import CorpusConfig
from fedtext.corpora.checked import check_cleaned, check_read, cleared
from fedtext.corpora.encoding import counted, encoded, tokenizer_of
from fedtext.corpora.leaks import repeated_tests
from fedtext.corpora.private_vocabulary import draws, without
from fedtext.corpora.splits import Leaking
from fedtext.corpora.statistics import describe
from fedtext.corpora.stored_corpus import load
from fedtext.corpora.streamed import StreamedCorpus
from fedtext.corpora.types import ClientData, Corpus, Coverage, Leaks, RawClient, RawCorpus, Split, TokenSet
from fedtext.corpora.users import digest_of
from fedtext.corpora.vectors import AS_GIVEN, coverage, texts_for_vectors
from fedtext.errors import UserError
from fedtext.models.base import Embedding
from fedtext.models.initial_table import initial_table, public_words, source_of
from fedtext.models.inits import has_vectors
from fedtext.runtime.folders import check_folder, origins_named
from fedtext.text import byte_pairs
from fedtext.text.embeddings import WordVectors
from fedtext.text.representation import BPE, TextField, Words
from fedtext.text.tokens import BOS, EOS, EOS_ID, PAD, PAD_ID, UNK, UNK_ID, split_words
from fedtext.text.vocabulary import SPECIAL, WordIndex, bears_digit, build_vocabulary, count_words
from fedtext.text.word2vec import UntrainedError


@origins_named()
def prepare(
    config: CorpusConfig,
    embedding: Embedding,
    seed: int,
    data: Path | None,
    own: bool = False,
    train: bool = True,
    audited: bool = True,
) -> Corpus:
    """Read a corpus and encode it. The same arguments and files give the same result and the same digest.

    Args:
        config: The corpus.
        embedding: The embedding, for its initial table.
        seed: Seed of the draws.
        data: The folder given with --data, if any.
        own: Whether each client has a vocabulary of its own. The vocabulary of the corpus is then only a list of all
            their words, by which the simulation names them.
        train: Whether word vectors are trained that are not in the cache. Without them the corpus is the same but for
            the initial table, which is left out. Own vocabularies depend on them: they are trained in any case then.
        audited: Whether to look for test texts in train splits (``Corpus.repeated``), which audits alone read.

    Raises:
        UserError: Files are missing or malformed, or a key would leave a client without texts.
    """
    if isinstance(config, StreamedCorpus) and config.on_disk:
        return load(config, embedding, seed, data)
    raw, used, leaks, emptied = _texts(config, seed, data)
    tokenizer = tokenizer_of(config, used, data)
    counts = [counted(client, config.text, tokenizer, config.language) for client in used]
    vocabularies = [build_vocabulary([count], config.words, config.min_count) for count in counts] if own else []
    words = (
        _all_of([*vocabularies, *_others(used, counts, embedding)])
        if own
        else _vocabulary(counts, config, tokenizer, seed)
    )
    known = set(words)
    words += [word for word in config.planted_words(seed) if word not in known]
    index = WordIndex(words)
    vocabulary = [*words, *(f"feature {name}" for name in raw.features)]  # no word holds a blank
    digits_V = np.array([bears_digit(word) for word in words] + [False] * len(raw.features))
    texts, untrained = partial(texts_for_vectors, config, data, seed, raw), ""
    try:
        table_VD, vectors = initial_table(
            embedding, seed, words, index, len(raw.features), data, texts, train=train or own
        )
    except UntrainedError as error:
        table_VD, vectors, untrained = None, [], str(error)
    public_SV = public_words(words, vectors, embedding.own, digits_V) if own else None
    sets_K = [encoded(client, config, index, tokenizer) for client in used]
    clients, all_V = [], np.arange(len(vocabulary), dtype=np.int32)
    for number, (client, sets) in enumerate(zip(used, sets_K, strict=True)):
        rows_R = np.array([index[word] for word in vocabularies[number][1:]], np.int32) if own else None
        public_V = None if public_SV is None else public_SV[source_of(seed, number, len(public_SV))]
        clients.append(_localised(number, client.name, sets, all_V, config.language, rows_R, public_V))
    classes = len(vocabulary) - 1 if config.language else raw.classes
    shown = clients if config.language else [None] * len(clients)
    return Corpus(
        name=raw.name,
        classes=classes,
        vocabulary=vocabulary,
        clients=clients,
        report=[describe(*parts) for parts in zip(raw.clients, used, counts, leaks, shown, strict=True)],
        digest=(
            digest_of(vocabulary, clients)
            if isinstance(config, StreamedCorpus)
            else _digest(classes, vocabulary, clients)
        ),
        table_VD=table_VD,
        table_digest="" if table_VD is None else hashlib.sha256(table_VD.data).hexdigest()[:32],
        coverage=_coverage(words, vectors, counts, config),
        features=len(raw.features),
        tests=tuple(sets[2] for sets in sets_K),
        repeated=repeated_tests(used, config.language) if audited else (),
        words=None if config.language else _distinct_words(raw),
        digits_V=digits_V,
        public_SV=public_SV,
        labels=raw.labels or config.label_names,
        tokenizer=tokenizer,
        unused=raw.unused,
        cleared=emptied,
        untrained=untrained,
    )


def _texts(config: CorpusConfig, seed: int, data: Path | None) -> tuple[RawCorpus, list[RawClient], list[Leaks], int]:
    """Read a corpus and clean its texts.

    Returns:
        The corpus, its clients with the texts that are used, the numbers of each client's leaked texts, and the number
        of texts that have no word after cleaning.
    """
    check_folder(data)
    read = config.read(data, seed)
    check_read(read, config)
    leaking = Leaking.of(read, config, data, seed)
    raw = _cleaned(read, config.text)
    check_cleaned(read, raw, config)
    used = config.with_planted(splits.used(raw, config, seed, leaking), seed)
    return raw, used, leaking.counts(), cleared(read, raw)


def _distinct_words(raw: RawCorpus) -> tuple[int, int]:
    """Count the distinct words of all clients' train texts, and of all their texts."""
    words = {word for client in raw.clients for text in client.train.texts for word in split_words(text)}
    train = len(words)
    for client in raw.clients:
        words.update(
            word for side in (client.validation, client.test) for text in side.texts for word in split_words(text)
        )
    return train, len(words)


def _vocabulary(counts: list[Counter[str]], config: CorpusConfig, tokenizer: str, seed: int) -> list[str]:
    if isinstance(config.text, BPE):
        return byte_pairs.vocabulary(tokenizer, config.language)
    if not isinstance(config.text, Words):
        return config.text.vocabulary()
    special = (BOS, EOS) if config.language else ()
    if config.releases is None:
        return build_vocabulary(counts, config.words, config.min_count, special)
    ordinary = without(counts, SPECIAL)
    found = config.releases.words(ordinary, draws(config.releases, ordinary, seed))
    if not found:
        raise UserError(
            f"corpus.vocabulary.private: {config.releases.name} finds no word that is frequent enough among "
            f"{len(counts)} clients: raise epsilon, or have more clients"
        )
    return [*SPECIAL, *special, *found[: config.words]]


def _cleaned(raw: RawCorpus, text: TextField) -> RawCorpus:
    """Clean all texts, so that their words are separated by blanks. Each different text is cleaned once."""
    made: dict[str, str] = {}

    def clean(split: Split) -> Split:
        texts = [made[given] if given in made else made.setdefault(given, text.clean(given)) for given in split.texts]
        return replace(split, texts=texts)

    if text == AS_GIVEN:
        return raw
    clients = [
        RawClient(client.name, clean(client.train), clean(client.test), clean(client.validation))
        for client in raw.clients
    ]
    return replace(raw, clients=clients)


def _all_of(vocabularies: Iterable[Iterable[str]]) -> list[str]:
    """Return <pad>, <unk>, and all words of these vocabularies in alphabetical order."""
    return [PAD, UNK, *sorted({word for words in vocabularies for word in words} - {PAD, UNK})]


def _others(clients: list[RawClient], counts: list[Counter[str]], embedding: Embedding) -> Iterator[Iterable[str]]:
    """Return the words of all clients' texts, if initial word vectors may have words beyond their vocabularies."""
    if has_vectors(embedding.sources):
        yield from counts
        yield from (count_words(split.texts) for client in clients for split in (client.validation, client.test))


def _localised(
    number: int,
    name: str,
    sets: tuple[TokenSet, TokenSet, TokenSet],
    all_V: NDArray[np.int32],
    language: bool,
    own_R: NDArray[np.int32] | None,
    public_V: NDArray[np.bool_] | None,
) -> ClientData:
    """Encode a client's splits in local rows: <pad>, then tokens of train, then tokens of other splits only.

    Features have the last global rows. In a language corpus local rows are the global ones. With a vocabulary of its
    own, ``own_R`` without <pad>, every word that is neither in it nor in ``public_V`` becomes <unk>.
    """
    vocabulary = len(all_V)
    if language:
        return ClientData(number, name, all_V, vocabulary, *sets)
    place_V = np.full(vocabulary, 2, np.int8)  # 0: <pad>, 1: in train, 2: nowhere yet, 3: only elsewhere
    for tokens in sets[1:]:
        place_V[tokens.tokens_T] = 3
    place_V[sets[0].tokens_T] = 1
    place_V[PAD_ID] = 0
    first, train, rest = (np.flatnonzero(place_V == place).astype(np.int32) for place in (0, 1, 3))
    if own_R is not None and public_V is not None:
        train = np.concatenate([own_R, np.setdiff1d(train[public_V[train]], own_R)])
        rest = np.setdiff1d(rest[public_V[rest]], own_R)
    rows_R = np.concatenate([first, train, rest])
    local_V = np.full(vocabulary, 0 if own_R is None else 1, np.int32)
    local_V[rows_R] = np.arange(len(rows_R), dtype=np.int32)
    sets = tuple(replace(tokens, tokens_T=local_V[tokens.tokens_T]) for tokens in sets)  # type: ignore[assignment]
    return ClientData(number, name, rows_R, 1 + len(train), *sets)


def _coverage(
    words: list[str], vectors: Sequence[WordVectors | None], counts: list[Counter[str]], config: CorpusConfig
) -> Coverage | None:
    """Return the coverage of the vocabulary's own words by the first word vectors; None if there are none."""
    known = next((found for found in vectors if found is not None), None)
    first = 1 + (EOS_ID if config.language else UNK_ID if config.counts_words else PAD_ID)
    return None if known is None else coverage(words[first:], known, counts)


def _digest(classes: int, vocabulary: list[str], clients: list[ClientData]) -> str:
    """Compute the digest of an encoded corpus: vocabulary, rows, tokens, labels and splits.

    The embedding table is not part of it, so that runs with different embeddings on the same data have the same digest.
    """
    hasher = hashlib.sha256()

    def add(part: bytes) -> None:
        hasher.update(len(part).to_bytes(8, "little"))  # separates the parts
        hasher.update(part)

    add("\0".join([str(classes), *vocabulary]).encode())
    for client in clients:
        add(f"{client.name}/{client.train_rows}".encode())
        add(client.rows_R.tobytes())
        for tokens in (client.train, client.validation, client.test):
            for array in (tokens.tokens_T, tokens.offsets, tokens.labels_N, tokens.values_T):
                if array is not None:
                    add(array.tobytes())
    return hasher.hexdigest()[:32]
