"""What every corpus has in common in an experiment file."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from fedtext.corpora.leaks import DropLeaked
from fedtext.corpora.types import RawCorpus
from fedtext.errors import UserError
from fedtext.runtime.folders import folders
from fedtext.schema import Strict
from fedtext.text.representation import TextField, Words
from fedtext.text.tokens import Unlabeled


def find(corpus: str, folder: str, name: str, data: Path | None, advice: str) -> Path:
    """A corpus's file, in a folder of its own or not, wherever files are looked for. Raises UserError with ``advice``
    if it is nowhere."""
    path = first([f"{folder}/{name}", name], data)
    if path is not None:
        return path
    raise UserError(
        f"corpus {corpus}: no {name}, nor {folder}/{name}, in {' or '.join(map(str, folders(data)))}: give its folder "
        f"with --data FOLDER or $FEDTEXT_DATA{advice}"
    )


def first(names: Iterable[str], data: Path | None) -> Path | None:
    """The first of these files that is there, wherever files are looked for."""
    paths = (where / name for where in folders(data) for name in names)
    return next((path for path in paths if path.is_file()), None)


class CorpusConfig(Strict, ABC):
    """Where the texts come from and how they become numbers."""

    name: str
    # read gives validation texts already, and none are held out of train, even if it gives none. A corpus of which this
    # is known only once it is read leaves it as it is.
    brings_validation: ClassVar[bool] = False
    language: ClassVar[bool] = False  # texts without labels, for language models: sentences with their signs
    label_names: ClassVar[tuple[str, ...]] = ()  # of the classes, where these are always the same
    segmented: ClassVar[bool] = False  # its texts come as Treebank tokens in lower case
    text: TextField = Field(
        Words(), description="what stands for a text: its words, buckets they are hashed to, or a checkpoint's pieces"
    )
    max_length: int | None = Field(
        200, ge=1, description="words kept of each text, from its beginning; null: all of them"
    )
    vocabulary: int = Field(
        50_000,
        ge=1,
        description="most frequent words kept, by summed client counts of train; only of words",
    )
    min_count: int = Field(1, ge=1, description="rarer words are <unk>; only of words")
    own_vocabularies: bool | Literal["auto"] = Field(
        "auto",
        description="each client has the words of its own train texts, which nobody else is told, and those of the "
        "vectors it starts from; auto: of words, with method fedevocab",
    )
    validation: float = Field(0.0, ge=0.0, lt=1.0, description="share of each client's train held out for selection")
    share: float = Field(
        1.0, gt=0, le=1, description="share of each client's train texts that is used, for short trials"
    )
    drop_leaked: DropLeaked = Field(
        "none",
        description="test and validation texts to leave out because training has seen them; own: those that also stand "
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
                f"{min(asked)}: of {self.text.units} (text: {self.text.name}) each has a row, and none is left out: "
                "leave it out (of a hash, set text.hash.buckets)"
            )
        return self

    @property
    def counts_words(self) -> bool:
        """Whether word counts leave the clients, for the vocabulary."""
        return isinstance(self.text, Words)

    @property
    def has_features(self) -> bool:
        """Whether numbers stand beside the words of a text (TokenSet.values_T)."""
        return False

    @property
    def scales_features(self) -> bool:
        """Whether some of these are scaled by their least and greatest values, which all clients then tell."""
        return False

    @property
    def unlabeled(self) -> Literal["none", "local", "remote"]:
        """Whether the corpus has unlabeled texts, and whether they have to be fetched."""
        return "none"

    @abstractmethod
    def read(self, data: Path | None, seed: int) -> RawCorpus:
        """The texts, client by client. ``data`` is the folder given with --data, if any.

        Raises UserError, in one sentence, when the files are not there or cannot be read.
        """

    def read_unlabeled(self, data: Path | None, seed: int) -> list[Unlabeled]:
        """The corpus's unlabeled texts.

        Raises UserError when the corpus has none or they cannot be read.
        """
        raise UserError(
            f"corpus {self.name!r} has no unlabeled texts to train word vectors on: set "
            "model.embedding.init.word2vec.corpus to train or full, or use another model.embedding.init"
        )
