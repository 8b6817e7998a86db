"""Vocabularies: the words that are most frequent over all clients, or in one client's own texts.

Each client counts the words of its own train texts; the server adds the counts up and keeps the most frequent. Words of
validation and test texts are never counted. Texts are counted whole, so ``max_length`` does not change the vocabulary.

The counts of a shared one are an unprotected release: the server sees every word of every client with its frequency,
and anyone who holds the vocabulary learns that each word in it occurs in some client's train texts. No mechanism or
ledger covers this step.
"""

from collections import Counter
from collections.abc import Iterable

from fedtext.text.tokens import PAD, UNK, UNK_ID, split_words

SPECIAL = (PAD, UNK)


def count_words(texts: Iterable[str]) -> Counter[str]:
    """One client's count of each word in its texts."""
    counts: Counter[str] = Counter()
    for text, times in Counter(texts).items():
        if times == 1:
            counts.update(split_words(text))
        else:
            counts.update({word: times * count for word, count in Counter(split_words(text)).items()})
    return counts


def build_vocabulary(
    client_counts: Iterable[Counter[str]], size: int, min_count: int = 1, signs: tuple[str, ...] = ()
) -> list[str]:
    """The ``size`` most frequent words by summed counts, none rarer than ``min_count``, after <pad> (0), <unk> (1) and
    the ``signs`` of a language corpus, which every sentence has and no one needs to count.

    Equally frequent words are taken in alphabetical order, so the result depends on the counts alone. Words of a text
    that look like <pad> or <unk> are not counted.
    """
    total: Counter[str] = Counter()
    for counts in client_counts:
        total.update(counts)
    for word in SPECIAL:
        total.pop(word, None)
    frequent = ((word, count) for word, count in total.items() if count >= min_count)
    ranked = sorted(frequent, key=lambda item: (-item[1], item[0]))
    return [*SPECIAL, *signs, *(word for word, _ in ranked[:size])]


def bears_digit(word: str) -> bool:
    """Whether there is a digit in a word: dates, numbers, telephones, the sensitive tokens of the FedeVocab paper. A
    checkpoint's [unused7] is no word."""
    return any(map(str.isdigit, word)) and not word.startswith("[unused")


class WordIndex(dict[str, int]):
    """Word to global row; every other word, and a text's own "<pad>", is <unk>."""

    def __init__(self, vocabulary: list[str]) -> None:
        super().__init__({word: row for row, word in enumerate(vocabulary) if word != PAD})
        self.size = len(vocabulary)

    def __missing__(self, word: str) -> int:
        return UNK_ID
