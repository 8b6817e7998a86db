"""Initial embedding tables."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, TypeAlias

from pydantic import Field

from fedtext.schema import Strict, entry
from fedtext.text.pretrained import Checkpoint


class RandomInit(Strict):
    """Rows drawn from N(0, std^2), keyed by the experiment's seed."""

    name: Literal["random"] = "random"
    std: float = Field(1.0, gt=0, description="standard deviation")


class FileInit(Strict):
    """Word vectors from a file.

    The file is a GloVe, word2vec or fastText (.vec) text file, an .npz with arrays ``words`` and ``vectors``, or a
    .parquet file with columns ``word`` and ``vector``.
    """

    name: Literal["file"] = "file"
    path: str = Field(
        description="path of the file, on the node of the command; a name alone is searched in the data folder"
    )
    missing: Literal["random", "zero"] = Field("random", description="initial rows of words without a vector")


class Word2VecInit(Strict):
    """Vectors trained with gensim (the extra ``word2vec``) on texts of the corpus, all in one place, and cached."""

    name: Literal["word2vec"] = "word2vec"
    corpus: Literal["unlabeled", "train", "full"] = Field(
        "unlabeled",
        description="training texts; unlabeled: the corpus's unlabeled texts, which count as public; train or full: "
        "those of train or of all splits, with what corpus.validation holds out and corpus.share leaves out",
    )
    epochs: int = Field(5, ge=1, description="passes over the texts")
    window: int = Field(5, ge=1, description="number of context words on each side of a word")
    min_count: int = Field(2, ge=1, description="least count of a word with a vector")
    skip_gram: bool = Field(True, description="whether to use skip-gram; false: CBOW, gensim's default")
    missing: Literal["random", "zero"] = Field("random", description="initial rows of words without a vector")


class CheckpointInit(Strict):
    """Rows of a checkpoint's word-embedding table, by word piece."""

    name: Literal["checkpoint"] = "checkpoint"
    source: Checkpoint = Field(
        description="a folder, a name on the hub, or an installed package; model transformer uses its own by default"
    )
    missing: Literal["random", "zero"] = Field("random", description="initial rows of words that are not word pieces")


Source: TypeAlias = RandomInit | FileInit | Word2VecInit | CheckpointInit


def has_vectors(sources: Iterable[Source]) -> bool:
    """Whether one of the sources has word vectors."""
    return any(not isinstance(source, RandomInit) for source in sources)


if TYPE_CHECKING:
    SourceField: TypeAlias = Source
else:
    SourceField = entry(RandomInit, FileInit, Word2VecInit, CheckpointInit)


class EachInit(Strict):
    """Different sources, one of them drawn for each client (FedeVocab paper, "different init").

    It is for embeddings that never leave a client.
    """

    name: Literal["each"] = "each"
    sources: tuple[SourceField, ...] = Field(min_length=2, description="the sources, of which each client draws one")


if TYPE_CHECKING:
    InitField: TypeAlias = Source | EachInit
else:
    InitField = entry(RandomInit, FileInit, Word2VecInit, CheckpointInit, EachInit)


class OwnStart(Strict):
    """Rows that each client draws for itself from N(0, std^2), so that no one else knows their initial values.

    They are the rows of words with a digit in them, such as numbers and codes, as in FedeVocab's published code, or the
    rows of all words.
    """

    words: Literal["digits", "all"] = Field("digits", description="rows of words with a digit, or of all words")
    std: float = Field(1.0, gt=0, description="standard deviation")
