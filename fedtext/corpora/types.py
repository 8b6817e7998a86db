"""What a corpus is, before and after it is turned into numbers.

Legend: N texts, T tokens of a split laid end to end, R rows (vocabulary entries a client holds), V vocabulary,
D embedding.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Features:
    """What is known of N texts beside their words: up to K numbers each, those that are zero not there."""

    columns_NK: NDArray[np.int32]  # which feature, by its place in RawCorpus.features
    values_NK: NDArray[np.float32]

    def identities(self) -> list[bytes]:
        """The numbers of each text, equal only where all are equal."""
        known = np.concatenate([self.columns_NK, self.values_NK], 1, dtype=np.float64)
        return [numbers.tobytes() for numbers in known]


@dataclass(frozen=True)
class Split:
    """Labelled texts. ``labels`` are class numbers 0..C-1, one per text."""

    texts: list[str]
    labels: NDArray[np.int64]
    features: Features | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, chosen_N: NDArray[np.int64]) -> "Split":
        """The texts of these numbers, in this order."""
        kept = self.features and Features(self.features.columns_NK[chosen_N], self.features.values_NK[chosen_N])
        return Split([self.texts[i] for i in chosen_N], self.labels[chosen_N], kept)

    def sample(self, share: float, draws: np.random.Generator) -> "Split":
        """So much of it, drawn at random, at least one text, in its order."""
        return self.take(np.flatnonzero(draws.permutation(len(self)) < max(1, round(share * len(self)))))

    def identities(self) -> list[str]:
        """What tells examples apart: the text, and the features if there are any."""
        if self.features is None:
            return self.texts
        numbers = self.features.identities()
        return [f"{text}\0{known.hex()}" for text, known in zip(self.texts, numbers, strict=True)]


@dataclass(frozen=True)
class RawClient:
    """One client's texts as they were read. ``validation`` is empty unless a share of train was held out."""

    name: str
    train: Split
    test: Split
    validation: Split = field(default_factory=lambda: Split([], np.zeros(0, np.int64)))


@dataclass(frozen=True)
class RawCorpus:
    """A named corpus as read: clients in a fixed order. Unlabeled texts are read apart, only where they are needed."""

    name: str
    classes: int  # 0: sentences for language models, without labels
    clients: list[RawClient]
    features: tuple[str, ...] = ()  # names, if texts come with some
    labels: tuple[str, ...] = ()  # names of the classes in the order of their numbers; empty: they have none


@dataclass(frozen=True)
class TokenSet:
    """Texts as token ids laid end to end: text i is ``tokens_T[offsets[i]:offsets[i+1]]``.

    A token id is a row of the client's own table (see ClientData.rows_R), not of the global vocabulary.
    """

    tokens_T: NDArray[np.int32]
    offsets: NDArray[np.int64]  # N + 1
    labels_N: NDArray[np.int64]
    tasks_N: NDArray[np.int64] | None = None  # the client whose text it is, where clients are pooled
    values_T: NDArray[np.float32] | None = None  # how much of each token there is; None: one of each
    features_NK: NDArray[np.float32] | None = None  # all features of each text, where they are no tokens

    def __len__(self) -> int:
        return len(self.labels_N)

    def take(self, chosen_N: NDArray[np.int64]) -> "TokenSet":
        """The texts of these numbers, in this order."""

        def of_texts(values: NDArray | None) -> NDArray | None:
            return None if values is None else values[chosen_N]

        lengths_N = np.diff(self.offsets)[chosen_N]
        offsets = np.concatenate([[0], np.cumsum(lengths_N)])
        place_T = np.arange(offsets[-1]) + np.repeat(self.offsets[chosen_N] - offsets[:-1], lengths_N)
        return TokenSet(
            self.tokens_T[place_T],
            offsets,
            self.labels_N[chosen_N],
            of_texts(self.tasks_N),
            None if self.values_T is None else self.values_T[place_T],
            of_texts(self.features_NK),
        )


@dataclass(frozen=True)
class ClientData:
    """One client's encoded texts and the vocabulary rows they use.

    ``rows_R`` maps a local row to its row in the global vocabulary. Row 0 is always <pad>; the first ``train_rows``
    rows are those that occur in train (and so can change), the rest occur only in validation or test. Of a language
    corpus both are the whole vocabulary, since a softmax reads and moves all rows. With a vocabulary of its own a
    client has the words of its train texts, the most frequent first, and such words of its texts as the vectors have
    that it starts from; its rows of the global one are no one's knowledge: they stand for the words.
    """

    id: int
    name: str
    rows_R: NDArray[np.int32]
    train_rows: int
    train: TokenSet
    validation: TokenSet
    test: TokenSet


@dataclass(frozen=True)
class Leaks:
    """How many of a client's test texts training has seen (corpora/leaks.py), before any are dropped."""

    own: int  # stand in the client's own train split
    others: int  # stand in another client's train split, and not in its own
    unlabeled: int | None = None  # stand in the corpus's unlabeled texts; None: it has none, or they were not read
    unlabeled_only: int = 0  # of these, how many stand in no train split


@dataclass(frozen=True)
class ClientReport:
    """What a person should know about one client's data (KTEPS paper, Table 1, and the corpus's faults)."""

    name: str
    train: int
    validation: int
    test: int
    mean_length: float  # tokens per train text, before clipping to max_length
    vocabulary: int  # distinct words in train, before the global cut-off
    empty: int  # texts without a token, over all splits; each is encoded as one <unk>
    duplicates: int  # train texts that repeat an earlier train text of the same client
    leaks: Leaks
    tokens: tuple[int, ...] = ()  # of a language corpus: how many to predict in train, validation and test
    unknown: tuple[int, ...] = ()  # how many of these are <unk>
    cut: int = 0  # of a language corpus: sentences without an end sign, since they are longer than max_length


@dataclass(frozen=True)
class Coverage:
    """How much of a corpus the given word vectors know."""

    vocabulary: float  # share of the vocabulary's words (without <pad>, <unk> and a sentence's signs) that have one
    tokens: float  # share of all train tokens whose word is in the vocabulary and has a vector
    missing: int  # how many of the vocabulary's words have none


@dataclass(frozen=True)
class Corpus:
    """An encoded corpus, ready for any fleet. ``digest`` identifies the exact numbers (for the tracking server),
    ``table_digest`` those of ``table_VD``."""

    name: str
    classes: int  # of a language corpus V - 1, all words but <pad>; also <s>, which never comes next
    vocabulary: list[str]  # V words; 0 is <pad>, and 1 is <unk> unless words are hashed; features come last
    clients: list[ClientData]
    report: list[ClientReport]
    digest: str
    table_VD: NDArray[np.float32] | None  # initial embedding, or one for each source; None: drawn with the model
    table_digest: str = ""
    coverage: Coverage | None = None  # of the vectors that table_VD was made from
    features: int = 0  # how many rows of the vocabulary, the last ones, are features and no words
    tests: tuple[TokenSet, ...] = ()  # each client's test texts in the vocabulary's rows; not of a language corpus
    digits_V: NDArray[np.bool_] | None = None  # which entries are words with a digit in them; None: none
    words: tuple[int, int] | None = None  # distinct words of train, and of all splits; not of a language corpus
    public_SV: NDArray[np.bool_] | None = None  # under own vocabularies: which words each source's vectors have
    labels: tuple[str, ...] = ()  # names of the classes in the order of their numbers; empty: they have none

    @property
    def content(self) -> str:
        """Identifies all that training is given: the texts, and the word vectors it starts from."""
        return self.digest + self.table_digest
