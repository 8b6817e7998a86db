"""Texts on which word vectors are trained, and the share of a corpus's words that have a vector."""

from collections import Counter
from pathlib import Path
from typing import Literal

from fedtext.corpora.base import CorpusConfig
from fedtext.corpora.types import Coverage, RawCorpus
from fedtext.seeding import generator
from fedtext.text.embeddings import WordVectors
from fedtext.text.representation import Words, plain
from fedtext.text.tokens import Unlabeled, penn_tokens

AS_GIVEN = Words()  # words of a text are separated by blanks, and no text is changed


def texts_for_vectors(
    config: CorpusConfig, data: Path | None, seed: int, raw: RawCorpus, part: Literal["unlabeled", "train", "full"]
) -> list[Unlabeled]:
    """Return the texts on which vectors are trained, tokenized by ``corpus.text``.

    Args:
        config: The corpus.
        data: The folder given with --data, if any.
        seed: Seed of the corpus.
        raw: The corpus as read.
        part: Which texts: unlabeled ones, the clients' train split, or all splits.
    """
    texts = config.read_unlabeled(data, seed) if part == "unlabeled" else _unlabeled(raw, part)
    if config.text == AS_GIVEN:
        return texts
    return [
        Unlabeled(config.text.clean(penn_tokens(plain(config.text, text.text)) if text.raw else text.text))
        for text in texts
    ]


def _unlabeled(raw: RawCorpus, part: Literal["train", "full"]) -> list[Unlabeled]:
    """Return the texts of all clients' train splits, or of all splits.

    Each different text occurs once, in an order independent of the partition, so that vectors are trained once for all
    partitions and seeds.
    """
    splits = [client.train for client in raw.clients]
    if part == "full":
        splits += [split for client in raw.clients for split in (client.validation, client.test)]
    texts = sorted({text for split in splits for text in split.texts})
    return [Unlabeled(texts[i]) for i in generator(0, "order of texts for word vectors").permutation(len(texts))]


def coverage(words: list[str], vectors: WordVectors, counts: list[Counter[str]]) -> Coverage:
    """Compute how many words of a vocabulary, and of the clients' train texts, have a vector.

    Args:
        words: The vocabulary.
        vectors: The word vectors.
        counts: For each client, the counts of its train words.
    """
    known = {word for word in words if word in vectors.row}
    found = sum(count for client in counts for word, count in client.items() if word in known)
    total = sum(client.total() for client in counts)
    return Coverage(len(known) / max(1, len(words)), found / max(1, total), len(words) - len(known))
