"""The base class of corpora, with the keys that every corpus has in an experiment file."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Set
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import Field, field_validator, model_validator

from fedtext.corpora.leaks import DropLeaked
from fedtext.corpora.private_vocabulary import PrivateVocabulary, Release
from fedtext.corpora.types import RawClient, RawCorpus
from fedtext.errors import UserError, option
from fedtext.runtime.folders import checked, folders, present
from fedtext.schema import FORMS, KEYS, VALUE, Strict
from fedtext.text.representation import TextField, Words, plain
from fedtext.text.tokens import Unlabeled, like_tokens, sentence_words

Vocabulary: TypeAlias = Annotated[Annotated[int, Field(ge=1), VALUE] | Annotated[PrivateVocabulary, KEYS], FORMS]


def find(corpus: str, folder: str, name: str, data: Path | None, advice: str) -> Path:
    """Find a file of a corpus, as ``folder/name`` or ``name``, in the data folders.

    Args:
        corpus: Name of the corpus, for the message.
        folder: The subfolder of a data folder that is searched first.
        name: Name of the file.
        data: The folder given with --data, if any. Otherwise $FEDTEXT_DATA and the cache are searched.
        advice: End of the message.

    Raises:
        UserError: The file is in none of these folders.
    """
    path = first([f"{folder}/{name}", name], data)
    if path is not None:
        return path
    raise UserError(
        f"corpus {corpus}: no {name}, nor {folder}/{name}, in {' or '.join(map(str, folders(data)))}: give its folder "
        f"with {option('data', 'FOLDER')} or $FEDTEXT_DATA{advice}"
    )


def first(names: Iterable[str], data: Path | None) -> Path | None:
    """Return the first of these files that exists in the data folders; None if there is none.

    Args:
        names: Paths relative to a data folder, in order of preference. The folder counts before the name.
        data: The folder given with --data, if any. Otherwise $FEDTEXT_DATA and the cache are searched.
    """
    paths = ((where / name, where) for where in folders(data) for name in names)
    return next((checked(path, where) for path, where in paths if present(path) and path.is_file()), None)


class CorpusConfig(Strict, ABC):
    """Base of all corpora: where the texts come from, and how they are tokenized and encoded.

    A subclass sets ``name``, adds keys of its own, and implements ``read``. ``fedtext.corpora.prepare`` does the rest:
    it holds out validation texts, drops leaked texts, counts words, and encodes.

    Attributes:
        brings_validation: ``read`` returns validation texts, so none are held out of train, even if it returns none.
            A corpus that knows this only after reading its files keeps False.
        language: The texts have no labels and are for language models: sentences from ``<s>`` to ``</s>``.
        label_names: Names of the classes, if they are always the same.
        files: Names of the files of a data folder that ``read`` and ``read_unlabeled`` use, with * for any characters.
            There may be others of another release or format. Empty if they are named by a key, or there are none.
        segmented: The texts come as Treebank tokens in lower case.
    """

    name: str
    brings_validation: ClassVar[bool] = False
    language: ClassVar[bool] = False
    label_names: ClassVar[tuple[str, ...]] = ()
    files: ClassVar[tuple[str, ...]] = ()
    segmented: ClassVar[bool] = False

    text: TextField = Field(
        Words(),
        description="tokens of a text: its words, buckets they are hashed to, a checkpoint's word pieces, byte pairs",
    )
    max_length: int | None = Field(
        200, ge=1, description="words kept of each text, from its beginning; null: all of them"
    )
    vocabulary: Vocabulary = Field(
        50_000,
        description="most frequent words kept, by summed client counts of train, or {private: ...}: words that are "
        "released with a guarantee; only if tokens are words",
    )
    min_count: int = Field(1, ge=1, description="rarer words are <unk>; only if tokens are words")
    own_vocabularies: bool | Literal["auto"] = Field(
        "auto",
        description="each client has a vocabulary of its own: the words of its train texts, which it sends to no one, "
        "and those of the word vectors it starts from; auto: true for words with method fedevocab",
    )
    validation: float = Field(0.0, ge=0.0, lt=1.0, description="share of each client's train held out for selection")
    share: float = Field(
        1.0, gt=0, le=1, description="share of each client's train texts that is used, for short trials"
    )
    drop_leaked: DropLeaked = Field(
        "none",
        description="test and validation texts to leave out because training has seen them; own: those that are also "
        "in the client's train split; all: in any client's, or in the unlabeled texts; texts are the same if all "
        "letters and digits are",
    )

    @field_validator("drop_leaked", mode="before")
    @classmethod
    def _was_a_switch(cls, value: Any) -> Any:
        if isinstance(value, bool):
            was, now = ("true", "own") if value else ("false", "none")
            raise ValueError(f"{was} is called {now} now: write drop_leaked: {now} (none, own or all)")
        return value

    @model_validator(mode="after")
    def _vocabulary_is_read(self) -> Self:
        fields = type(self).model_fields
        asked = {key for key in ("vocabulary", "min_count") if getattr(self, key) != fields[key].default}
        if not self.counts_words and asked:
            raise ValueError(
                f"{min(asked)}: all {self.text.units} have a row of the table (text: {self.text.name}), whatever their "
                "count: leave this key out (of a hash, set text.hash.buckets)"
            )
        if self.releases and self.min_count > 1:
            raise ValueError("min_count: a private vocabulary has a threshold of its own: leave min_count out")
        return self

    @property
    def counts_words(self) -> bool:
        """Whether words of clients are counted for the vocabulary."""
        return isinstance(self.text, Words)

    @property
    def words(self) -> int:
        """Largest number of words of the vocabulary."""
        return self.vocabulary if isinstance(self.vocabulary, int) else self.vocabulary.size

    @property
    def releases(self) -> Release | None:
        """How the vocabulary is released with a guarantee; None if word counts leave the clients."""
        return None if isinstance(self.vocabulary, int) else self.vocabulary.private

    @property
    def part(self) -> str:
        """The part of a text of the source that is a text here, for the ledger; empty: all of it."""
        return ""

    @property
    def on_disk(self) -> bool:
        """Whether encoded texts are kept on disk, and read for the clients of a round alone."""
        return False

    @property
    def has_features(self) -> bool:
        """Whether a text has numeric features beside its words (``TokenSet.values_T``)."""
        return False

    @property
    def scales_features(self) -> bool:
        """Whether features are scaled by their minimum and maximum, which all clients then disclose."""
        return False

    @property
    def names_classes(self) -> bool:
        """Whether the classes are the labels that texts have, which all clients then disclose."""
        return False

    @property
    def draws_clients(self) -> bool:
        """Whether another seed gives other clients, since texts are split over clients, or made, by the seed."""
        return False

    def clients_of(self, seed: int) -> Set[str]:
        """Return keys of the sets of clients. Runs with a key in common have clients in common.

        By default the clients are those of the data. If they are drawn, they follow from the seed, their number and the
        partition. Other keys change which of a client's texts are used, and how.

        Args:
            seed: The seed of the run.
        """
        if not self.draws_clients:
            return {self.name}
        deciding = [repr(getattr(self, key)) for key in ("clients", "partition") if key in type(self).model_fields]
        return {" ".join([self.name, str(seed), *deciding])}

    @property
    def planted(self) -> str:
        """A sentence about texts that are added to those of clients; empty if there are none."""
        return ""

    def with_planted(self, clients: list[RawClient], seed: int) -> list[RawClient]:
        """Return the clients with the texts that are added to theirs.

        Args:
            clients: The clients with the texts that are used.
            seed: Seed of everything that is drawn.
        """
        return clients

    def planted_words(self, seed: int) -> list[str]:
        """Return words that are in the vocabulary whatever their counts are, each once."""
        return []

    @property
    def generated(self) -> int:
        """Number of texts that ``read`` makes; 0 if it reads them from files."""
        return 0

    @property
    def unlabeled(self) -> Literal["none", "local", "remote"]:
        """Whether the corpus has unlabeled texts, and whether they have to be downloaded (``remote``)."""
        return "none"

    def tokens_of(self, text: str, known: Container[str]) -> str:
        """Return a text of another source as those that ``read`` returns.

        Args:
            text: The text, raw or in the form of the corpus.
            known: The words of the corpus; if tokens are no words, ``<unk>`` alone, and of a language model ``<s>`` and
                ``</s>``.
        """
        return like_tokens(plain(self.text, text), known) if self.segmented else text

    def sentences_of(self, text: str, tokens: Callable[[str], str]) -> list[list[str]]:
        """Return the sentences of a text of another source, as words, for a language model.

        Args:
            text: The text.
            tokens: Tokenizes a text.

        Returns:
            At least one sentence, the last of which goes on: it has no word if the text ends with a sentence.
        """
        return [sentence_words(tokens(text))]

    @abstractmethod
    def read(self, data: Path | None, seed: int) -> RawCorpus:
        """Read the texts of all clients.

        Args:
            data: The folder given with --data, if any.
            seed: Seed of everything that is drawn (``fedtext.seeding.generator``).

        Returns:
            The clients in a fixed order, each with labelled train and test texts. The same arguments and files give
            the same texts in the same order.

        Raises:
            UserError: The files are missing or cannot be read. The message is one sentence that names the file.
        """

    def read_unlabeled(self, data: Path | None, seed: int) -> list[Unlabeled]:
        """Read the corpus's unlabeled texts, on which word vectors can be trained.

        Args:
            data: The folder given with --data, if any.
            seed: Seed of everything that is drawn.

        Raises:
            UserError: The corpus has none, or they cannot be read.
        """
        raise UserError(
            f"corpus {self.name!r} has no unlabeled texts to train word vectors on: set "
            "model.embedding.init.word2vec.corpus to train or full, or use another model.embedding.init"
        )
