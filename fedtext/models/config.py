"""The model an experiment asks for: a classifier, embedding -> encoder -> MLP head, or a language model."""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field, PositiveInt, model_validator

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
    """Rows from a GloVe, word2vec or fastText (.vec) text file, an .npz with arrays ``words`` and ``vectors``, or a
    .parquet file with columns ``word`` and ``vector``."""

    name: Literal["file"] = "file"
    path: str
    missing: Literal["random", "zero"] = Field("random", description="what words without a vector start as")


class Word2VecInit(Strict):
    """Vectors trained with gensim (the extra ``word2vec``) on texts of the corpus, all in one place, and cached."""

    name: Literal["word2vec"] = "word2vec"
    corpus: Literal["unlabeled", "train", "full"] = Field(
        "unlabeled",
        description="the unlabeled texts, which count as public, those of train, or of all splits; of the last two "
        "all that the corpus has, also what corpus.validation holds out of train and corpus.share leaves out",
    )
    epochs: int = Field(5, ge=1)
    window: int = Field(5, ge=1)
    min_count: int = Field(2, ge=1, description="how often a word must occur to have a vector")
    skip_gram: bool = Field(True, description="false: CBOW, gensim's own default")
    missing: Literal["random", "zero"] = Field("random", description="what words without a vector start as")


if TYPE_CHECKING:
    SourceField: TypeAlias = RandomInit | FileInit | Word2VecInit
else:
    SourceField = entry(RandomInit, FileInit, Word2VecInit)


class EachInit(Strict):
    """Clients start from different ``sources``, each from one of them drawn at random (FedeVocab paper, section 5.4,
    "different init"). For embeddings that never leave a client."""

    name: Literal["each"] = "each"
    sources: tuple[SourceField, ...] = Field(min_length=2)


if TYPE_CHECKING:
    InitField: TypeAlias = SourceField | EachInit
else:
    InitField = entry(RandomInit, FileInit, Word2VecInit, EachInit)


class Embedding(Strict):
    """The word-embedding table E: one row of ``dim`` numbers per vocabulary entry."""

    dim: int = Field(200, ge=1)
    init: InitField = RandomInit()
    digits: float | None = Field(
        None,
        gt=0,
        description="each client draws its own rows of words with a digit in them, numbers and codes, from N(0, "
        "digits^2), as FedeVocab's published code does with 1; for embeddings that never leave a client",
    )

    @property
    def sources(self) -> tuple[RandomInit | FileInit | Word2VecInit, ...]:
        """What clients start from: the same for all, or several."""
        return self.init.sources if isinstance(self.init, EachInit) else (self.init,)


Widths = tuple[Annotated[int, Field(ge=1)], ...]
Output = Literal["softmax", "sigmoid"]
Dense = Literal["torch", "glorot"]
DENSE = (
    "how the layers behind the encoder start: torch's way, or Glorot's with biases at zero, as Keras and its users do"
)
OUTPUT = "softmax: a unit for each class; sigmoid: one for two classes, whose logits are 0 and that unit's"


class Head(Strict):
    """The classifier G: ``layers`` fully connected layers with ReLU between them (KTEPS paper: two)."""

    layers: int = Field(2, ge=1)
    hidden: Annotated[int, Field(ge=1)] | Widths = Field(
        64, description="units of the layers before the last; or of each of them, one after the other"
    )

    @model_validator(mode="before")
    @classmethod
    def _counted(cls, value: Any) -> Any:
        widths = value.get("hidden") if isinstance(value, dict) else None
        return {"layers": len(widths) + 1, **value} if isinstance(widths, list | tuple) else value

    @model_validator(mode="after")
    def _consistent(self) -> "Head":
        if isinstance(self.hidden, tuple) and self.layers != len(self.hidden) + 1:
            raise ValueError(
                f"layers ({self.layers}) are not those of hidden ({len(self.hidden)}) and the last one: leave it out"
            )
        return self

    @property
    def widths(self) -> tuple[int, ...]:
        """Of the layers before the last."""
        return self.hidden if isinstance(self.hidden, tuple) else (self.hidden,) * (self.layers - 1)


class Recurrent(Strict):
    """Recurrent layers read a text word by word, in its order, and no numbers beside the words."""

    name: str
    embedding: Embedding
    hidden: int
    layers: int = Field(1, ge=1)
    joins: ClassVar[bool] = False  # features stand beside the words, not as rows of the table

    @property
    def directions(self) -> int:
        return 2 if self.name.startswith("bi") else 1


class RecurrentClassifier(Recurrent):
    """KTEPS paper, section 5.2: embedding, BiGRU(64), mean over the sequence, two-layer MLP."""

    name: Literal["bigru", "gru", "bilstm", "lstm"] = "bigru"
    embedding: Embedding = Embedding()
    hidden: int = Field(64, ge=1, description="units per direction")
    dropout: float = Field(0.0, ge=0, lt=1, description="on the embedding output and the pooled features")
    pooling: Literal["masked_mean", "mean", "last"] = "masked_mean"
    recurrent_init: Literal["torch", "glorot"] = Field(
        "torch",
        description="how the recurrent layers start: torch's way, or as Keras has it, Glorot's for what reads the "
        "input, orthogonal for what reads the state, biases at zero, and an LSTM's forget gate at one, open",
    )
    head: Head = Head()
    dense_init: Dense = Field("torch", description=DENSE)
    output: Output = Field("softmax", description=OUTPUT)
    padding: ClassVar[bool] = True  # the table's first row is <pad>'s


class WordEmbedding(Embedding):
    """A language model's: tied, rows of N(0, 1) would make logits of sqrt(hidden) and a perplexity beyond the
    vocabulary's size."""

    dim: int = Field(300, ge=1)
    init: InitField = RandomInit(std=0.05)


class GRULanguageModel(Recurrent):
    """FedAtt paper, section III-C: embedding, GRU(300), softmax over the vocabulary. The paper's models are small,
    medium and large: 300, 650 and 1500 units, and as many numbers of a word."""

    name: Literal["gru_lm"] = "gru_lm"
    embedding: WordEmbedding = WordEmbedding()
    hidden: int = Field(300, ge=1, description="units; tied, as many as embedding.dim")
    dropout: float = Field(0.0, ge=0, lt=1, description="on what the output layer reads")
    tied: bool = Field(True, description="the output layer's weights are the embedding")
    output: ClassVar[Output] = "softmax"
    padding: ClassVar[bool] = False  # nobody is to predict <pad>

    @model_validator(mode="after")
    def _fits(self) -> "GRULanguageModel":
        if self.tied and self.embedding.dim != self.hidden:
            raise ValueError(
                f"a tied model's embedding.dim ({self.embedding.dim}) and hidden ({self.hidden}) must be equal: set "
                "both, or tied: false"
            )
        return self


Values = Literal["binary", "counts"]
VALUES = "what a word counts for in a text: 1, or as often as it occurs; times its value, where a corpus gives one"


class BagEmbedding(Embedding):
    """The first dense layer as a table: one row of ``dim`` weights per vocabulary entry. Its values start as widely
    spread as Glorot's for 5,000 words and 100 units, sqrt(2 / 5,100)."""

    dim: int = Field(100, ge=1)
    init: InitField = RandomInit(std=0.02)


class BagClassifier(Strict):
    """RR-LDP paper: a bag of words through a dense network of 100, 50 and 25 ReLU units. ``embedding.dim`` is the width
    of the first layer."""

    name: Literal["bag"] = "bag"
    embedding: BagEmbedding = BagEmbedding()
    hidden: Widths = Field((50, 25), description="units of the layers after the first")
    dropout: float = Field(0.0, ge=0, lt=1, description="on the first layer's output")
    values: Values = Field("binary", description=VALUES)
    dense_init: Dense = Field("torch", description=DENSE)
    output: Output = Field("softmax", description=OUTPUT)
    padding: ClassVar[bool] = False
    joins: ClassVar[bool] = False


class Weights(BagEmbedding):
    """A single unit's weights: one number per vocabulary entry."""

    dim: Literal[1] = 1


class LogisticClassifier(Strict):
    """RR-LDP paper: logistic regression on a bag of words. One number per vocabulary entry and a bias, for two
    classes."""

    name: Literal["logistic"] = "logistic"
    embedding: Weights = Weights()
    values: Values = Field("binary", description=VALUES)
    output: Literal["sigmoid"] = "sigmoid"
    padding: ClassVar[bool] = False
    joins: ClassVar[bool] = False


class VectorClassifier(Strict):
    """RR-LDP paper, tables 8 to 10: the vectors of a text's words, averaged or side by side, and behind them its
    features, if the corpus has some, through dense layers; none of them is logistic regression.
    ``training.optimizer.embedding_lr: 0`` leaves the vectors as they are."""

    name: Literal["vectors"] = "vectors"
    embedding: Embedding = Embedding(dim=300)
    pooling: Literal["mean", "flat"] = Field("mean", description="flat: side by side, zeros behind a shorter text")
    words: PositiveInt | Literal["all"] = Field("all", description="how many of a text's words; flat needs a number")
    order: Literal["common", "first"] = Field(
        "common",
        description="which, and in which order: those the text has most often, each once; or the first ones; with "
        "words: all nothing is chosen",
    )
    hidden: Widths = (100, 50, 25)
    dropout: float = Field(0.0, ge=0, lt=1, description="on what the layers read")
    dense_init: Dense = Field("torch", description=DENSE)
    output: Output = Field("softmax", description=OUTPUT)
    padding: ClassVar[bool] = False
    joins: ClassVar[bool] = True

    @model_validator(mode="after")
    def _counted(self) -> "VectorClassifier":
        if self.pooling == "flat" and self.words == "all":
            raise ValueError(
                "pooling: flat lays so many vectors side by side as words says: set it, to 100 for example"
            )
        if self.words == "all" and self.order != "common":
            raise ValueError(
                f"order: {self.order} chooses among a text's words, and words: all takes every one: set words to a "
                "number, or leave order out"
            )
        return self


Classifier: TypeAlias = RecurrentClassifier | BagClassifier | LogisticClassifier | VectorClassifier
AnyModel: TypeAlias = Classifier | GRULanguageModel
