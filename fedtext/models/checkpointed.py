"""Models whose layers are those of the package transformers: their sizes, their checkpoints and what they keep.

The word table ``embedding.weight`` is separate from the layers and given with every call; its rows are passed as
``inputs_embeds``.
"""

import copy
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import nn

from fedtext.errors import UserError
from fedtext.layout import is_table
from fedtext.models.adapters import Adapter
from fedtext.models.architectures import ARCHITECTURES, check_modules
from fedtext.models.base import INIT, Embedding, ModelConfig
from fedtext.models.inits import InitField, RandomInit
from fedtext.text import pretrained

OF_CHECKPOINT = "null: the checkpoint's; without one "
CHECKPOINT = (
    "initial weights: a folder, a name on the hub ({name}), or an installed package ({package}), with config.json on "
    "every node; use corpus.text.{text} for its tokenizer"
)
DROPOUT = "all dropout rates of the architecture"
ATTENTION = (
    "implementation of attention, with the same sums: sdpa does not store the matrix of weights, only eager has second "
    "derivatives"
)
PRECISION = (
    "precision of the layers' products, also in audits: bfloat16 has a mantissa of 7 bits; weights, losses and updates "
    "stay float32"
)


class TransformerEmbedding(Embedding):
    """The word table of a transformer, which is as wide as its layers."""

    dim: int = Field(
        768, ge=1, description="width of table and layers; that of distilbert-base, bert-base and gpt2 is 768"
    )
    init: InitField = Field(RandomInit(std=0.02), description=INIT)


class TransformerConfig(ModelConfig):
    """Base of models whose layers are those of a checkpoint, or of an architecture with random weights.

    Attributes:
        architectures: Names of the architectures that it supports.
        sizes: The keys of sizes, each with its value without a checkpoint; None: that of the architecture.
        checkpoint: The checkpoint; None: weights are random.
        attention, precision: How the layers are computed.
        adapter: What is trained of the layers in place of their weights.
    """

    architectures: ClassVar[tuple[str, ...]]
    sizes: ClassVar[Mapping[str, Any]]
    checkpoint: pretrained.Checkpoint | None
    embedding: TransformerEmbedding = TransformerEmbedding()
    dropout: float
    attention: Literal["sdpa", "eager"] = Field("sdpa", description=ATTENTION)
    precision: Literal["float32", "bfloat16"] = Field("float32", description=PRECISION)
    adapter: Adapter | None = Field(
        None,
        description="what is trained of the layers in place of their weights and of the embedding, which then neither "
        "change nor are sent; null: all of it is trained",
    )

    @model_validator(mode="before")
    @classmethod
    def _completed(cls, value: Any) -> Any:
        """Fill in default sizes if there is no checkpoint, or else its word vectors."""
        if not isinstance(value, dict):
            return value
        source = value.get("checkpoint")
        if source is None:
            return value | {key: size for key, size in cls.sizes.items() if value.get(key) is None}
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
    def _fits(self) -> "TransformerConfig":
        written = [key for key in self.sizes if getattr(self, key) is not None]
        if self.checkpoint is not None and written:
            raise ValueError(f"{written[0]}: a checkpoint has its own sizes: leave it out, or leave out checkpoint")
        if self.checkpoint is None and self.adapter and self.adapter.lora and self.adapter.lora.checkpoint:
            raise ValueError("adapter.lora.checkpoint is of an adapter of pretrained weights: name these as checkpoint")
        heads = getattr(self, "heads", None)
        if heads and self.embedding.dim % heads:
            raise ValueError(f"embedding.dim ({self.embedding.dim}) must be a multiple of heads ({heads})")
        return self

    @property
    def native(self) -> bool:
        return self.attention == "sdpa"

    @property
    def second_order(self) -> bool:
        return self.attention == "eager" and super().second_order  # a language model has none

    @property
    def drawn(self) -> bool:
        return self.adapter is not None

    @property
    def parted(self) -> bool:
        return self.adapter is not None and self.adapter.parted

    def fixes(self, parameter: str) -> bool:
        return self.adapter is not None and (is_table(parameter) or self.adapter.fixes(parameter))

    def keeps(self, parameter: str) -> bool:
        return self.adapter is not None and self.adapter.keeps(parameter)

    def lr_scale(self, parameter: str) -> float:
        return self.adapter.lr_scale(parameter) if self.adapter else 1.0

    @property
    def ranks(self) -> Mapping[int, float]:
        return self.adapter.ranks if self.adapter else {}

    def rank_axis(self, parameter: str) -> int | None:
        return self.adapter.rank_axis(parameter) if self.adapter else None


def settings(config: TransformerConfig) -> Any:
    """Return the configuration of the package transformers for a model.

    Raises:
        UserError: Its checkpoint cannot be read, has another architecture, or another width than the embedding.
    """
    if config.checkpoint is None:
        architecture = getattr(config, "architecture", None) or config.architectures[0]
        ends = {"bos_token_id": None, "eos_token_id": None}  # of a table that is not the architecture's
        sizes = {"embedding": config.embedding.dim} | {key: getattr(config, key) for key in config.sizes}
        if "gate" in ARCHITECTURES[architecture].linear and sizes["intermediate"] is None:
            sizes["intermediate"] = gated_width(config.embedding.dim)
        named = {name: sizes[key] for key, name in ARCHITECTURES[architecture].sizes.items()}
        made = pretrained.library().AutoConfig.for_model(architecture, vocab_size=1, **ends, **named)
    else:
        made = copy.deepcopy(pretrained.settings(config.checkpoint))
        if made.model_type not in config.architectures:
            raise UserError(
                f"model.checkpoint: {config.checkpoint} is a {made.model_type}, and model {config.name} supports "
                f"{', '.join(config.architectures[:-1])} and {config.architectures[-1]}: name one of these"
            )
        if made.hidden_size != config.embedding.dim:
            raise UserError(
                f"model.checkpoint: {config.checkpoint} has the width {made.hidden_size} and model.embedding.dim is "
                f"{config.embedding.dim}: set it to {made.hidden_size}"
            )
    for name in ARCHITECTURES[made.model_type].dropouts:
        setattr(made, name, config.dropout)
    return made


def gated_width(dim: int) -> int:
    """Return the width of a gated feed-forward part that has about as many weights as one of width 4 ``dim`` without a
    gate: 8/3 ``dim``, rounded up to a multiple of 16."""
    return -(-dim // 6) * 16


def check_blocks(config: TransformerConfig) -> None:
    """Check that a model has as many blocks as are to be adapted, and the layers in them.

    Raises:
        UserError: It has not, or as in ``settings``.
    """
    if config.adapter:
        made = settings(config)
        config.adapter.fixed(made.num_hidden_layers)
        check_modules(made.model_type, config.adapter.lora.modules if config.adapter.lora else ())


def layers_of(config: TransformerConfig) -> str:
    """Return ``Architecture.layers`` of a model. Raises UserError as ``settings`` does."""
    return ARCHITECTURES[settings(config).model_type].layers


def layers(config: TransformerConfig, weights: bool, attention: str | None = None) -> Any:
    """Build the network of the package transformers without a head.

    Args:
        config: The model.
        weights: Whether to load the weights of the checkpoint; otherwise only its sizes are used.
        attention: Name of its implementation of attention; None: that of the model.

    Raises:
        UserError: As in ``settings``, or the checkpoint lacks weights.
    """
    made, attention = settings(config), attention or config.attention
    first = first_position(made)
    if config.checkpoint is None or not weights:
        made.vocab_size, made.pad_token_id = 1, None  # of a table that is not used
        found = pretrained.library().AutoModel.from_config(made, attn_implementation=attention, dtype=torch.float32)
    else:
        found = pretrained.network(config.checkpoint, config=made, attn_implementation=attention)
    if first:
        _start_at_0(found.embeddings, first)
    return found


def first_position(made: Any) -> int:
    """Return the position of the first token of a text.

    Args:
        made: A configuration of the package transformers.

    Raises:
        UserError: It does not say it.
    """
    if not ARCHITECTURES[made.model_type].shifted:
        return 0
    if made.pad_token_id is None:
        raise UserError(
            f"model.checkpoint: its config.json has no pad_token_id, after which the positions of a {made.model_type} "
            "begin: name another"
        )
    return int(made.pad_token_id) + 1


def positions_of(made: Any) -> int:
    """Return how many tokens a text can have.

    Args:
        made: A configuration of the package transformers.

    Raises:
        UserError: As in ``first_position``.
    """
    there = made.max_position_embeddings - first_position(made)
    kinds = getattr(made, "layer_types", None) or ["sliding_attention"]  # without it all layers are alike
    window = getattr(made, "sliding_window", None) if "sliding_attention" in kinds else None
    return int(min(there, window or there))  # farther back a token would not see


def _start_at_0(embeddings: Any, first: int) -> None:
    """Remove the positions that no token has, those before ``first``."""
    rows_TD = embeddings.position_embeddings.weight.detach()[first:].clone()
    embeddings.position_embeddings = nn.Embedding.from_pretrained(rows_TD, freeze=False)
    embeddings.padding_idx = -1  # by which the package finds the first position


def autocast(dtype: torch.dtype, device: torch.device) -> AbstractContextManager[Any]:
    """Return a context in which products have this precision.

    Args:
        dtype: The precision. With float32 there is no autocast, which not every device supports.
        device: The device of the products.
    """
    return nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype)


def in_bfloat16(model: ModelConfig) -> bool:
    """Whether products of a model's layers are in bfloat16."""
    return isinstance(model, TransformerConfig) and model.precision == "bfloat16"
