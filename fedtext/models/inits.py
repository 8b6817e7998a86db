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

    Rows from a GloVe, word2vec or fastText (.vec) text file, an .npz with arrays ``words`` and ``vectors``, or a
    .parquet file with columns ``word`` and ``vector``."""

    name: Literal["file"] = "file"
    path: str = Field(description="of the file, on every node; a name alone is looked up in the data folder")
    missing: Literal["random", "zero"] = Field("random", description="what words without a vector start as")


class Word2VecInit(Strict):
    """Vectors trained with gensim (the extra ``word2vec``) on texts of the corpus, all in one place, and cached."""

    name: Literal["word2vec"] = "word2vec"
    corpus: Literal["unlabeled", "train", "full"] = Field(
        "unlabeled",
        description="the unlabeled texts, which count as public, those of train, or of all splits; of the last two "
        "all that the corpus has, also what corpus.validation holds out of train and corpus.share leaves out",
    )
    epochs: int = Field(5, ge=1, description="passes over the texts")
    window: int = Field(5, ge=1, description="words on either side of a word that are its context")
    min_count: int = Field(2, ge=1, description="how often a word must occur to have a vector")
    skip_gram: bool = Field(True, description="false: CBOW, gensim's own default")
    missing: Literal["random", "zero"] = Field("random", description="what words without a vector start as")


class CheckpointInit(Strict):
    """Rows of a checkpoint's word-embedding table, by piece. A word that is no piece of it starts as ``missing``."""

    name: Literal["checkpoint"] = "checkpoint"
    source: Checkpoint = Field(
        description="a folder, a name on the hub, or an installed package; of model transformer, left out, its own"
    )
    missing: Literal["random", "zero"] = Field("random", description="what words without a row start as")


Source: TypeAlias = RandomInit | FileInit | Word2VecInit | CheckpointInit


def has_vectors(sources: Iterable[Source]) -> bool:
    """Whether words have vectors in one of them."""
    return any(not isinstance(source, RandomInit) for source in sources)


if TYPE_CHECKING:
    SourceField: TypeAlias = Source
else:
    SourceField = entry(RandomInit, FileInit, Word2VecInit, CheckpointInit)


class EachInit(Strict):
    """Different sources, one of them drawn for each client.

    Clients start from different ``sources``, each from one of them drawn at random (FedeVocab paper, "different
    init"). For embeddings that never leave a client."""

    name: Literal["each"] = "each"
    sources: tuple[SourceField, ...] = Field(min_length=2, description="what a client may start from")


if TYPE_CHECKING:
    InitField: TypeAlias = Source | EachInit
else:
    InitField = entry(RandomInit, FileInit, Word2VecInit, CheckpointInit, EachInit)


class OwnStart(Strict):
    """Rows that each client draws for itself.

    Rows that each client draws for itself from N(0, std^2), so that no one else knows where they began: those of
    words with a digit in them, numbers and codes, as in FedeVocab's published code, or of all words."""

    words: Literal["digits", "all"] = Field("digits", description="whose rows: of words with a digit, or of all")
    std: float = Field(1.0, gt=0, description="standard deviation")
