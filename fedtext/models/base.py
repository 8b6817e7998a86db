"""The base classes of models: common keys, the tokens that a model uses, and the layers that it builds.

Legend: B batch, D embedding, F features, C classes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator
from torch import nn

from fedtext.models.inits import EachInit, InitField, OwnStart, RandomInit, Source
from fedtext.models.output import mlp
from fedtext.schema import Strict

DIM, INIT = "dimension of a word's vector", "initial values of the table"
Widths = tuple[Annotated[int, Field(ge=1)], ...]
Output = Literal["softmax", "sigmoid"]
DenseInit = Literal["torch", "glorot"]
DENSE = (
    "initialisation of the layers after the encoder; torch: torch's own; glorot: Glorot's with zero biases, as in Keras"
)
OUTPUT = "output layer; softmax: a unit for each class; sigmoid: one unit for two classes, whose logits are 0 and it"


class Embedding(Strict):
    """The word-embedding table E, shape (V, D): a row of ``dim`` coordinates for each entry of the vocabulary."""

    dim: int = Field(200, ge=1, description=DIM)
    init: InitField = Field(RandomInit(), description=INIT)
    own: OwnStart | None = Field(
        None,
        description="rows that each client draws for itself; for embeddings that stay with clients, and {words: "
        "digits} for the rows that fedrecon keeps private",
    )

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources of initial tables: one for all clients, or several."""
        return self.init.sources if isinstance(self.init, EachInit) else (self.init,)


class ModelConfig(Strict, ABC):
    """Base of all models: the keys of a model in an experiment, and how texts are prepared for it.

    Derive classifiers from ``ClassifierConfig``, which builds the layers.

    Attributes:
        name: Name of the model in an experiment.
        embedding: Keys of the embedding table.
        language: Whether the model predicts next words instead of classes.
        padding: Whether the first row of the table belongs to ``<pad>``.
        joins: Whether features of a text are inputs beside its words (``Batch.features_BK``) and not rows of the table.
        takes_values: Whether the model uses the values of tokens (``TokenSet.values_T``).
        in_order: Whether the model processes a text token by token, so that ``corpus.max_length`` must be set.
    """

    name: str
    embedding: Embedding
    language: ClassVar[bool] = False
    padding: ClassVar[bool] = True
    joins: ClassVar[bool] = False
    takes_values: ClassVar[bool] = False
    in_order: ClassVar[bool] = False

    @property
    def native(self) -> bool:
        """Whether engine ``native`` computes a part of it."""
        return False

    @property
    def second_order(self) -> bool:
        """Whether its gradient can be differentiated, with engine ``reference``."""
        return True

    @property
    def as_sets(self) -> bool:
        """Whether the model receives each text as the set of its distinct tokens."""
        return False

    @property
    def counting(self) -> Literal["binary", "counts", "shares"]:
        """The value of a token in a set: 1, its count in the text, or its count divided by that of all tokens."""
        return "binary"

    @property
    def pads(self) -> bool:
        """Whether every text is padded to ``corpus.max_length``, with padding as an input like words."""
        return False

    @property
    def choice(self) -> tuple[int, Literal["common", "first"]] | None:
        """The number of tokens of a text that the model uses, and which ones; None: all."""
        return None

    @property
    def drawn(self) -> bool:
        """Whether the network has weights that are no parameters, so that it has to be built with its initial ones."""
        return False

    @property
    def parted(self) -> bool:
        """Whether clients keep a part of the network to themselves, whatever the method."""
        return False

    def fixes(self, parameter: str) -> bool:
        """Whether clients neither train nor send this parameter, whatever the method: it is the server's."""
        return False

    def keeps(self, parameter: str) -> bool:
        """Whether this parameter stays with each client, whatever the method."""
        return False

    def lr_scale(self, parameter: str) -> float:
        """Return the factor of ``training.optimizer.lr`` with which clients train this parameter, which is no table."""
        return 1.0

    @property
    def ranks(self) -> Mapping[int, float]:
        """The ranks of clients, each with the share of clients that have it; empty: all have the whole model."""
        return {}

    def rank_axis(self, parameter: str) -> int | None:
        """Return the axis of a parameter of which a client of rank r has the first r entries; None: it has all."""
        return None

    def width(self, features: int) -> int:
        """Return F, the width of the encoder's output, if texts have this number of features beside their words."""
        return self.embedding.dim

    def check(self, max_length: int | None) -> None:
        """Check what cannot be checked with the experiment alone, such as the sizes of a checkpoint.

        Raises:
            UserError: The model cannot be built, or cannot process texts of this length.
        """


class ClassifierConfig(ModelConfig):
    """Base of all classifiers: embedding, encoder and head. A subclass implements ``build_encoder``."""

    output: Output = Field("softmax", description=OUTPUT)

    @property
    def hidden_widths(self) -> tuple[int, ...]:
        """Widths of the head's hidden layers."""
        return ()

    @property
    def glorot(self) -> bool:
        """Whether the head is initialised as by Glorot, with zero biases."""
        return getattr(self, "dense_init", "torch") == "glorot"

    @property
    def layers_of(self) -> Callable[..., nn.Sequential]:
        """Function that builds dense layers from their widths."""
        return mlp

    @abstractmethod
    def build_encoder(self, weights: bool) -> nn.Module:
        """Build the encoder: a module that is called with (table, batch) and returns features_BF.

        ``table`` is an ``nn.Embedding`` with the client's rows, and ``batch`` a ``fedtext.models.batch.Batch``. The
        features of a text must not depend on the other texts of the batch.

        Args:
            weights: Whether to load the weights of a checkpoint, if the model has one.
        """

    def build_head(self, width: int, classes: int) -> nn.Sequential:
        """Build G, the layers from features_BF of this width to logits_BC."""
        sigmoid = self.output == "sigmoid"
        made = self.layers_of(width, *self.hidden_widths, 1 if sigmoid else classes, sigmoid=sigmoid)
        for layer in made if self.glorot else ():
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)
        return made


class Head(Strict):
    """The classifier G: ``layers`` fully connected layers with ReLU between them (KTEPS paper: two)."""

    layers: int = Field(2, ge=1, description="number of fully connected layers, including the output layer")
    hidden: Annotated[int, Field(ge=1)] | Widths = Field(
        64, description="units of each hidden layer; or a list with the units of each"
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
                f"layers ({self.layers}) is not the length of hidden ({len(self.hidden)}) plus the last one: leave it "
                "out"
            )
        return self

    @property
    def widths(self) -> tuple[int, ...]:
        """Units of each hidden layer."""
        return self.hidden if isinstance(self.hidden, tuple) else (self.hidden,) * (self.layers - 1)
