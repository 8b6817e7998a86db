"""Texts as rows of the vocabulary, whatever their tokens are.

Legend: N texts, T tokens of a split laid end to end.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedtext.corpora.base import CorpusConfig
from fedtext.corpora.files import read_lines
from fedtext.corpora.types import RawClient, Split, TokenSet
from fedtext.errors import UserError, option
from fedtext.runtime.folders import folders, located
from fedtext.text import byte_pairs
from fedtext.text.hashing import hash_texts
from fedtext.text.representation import BPE, Pieces, TextField, Words
from fedtext.text.tokens import BOS, EOS, EOS_ID, UNK, sizes
from fedtext.text.tokens import encode as encode_words
from fedtext.text.vocabulary import WordIndex, count_words

Rows = tuple[NDArray[np.int32], NDArray[np.int64]]


def tokenizer_of(config: CorpusConfig, clients: Sequence[RawClient], data: Path | None) -> str:
    """Return the tokenizer of byte pairs; empty if tokens are something else.

    Args:
        config: The corpus.
        clients: The clients, on whose train texts it may be trained.
        data: The folder given with --data, if any.

    Raises:
        UserError: There is no such checkpoint, or no such file to train it on.
    """
    text = config.text
    if not isinstance(text, BPE):
        return ""
    if text.checkpoint is not None:
        return byte_pairs.of_checkpoint(text.checkpoint)
    if not text.of_clients:
        return byte_pairs.trained(_public_lines(text.trained_on, data), text.size)
    texts = (text for client in clients for text in client.train.texts)
    if config.language:
        texts = (text.removeprefix(f"{BOS} ").removesuffix(f" {EOS}") for text in texts)
    return byte_pairs.trained(texts, text.size)


def _public_lines(name: str, data: Path | None) -> list[str]:
    key = "corpus.text.bpe.trained_on"
    path = located(name, folders(data), key)
    if path is None or not path.is_file():
        raise UserError(
            f"{key}: there is no file {name}, nor one in {' or '.join(map(str, folders(data)))}: give its path, or its "
            f"folder with {option('data', 'FOLDER')}, or write train"
        )
    return read_lines(path)


def cleaned(config: CorpusConfig, text: str, index: WordIndex, tokenized: bool = False) -> str:
    """Return a text of another source as those of the corpus are, whose words are separated by blanks.

    Args:
        config: The corpus.
        text: The text.
        index: The row of each word.
        tokenized: Whether it is in the form of the corpus's files, and not raw.
    """
    if not tokenized:
        ends = (BOS, EOS) if config.language else ()  # of a text of the corpus they are words, which become <unk>
        text = config.tokens_of(text, index if config.counts_words else (UNK, *ends))
    return config.text.clean(text)


def rows_of(texts: Sequence[str], config: CorpusConfig, index: WordIndex, tokenizer: str) -> Rows:
    """Return the rows of texts, and the offsets of texts.

    Args:
        texts: N texts, cleaned.
        config: The corpus.
        index: The row of each word.
        tokenizer: That of byte pairs.
    """
    if isinstance(config.text, BPE):
        return byte_pairs.encode(tokenizer, texts, config.max_length, config.language)[:2]
    if not isinstance(config.text, Words):
        return config.text.encode(texts, config.max_length)
    return encode_words(texts, index, config.max_length)


def _sentences(
    texts: Sequence[str], given_N: NDArray[np.int64], config: CorpusConfig, index: WordIndex, tokenizer: str
) -> TokenSet:
    """Encode sentences, of which some words may be given. Raises UserError if a sentence has nothing to predict."""
    if isinstance(config.text, BPE):
        tokens_T, offsets, bytes_N, given_N = byte_pairs.encode(tokenizer, texts, config.max_length, True, given_N)
    else:
        tokens_T, offsets = encode_words(texts, index, config.max_length)
        bytes_N = sizes(texts, config.max_length, given_N)
    filled = int((np.diff(offsets) < given_N + 2).sum())
    if filled:
        raise UserError(
            f"corpus.max_length: {filled:,} of {len(texts):,} prompts fill {config.max_length} tokens, so that nothing "
            "is left of what follows: raise it, or leave these pairs out"
        )
    return TokenSet(tokens_T, offsets, given_N, bytes_N=bytes_N)


def counted(client: RawClient, text: TextField, tokenizer: str, language: bool) -> Counter[str]:
    """Count the tokens of a client's train texts: words without <s> and </s>, buckets, or entries of a tokenizer.

    Counts of what are no words are for the report alone.

    Args:
        client: The client.
        text: What tokens are.
        tokenizer: That of byte pairs.
        language: Whether the texts are sentences.
    """
    if isinstance(text, Words):
        counts = count_words(client.train.texts)
        if language:
            del counts[BOS], counts[EOS]
        return counts
    if isinstance(text, Pieces):
        vocabulary = text.vocabulary()
        found, times = np.unique(text.encode(client.train.texts, None)[0], return_counts=True)
        return Counter({vocabulary[row]: count for row, count in zip(found, times.tolist(), strict=True)})
    if isinstance(text, BPE):
        entries = byte_pairs.vocabulary(tokenizer, language)
        rows_T = byte_pairs.encode(tokenizer, client.train.texts, None, language).tokens_T
        found, times = np.unique(rows_T[rows_T > EOS_ID * language], return_counts=True)
        return Counter({entries[row]: count for row, count in zip(found, times.tolist(), strict=True)})
    found, times = np.unique(hash_texts(client.train.texts, text.buckets)[0], return_counts=True)
    return Counter(dict(zip(map(str, found), times.tolist(), strict=True)))


def encoded(
    client: RawClient, config: CorpusConfig, index: WordIndex, tokenizer: str
) -> tuple[TokenSet, TokenSet, TokenSet]:
    """Encode a client's train, validation and test texts as global rows.

    Args:
        client: The client.
        config: The corpus.
        index: The row of each word.
        tokenizer: That of byte pairs.
    """
    return (
        _split(client.train, config, index, tokenizer),
        _split(client.validation, config, index, tokenizer),
        _split(client.test, config, index, tokenizer),
    )


def _split(split: Split, config: CorpusConfig, index: WordIndex, tokenizer: str) -> TokenSet:
    """Encode texts as global rows of their words, followed by those of their features, which come after ``index``.

    A text without words but with features has no <unk> or <pad>.
    """
    labels_N = np.asarray(split.labels, np.int64)
    if config.language:
        return _sentences(split.texts, labels_N, config, index, tokenizer)
    tokens_T, offsets = rows_of(split.texts, config, index, tokenizer)
    if split.features is None:
        return TokenSet(tokens_T, offsets, labels_N)
    there_NK = split.features.values_NK != 0
    bare_N = there_NK.any(1) & np.array([not text or text.isspace() for text in split.texts], bool)
    lengths_N = np.diff(offsets) * ~bare_N
    tokens_T = tokens_T[~np.repeat(bare_N, np.diff(offsets))]
    both = np.zeros(len(split) + 1, np.int64)
    np.cumsum(lengths_N + there_NK.sum(1), out=both[1:])
    is_word_T = np.arange(both[-1]) < np.repeat(both[:-1] + lengths_N, np.diff(both))
    rows_T, values_T = np.empty(both[-1], np.int32), np.ones(both[-1], np.float32)
    rows_T[is_word_T], rows_T[~is_word_T] = tokens_T, index.size + split.features.columns_NK[there_NK]
    values_T[~is_word_T] = split.features.values_NK[there_NK]
    return TokenSet(rows_T, both, labels_N, values_T=values_T)
