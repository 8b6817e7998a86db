"""Data types of a corpus, before (``RawCorpus``) and after encoding (``Corpus``).

Legend: N texts, T tokens of a split laid end to end, R rows (vocabulary entries a client holds), V vocabulary,
D embedding.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Features:
    """Numeric features of N texts, sparse: up to K features that are not zero for each text.

    Attributes:
        columns_NK: Index of each feature in ``RawCorpus.features``.
        values_NK: Its value. A value of 0 means that the entry is unused.
    """

    columns_NK: NDArray[np.int32]
    values_NK: NDArray[np.float32]

    def identities(self) -> list[bytes]:
        """Return one key for each text, equal for texts whose features are all equal."""
        known = np.concatenate([self.columns_NK, self.values_NK], 1, dtype=np.float64)
        return [numbers.tobytes() for numbers in known]


@dataclass(frozen=True)
class Split:
    """Labelled texts of one split.

    Attributes:
        texts: N texts.
        labels: Class indices 0..C-1, shape (N,). In a corpus for language models the number of words after ``<s>``
            that are given and not predicted: 0, or those of a prompt.
        features: Numeric features of the texts, if they have some.
    """

    texts: list[str]
    labels: NDArray[np.int64]
    features: Features | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, chosen_N: NDArray[np.int64]) -> "Split":
        """Return the texts with these indices, in this order."""
        kept = self.features and Features(self.features.columns_NK[chosen_N], self.features.values_NK[chosen_N])
        return Split([self.texts[i] for i in chosen_N], self.labels[chosen_N], kept)

    def sample(self, share: float, draws: np.random.Generator) -> "Split":
        """Draw a share of the texts without replacement, at least one. Their order is kept."""
        return self.take(np.flatnonzero(draws.permutation(len(self)) < max(1, round(share * len(self)))))

    def identities(self) -> list[str]:
        """Return one key for each example, made of the text and of its features if it has some."""
        if self.features is None:
            return self.texts
        numbers = self.features.identities()
        return [f"{text}\0{known.hex()}" for text, known in zip(self.texts, numbers, strict=True)]


@dataclass(frozen=True)
class RawClient:
    """One client's texts as they were read.

    Attributes:
        name: Name of the client, unique in its corpus.
        train, test: Its texts. Neither may be empty.
        validation: Empty unless the corpus brings validation texts, or a share of train was held out.
    """

    name: str
    train: Split
    test: Split
    validation: Split = field(default_factory=lambda: Split([], np.zeros(0, np.int64)))


@dataclass(frozen=True)
class RawCorpus:
    """A corpus as ``CorpusConfig.read`` returns it. Unlabeled texts are loaded separately, only if they are needed.

    Attributes:
        name: Name of the corpus.
        classes: Number of classes C; 0 for sentences without labels, for language models.
        clients: The clients, in a fixed order.
        features: Names of the features that ``Split.features`` refers to.
        labels: Names of the classes by index; empty if they have none.
        unused: Number of validation rows of a table that ``corpus.validation`` 0 leaves out.
    """

    name: str
    classes: int
    clients: list[RawClient]
    features: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    unused: int = 0


@dataclass(frozen=True)
class TokenSet:
    """Texts as token ids laid end to end: text i is ``tokens_T[offsets[i]:offsets[i+1]]``.

    A token id is a row of the client's own table (see ``ClientData.rows_R``), not of the global vocabulary.

    Attributes:
        tokens_T: Token ids of all texts.
        offsets: Where each text begins, and where the last one ends, shape (N + 1,).
        labels_N: Class index of each text. In a corpus for language models the number of tokens after the first that
            are given and not predicted.
        tasks_N: The client each text belongs to, if clients are pooled.
        values_T: Value of each token; None if all are 1. Only features have other values.
        features_NK: Dense features of each text, if they are not tokens.
        bytes_N: Number of bytes that a language model predicts of each sentence (``fedtext.text.tokens.sizes``).
    """

    tokens_T: NDArray[np.int32]
    offsets: NDArray[np.int64]
    labels_N: NDArray[np.int64]
    tasks_N: NDArray[np.int64] | None = None
    values_T: NDArray[np.float32] | None = None
    features_NK: NDArray[np.float32] | None = None
    bytes_N: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.labels_N)

    def targets(self) -> NDArray[np.int32]:
        """Return the tokens that a language model predicts: all but the first of each sentence and those given."""
        lengths_N = np.diff(self.offsets)
        place_T = np.arange(len(self.tokens_T)) - np.repeat(self.offsets[:-1], lengths_N)
        return self.tokens_T[place_T > np.repeat(self.labels_N, lengths_N)]

    def take(self, chosen_N: NDArray[np.int64]) -> "TokenSet":
        """Return the texts with these indices, in this order."""

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
            of_texts(self.bytes_N),
        )


@dataclass(frozen=True)
class ClientData:
    """One client's encoded texts and the vocabulary rows they use.

    A language corpus has the whole vocabulary in both groups of rows, since a softmax uses and updates all of them.
    With a vocabulary of its own, a client has the words of its train texts, the most frequent first, and those words of
    its other texts for which its initial word vectors have a vector. The global rows are then only names of the words
    in the simulation: no one knows them.

    Attributes:
        id: Index of the client.
        name: Name of the client.
        rows_R: Row of the global vocabulary for each local row. Local row 0 is always ``<pad>``.
        train_rows: The first ``train_rows`` rows occur in train, and so can change; the others occur only in
            validation or test.
        train, validation, test: The texts, in local rows.
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
    """Number of a client's test texts that training has seen (``fedtext.corpora.leaks``), before any are dropped."""

    own: int  # in the client's own train split
    others: int  # in another client's train split, and not in its own
    unlabeled: int | None = None  # in the corpus's unlabeled texts; None: it has none, or they were not read
    unlabeled_only: int = 0  # in the unlabeled texts and in no train split


@dataclass(frozen=True)
class ClientReport:
    """Statistics of one client's data (KTEPS paper, Table 1), with its empty, repeated and leaked texts."""

    name: str
    train: int
    validation: int
    test: int
    mean_length: float  # tokens per train text, before clipping to max_length
    vocabulary: int  # distinct words in train, before the global cut-off
    empty: int  # texts without a token, over all splits; each is encoded as one <unk>
    duplicates: int  # train texts that repeat an earlier train text of the same client
    leaks: Leaks
    tokens: tuple[int, ...] = ()  # language corpora: tokens to predict in train, validation and test
    unknown: tuple[int, ...] = ()  # <unk> among these tokens
    cut: int = 0  # language corpora: sentences without </s>, since they are longer than max_length


@dataclass(frozen=True)
class Coverage:
    """How much of a corpus the given word vectors cover."""

    vocabulary: float  # share of the vocabulary's words (without special tokens) that have a vector
    tokens: float  # share of all train tokens whose word is in the vocabulary and has a vector
    missing: int  # number of the vocabulary's words without a vector


@dataclass(frozen=True)
class Corpus:
    """An encoded corpus, ready for any fleet.

    Attributes:
        name: Name of the corpus.
        classes: Number of classes C. In a language corpus V - 1: all words but ``<pad>``. It includes ``<s>``, which is
            never the next word.
        vocabulary: V words. Entry 0 is ``<pad>``, and 1 is ``<unk>`` unless words are hashed. Features come last.
        clients: The encoded clients, in memory or on disk (``StoredClients``).
        report: Statistics of each client; empty if they are on disk.
        digest: Identifies the encoded texts, for the tracking server.
        table_VD: Initial embedding, or one for each source of vectors; None if it is drawn with the model.
        table_digest: Identifies the numbers of ``table_VD``.
        coverage: How much of the corpus the vectors cover that ``table_VD`` was made from.
        features: Number of the vocabulary's last entries that are features and not words.
        tests: Each client's test texts in rows of the global vocabulary.
        repeated: Which of each client's test texts are also in the train split of any client; empty if that is not
            known, as of a corpus on disk, or one that no audit reads.
        digits_V: Which entries are words with a digit in them; None if there are none.
        words: Number of distinct words of train, and of all splits. None in a language corpus.
        public_SV: With vocabularies of the clients' own, which words the vectors of each source S have.
        labels: Names of the classes by index; empty if they have none.
        tokenizer: The tokenizer of byte pairs, as JSON; empty if tokens are something else.
        unused: Number of validation rows of a table that ``corpus.validation`` 0 leaves out.
        cleared: Number of texts that have words, and none after cleaning by ``corpus.text``.
        untrained: A sentence on word vectors that ``table_VD`` lacks, of a corpus that is not trained on; else empty.
    """

    name: str
    classes: int
    vocabulary: list[str]
    clients: Sequence[ClientData]
    report: list[ClientReport]
    digest: str
    table_VD: NDArray[np.float32] | None
    table_digest: str = ""
    coverage: Coverage | None = None
    features: int = 0
    tests: tuple[TokenSet, ...] = ()
    repeated: tuple[NDArray[np.bool_], ...] = ()
    digits_V: NDArray[np.bool_] | None = None
    words: tuple[int, int] | None = None
    public_SV: NDArray[np.bool_] | None = None
    labels: tuple[str, ...] = ()
    tokenizer: str = ""
    unused: int = 0
    cleared: int = 0
    untrained: str = ""

    def header(self, own_vocabularies: bool) -> "Corpus":
        """Return the corpus as the server of a run has it: without clients, their texts and their statistics.

        Args:
            own_vocabularies: Whether each client has a vocabulary of its own. The server then does not know the words
                either: it has numbers in their place, and nothing that tells words apart. Word vectors would name each
                word to whoever has the file that they are from.
        """
        kept = replace(self, clients=[], tests=(), repeated=(), report=[])
        if not own_vocabularies:
            return kept
        known, words = self.vocabulary, len(self.vocabulary) - self.features
        known = [*known[:2], *(f"#{row}" for row in range(2, words)), *known[words:]]
        return replace(kept, vocabulary=known, table_VD=None, digits_V=None, public_SV=None)

    @property
    def has_table(self) -> bool:
        """Whether the initial embedding is here, or drawn with the model; else only the clients have it."""
        return self.table_VD is not None or not self.table_digest

    @property
    def content(self) -> str:
        """Digest of all input of the training: the texts, and the initial word vectors."""
        return self.digest + self.table_digest
