"""The classifier an experiment asks for: embedding -> encoder -> MLP head."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from fedtext.schema import Strict, entry

TABLE = "embedding.weight"  # the shared embedding table, if any is shared: its first axis is the vocabulary
KERNEL_WIDTH = 128  # hidden units that kernels are for: wider steps are large enough products by themselves


def is_table(parameter: str) -> bool:
    """Whether a parameter's first axis is the vocabulary: those of a network's parts called ``embedding...``."""
    return parameter.startswith("embedding") and parameter.count(".") == 1 and parameter.endswith(".weight")


class RandomInit(Strict):
    """Rows drawn from N(0, std^2), keyed by the experiment's seed."""

    name: Literal["random"] = "random"
    std: float = Field(1.0, gt=0)


class FileInit(Strict):
    """Rows from a GloVe, word2vec or fastText (.vec) text file, or an .npz with arrays ``words`` and ``vectors``."""

    name: Literal["file"] = "file"
    path: str
    missing: Literal["random", "zero"] = Field("random", description="what words without a vector start as")


class Word2VecInit(Strict):
    """Vectors trained with gensim (the extra ``word2vec``) on texts of the corpus, all in one place, and cached."""

    name: Literal["word2vec"] = "word2vec"
    corpus: Literal["unlabeled", "train", "full"] = Field(
        "unlabeled", description="the unlabeled texts, which count as public, those of train, or of train and test"
    )
    epochs: int = Field(5, ge=1)
    window: int = Field(5, ge=1)
    min_count: int = Field(2, ge=1, description="how often a word must occur to have a vector")
    skip_gram: bool = Field(True, description="false: CBOW, gensim's own default")
    missing: Literal["random", "zero"] = Field("random", description="what words without a vector start as")


if TYPE_CHECKING:
    from typing import TypeAlias

    InitField: TypeAlias = RandomInit | FileInit | Word2VecInit
else:
    InitField = entry(RandomInit, FileInit, Word2VecInit)


class Embedding(Strict):
    """The word-embedding table E: one row of ``dim`` numbers per vocabulary entry."""

    dim: int = Field(200, ge=1)
    init: InitField = RandomInit()


class Head(Strict):
    """The classifier G: ``layers`` fully connected layers with ReLU between them (KTEPS paper: two)."""

    layers: int = Field(2, ge=1)
    hidden: int = Field(64, ge=1)


class RecurrentClassifier(Strict):
    """KTEPS paper, section 5.2: embedding, BiGRU(64), mean over the sequence, two-layer MLP."""

    name: Literal["bigru", "gru", "bilstm", "lstm"] = "bigru"
    embedding: Embedding = Embedding()
    hidden: int = Field(64, ge=1, description="units per direction")
    layers: int = Field(1, ge=1)
    dropout: float = Field(0.0, ge=0, lt=1, description="on the embedding output and the pooled features")
    pooling: Literal["masked_mean", "mean", "last"] = "masked_mean"
    head: Head = Head()


class BagEmbedding(Embedding):
    """The first dense layer as a table: one row of ``dim`` weights per vocabulary entry. Its values start as widely
    spread as Glorot's for 5,000 words and 100 units, sqrt(2 / 5,100)."""

    dim: int = Field(100, ge=1)
    init: InitField = RandomInit(std=0.02)


class BagClassifier(Strict):
    """RR-LDP paper: a binary bag of words through a dense network of 100, 50 and 25 ReLU units. ``embedding.dim`` is
    the width of the first layer."""

    name: Literal["bag"] = "bag"
    embedding: BagEmbedding = BagEmbedding()
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = Field((50, 25), description="units of the layers after the first")
    dropout: float = Field(0.0, ge=0, lt=1, description="on the first layer's output")
