"""The base of all models: their common keys, which tokens a model reads, and the layers it builds.

Legend: B batch, F features, C classes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator
from torch import nn

from fedtext.models.inits import EachInit, InitField, OwnStart, RandomInit, Source
from fedtext.models.output import mlp
from fedtext.schema import Strict

DIM, INIT = "coordinates of a word's vector", "what the table starts from"
Widths = tuple[Annotated[int, Field(ge=1)], ...]
Output = Literal["softmax", "sigmoid"]
DenseInit = Literal["torch", "glorot"]
DENSE = (
    "how the layers behind the encoder start: torch's way, or Glorot's with biases at zero, as Keras and its users do"
)
OUTPUT = "softmax: a unit for each class; sigmoid: one for two classes, whose logits are 0 and that unit's"


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
        """The initial tables of clients: one for all, or several."""
        return self.init.sources if isinstance(self.init, EachInit) else (self.init,)


class ModelConfig(Strict, ABC):
    """Base of all models. A subclass brings its keys, what it reads of a text, and the layers it consists of."""

    name: str
    embedding: Embedding
    language: ClassVar[bool] = False  # predicts next words, and no classes of texts
    padding: ClassVar[bool] = True  # the table's first row is <pad>'s
    joins: ClassVar[bool] = False  # features stand beside the words, not as rows of the table
    takes_values: ClassVar[bool] = False  # reads how much of each token there is (TokenSet.values_T)
    in_order: ClassVar[bool] = False  # classifies token by token, so that corpus.max_length has to be set

    @property
    def as_sets(self) -> bool:
        """Whether a text is the set of its tokens."""
        return False

    @property
    def counting(self) -> Literal["binary", "counts", "shares"]:
        """The weight of a token in a set of tokens."""
        return "binary"

    @property
    def pads(self) -> bool:
        """Whether every text is padded to ``corpus.max_length``, and the padding is an input like words."""
        return False

    @property
    def choice(self) -> tuple[int, Literal["common", "first"]] | None:
        """The number of tokens of a text that the model reads, and which; None: all."""
        return None

    def width(self, features: int) -> int:
        """Return F, the width of the encoder's output, where ``features`` numbers stand beside a text's words."""
        return self.embedding.dim

    def check(self, max_length: int | None) -> None:
        """Check what an experiment alone does not show, such as the sizes of a checkpoint.

        Raises:
            UserError: If the model cannot read texts of this length.
        """


class ClassifierConfig(ModelConfig):
    """Base of the classifiers: embedding, encoder, head."""

    output: Output = Field("softmax", description=OUTPUT)

    @property
    def hidden_widths(self) -> tuple[int, ...]:
        """Widths of the head's layers before the last."""
        return ()

    @property
    def glorot(self) -> bool:
        """Whether the head starts as Glorot has it, with biases at zero."""
        return getattr(self, "dense_init", "torch") == "glorot"

    @property
    def layers_of(self) -> Callable[..., nn.Sequential]:
        """The initialisation of dense layers, by their widths."""
        return mlp

    @abstractmethod
    def build_encoder(self, weights: bool) -> nn.Module:
        """Build the encoder; without ``weights`` those of a checkpoint are left unread."""

    def build_head(self, width: int, classes: int) -> nn.Sequential:
        """Build G, the layers behind an encoder of this width."""
        sigmoid = self.output == "sigmoid"
        made = self.layers_of(width, *self.hidden_widths, 1 if sigmoid else classes, sigmoid=sigmoid)
        for layer in made if self.glorot else ():
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)
        return made


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
