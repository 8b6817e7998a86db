"""Vocabularies: the most frequent words of all clients, or of one client's own texts.

Each client counts the words of its own train texts; the server adds up the counts and keeps the most frequent words.
Words of validation and test texts are never counted. Texts are counted completely, so ``max_length`` does not change
the vocabulary.

The counts for a shared vocabulary are an unprotected release: the server sees every word of every client with its
frequency, and anyone with the vocabulary learns that each of its words occurs in some client's train texts. No
mechanism and no guarantee of the ledger covers this step; fedtext/corpora/private_vocabulary.py has releases with one.
"""

from collections import Counter
from collections.abc import Iterable

from fedtext.text.tokens import PAD, UNK, UNK_ID, split_words

SPECIAL = (PAD, UNK)


def count_words(texts: Iterable[str]) -> Counter[str]:
    """Count the words of texts."""
    counts: Counter[str] = Counter()
    for text, times in Counter(texts).items():
        if times == 1:
            counts.update(split_words(text))
        else:
            counts.update({word: times * count for word, count in Counter(split_words(text)).items()})
    return counts


def build_vocabulary(
    client_counts: Iterable[Counter[str]], size: int, min_count: int = 1, special: tuple[str, ...] = ()
) -> list[str]:
    """Build a vocabulary of the most frequent words, by summed counts.

    Equally frequent words are in alphabetical order, so the result depends on the counts alone. Words of a text that
    look like <pad> or <unk> are not counted.

    Args:
        client_counts: Word counts of each client.
        size: Number of words.
        min_count: Least count of a word.
        special: Special tokens of a language corpus, which occur in every sentence and so are not counted.

    Returns:
        <pad>, <unk>, ``special``, and then the words, the most frequent first.
    """
    total: Counter[str] = Counter()
    for counts in client_counts:
        total.update(counts)
    for word in SPECIAL:
        total.pop(word, None)
    frequent = ((word, count) for word, count in total.items() if count >= min_count)
    ranked = sorted(frequent, key=lambda item: (-item[1], item[0]))
    return [*SPECIAL, *special, *(word for word, _ in ranked[:size])]


def bears_digit(word: str) -> bool:
    """Whether a word contains a digit: dates, numbers, telephones, the sensitive tokens of the FedeVocab paper.

    Entries of a checkpoint such as [unused7] are not words.
    """
    return any(map(str.isdigit, word)) and not word.startswith("[unused")


class WordIndex(dict[str, int]):
    """The global row of each word. Every other word, and the word "<pad>" of a text, has the row of <unk>."""

    def __init__(self, vocabulary: list[str]) -> None:
        super().__init__({word: row for row, word in enumerate(vocabulary) if word != PAD})
        self.size = len(vocabulary)

    def __missing__(self, word: str) -> int:
        return UNK_ID
