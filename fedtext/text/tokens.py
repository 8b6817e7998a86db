"""Special tokens, tokenization and encoding of texts.

Legend: N texts, T tokens of all texts laid end to end, R rows of a client's own table.
"""

import re
from collections.abc import Container, Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

PAD, UNK = "<pad>", "<unk>"
BOS, EOS = "<s>", "</s>"  # begin and end of a sentence, only for language models
PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3


def split_words(text: str, limit: int | None = None) -> list[str]:
    """Split a text at blanks, as in the KTEPS paper, section 5.1 ("only split via space").

    Args:
        text: The text, whose words the corpus has separated by blanks.
        limit: Largest number of words, from the beginning; None: all.
    """
    return text.split() if limit is None else text.split(None, limit)[:limit]


def sentence_words(text: str) -> list[str]:
    """Split a text into the words of a sentence. In it <s> and </s>, which are the ends of one, become <unk>."""
    return [UNK if word in (BOS, EOS) else word for word in text.split()]


def encode(
    texts: Iterable[str], index: Mapping[str, int], max_length: int | None
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Encode texts as rows of the global vocabulary.

    A text without a word becomes one <unk>, so that every text has a length of at least 1.

    Args:
        texts: N texts.
        index: The row of every word, also of unknown ones (see ``WordIndex``).
        max_length: Number of words that are kept of each text; None: all.

    Returns:
        tokens_T, the rows of all texts, and the offsets of texts, shape (N + 1,).
    """
    rows = [np.zeros(0, np.int32)]  # text by text: the strings of a whole split would take too much memory
    for text in texts:
        words = split_words(text, max_length) or [UNK]
        rows.append(np.fromiter(map(index.__getitem__, words), np.int32, len(words)))
    return np.concatenate(rows), np.cumsum([len(part) for part in rows])


def sizes(texts: Iterable[str], max_length: int | None, given_N: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count the bytes of sentences: of their words in UTF-8, of the blanks between these, and one for the end.

    Args:
        texts: Sentences from <s> to </s>.
        max_length: Number of words that are kept of each text; None: all. What is cut off is not counted.
        given_N: Number of words after <s> of each text that are given, and are not counted; the blank after them is.
    """
    found = []
    for text, given in zip(texts, given_N.tolist(), strict=True):
        words = split_words(text, max_length)[1:]
        ends = words[-1:] == [EOS]
        inner = words[: len(words) - ends]
        found.append(len(" ".join(inner).encode()) - len(" ".join(inner[:given]).encode()) + ends)
    return np.array(found, np.int64)


def decode(
    tokens_T: NDArray[np.int32], offsets: NDArray[np.int64], rows_R: NDArray[np.int32], vocabulary: list[str]
) -> list[list[str]]:
    """Decode each text into words, without those that were clipped; unknown words are <unk>.

    Args:
        tokens_T, offsets: The texts, in local rows.
        rows_R: The global row of each local row.
        vocabulary: The words of global rows.
    """
    words = [vocabulary[row] for row in rows_R[tokens_T]]
    return [words[start:stop] for start, stop in pairwise(offsets)]


# Treebank tokenization, as in FDU's labelled Amazon reviews. Each rule inserts blanks around separate tokens.
_ABBREVIATION = r"(?:mr|mrs|ms|dr|jr|sr|st|vs|prof|inc|ft|(?:[a-z]\.)+[a-z])"
_RULES: list[tuple[re.Pattern[str], str]] = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r'(^|[\s(\[{<])"', r"\1 `` "),  # an opening quotation mark
        (r'"', " '' "),
        (r"\.\.\.", " ... "),
        (r"([;@#$%&?!()\[\]{}<>]|--)", r" \1 "),
        (r"([,:])(?!\d)", r" \1 "),  # but 1,000 and 2:00
        # A full stop at the end of a word, also inside quotation marks, but not that of an abbreviation.
        (rf"(?<![\w.])({_ABBREVIATION})\.(?=\s+\S)", r"\1" + "\0"),
        (r"(?<=[^\s.])\.(?=[\s')]*(?:\s|$))", " . "),
        ("\0", "."),
        (r"([^'\s])'(?=\s|$)", r"\1 ' "),
        (r"('s|'m|'d|'ll|'re|'ve|n't)(?=\s|$)", r" \1"),
        (r"\bcannot\b", "can not"),
        (r"\b(gon|wan)na\b", r"\1 na"),
        (r"\bgotta\b", "got ta"),
    )
]


def penn_tokens(text: str) -> str:
    """Tokenize raw English into lower-case Treebank words, separated by single blanks.

    ``It's "OK", isn't it?`` becomes ``it 's `` ok '' , is n't it ?``.
    """
    text = text.lower().replace("\0", " ")
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return " ".join(text.split())


_KEPT = "\ue000"  # once or more it stands for a word that is kept; no rule above reads it


def like_tokens(text: str, known: Container[str]) -> str:
    """Tokenize a text of another source as ``penn_tokens`` does, but for what is a word already.

    Texts of a corpus that come as words stay as they are, in lower case: Treebank words of others, such as ``<unk>`` or
    ``@-@``, are not split again.

    Args:
        text: The text, raw or as words between blanks.
        known: The words of the corpus.
    """
    words, mark = text.lower().split(), _KEPT
    while mark in text:
        mark += _KEPT
    kept = iter([word for word in words if word in known])
    read = penn_tokens(" ".join(mark if word in known else word for word in words))
    return " ".join(next(kept) if word == mark else word for word in read.split())


SEGMENTATION = repr([(rule.pattern, replacement) for rule, replacement in _RULES])  # what penn_tokens does, to compare


class Unlabeled(NamedTuple):
    """A text without a label; ``raw`` is whether it still has to be tokenized."""

    text: str
    raw: bool = False

    def words(self) -> list[str]:
        """Return its words, tokenized and lower-cased like those of labelled texts."""
        return split_words(penn_tokens(self.text) if self.raw else self.text)
