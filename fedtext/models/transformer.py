"""Transformers (FedeVocab paper, section 4.1): word rows -> position table and LayerNorm -> encoder layers -> pooling.

The layers are the package transformers' own. The word table is this project's, ``embedding.weight``, given with every
call, and its rows enter as ``inputs_embeds``. What stands between it and the layers, all of FedeVocab's embedding block
but the words, is named ``encoder.embeddings.``: ``position_embeddings.weight``, BERT's
``token_type_embeddings.weight``, ``LayerNorm.weight`` and ``LayerNorm.bias``; the layers are ``encoder.layers.``.

Legend: B batch, T time (signs among the tokens), D embedding, which is the encoder's width.
"""

import copy
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from fedtext.errors import UserError
from fedtext.models.batch import Batch
from fedtext.models.config import TransformerClassifier
from fedtext.text import pretrained

# What each architecture calls its sizes, its dropouts, and its layers.
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


def settings(config: TransformerClassifier) -> Any:
    """The configuration of the package transformers that ``config`` comes down to. Raises UserError where its
    checkpoint cannot be read, is of another architecture, or is not as wide as the embedding."""
    if config.checkpoint is None:
        made = pretrained.library().AutoConfig.for_model(config.architecture, vocab_size=1)
        for key, name in _SIZES[made.model_type].items():
            setattr(made, name, config.embedding.dim if key == "embedding" else getattr(config, key))
    else:
        made = copy.deepcopy(pretrained.settings(config.checkpoint))
        if made.model_type not in _SIZES:
            raise UserError(
                f"model.checkpoint: {config.checkpoint} is a {made.model_type}, and model transformer knows "
                f"{' and '.join(_SIZES)}: name one of these"
            )
        if made.hidden_size != config.embedding.dim:
            raise UserError(
                f"model.checkpoint: {config.checkpoint} is {made.hidden_size} numbers wide and model.embedding.dim is "
                f"{config.embedding.dim}: set it to {made.hidden_size}"
            )
    for name in _DROPOUTS[made.model_type]:
        setattr(made, name, config.dropout)
    return made


def check(config: TransformerClassifier, max_length: int | None) -> None:
    """Raises UserError where ``settings`` does, and where texts may be longer than the encoder has positions for."""
    positions = settings(config).max_position_embeddings
    if max_length is None or max_length > positions:
        raise UserError(
            f"corpus.max_length: model transformer has {positions} positions: set it to at most so many tokens, signs "
            "among them"
        )


class TransformerEncoder(nn.Module):
    """Features_BD of B texts, from position and type embeddings, encoder layers and pooling over real tokens: no
    padding is ever attended to. Without ``weights`` it is of the checkpoint's form alone. Raises UserError like
    ``settings``, and where a checkpoint lacks weights."""

    def __init__(self, config: TransformerClassifier, weights: bool = True) -> None:
        super().__init__()
        made = settings(config)
        if config.checkpoint is None or not weights:
            network = pretrained.library().AutoModel.from_config(made, attn_implementation=config.attention)
        else:
            network = pretrained.network(config.checkpoint, config=made, attn_implementation=config.attention)
        network.pooler = None  # BERT's, which only a sentence-pair head would read
        del network.embeddings.word_embeddings
        self.embeddings, self.layers = network.embeddings, getattr(network, _LAYERS[made.model_type])
        self.run = network.forward  # not the network itself: a module's modules give its parameters their names
        self.dropout = nn.Dropout(config.dropout)
        self.pooling, self.attention = config.pooling, config.attention
        self.dtype = getattr(torch, config.precision)

    def _mask(self, batch: Batch, there_BT: Tensor) -> Tensor | None:
        """Where there is anything to attend to, for sdpa yes or no, else what is added; None: everywhere. Made here,
        since the package would wait for a GPU to say whether it is everywhere."""
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
        exact = self.dtype == torch.float32  # and then no autocast, which is not for every device
        with nullcontext() if exact else torch.autocast(rows_BTD.device.type, self.dtype):
            hidden_BTD = self.run(inputs_embeds=rows_BTD, attention_mask=self._mask(batch, there_BT)).last_hidden_state
        hidden_BTD = hidden_BTD.to(rows_BTD.dtype)
        if self.pooling == "cls":
            return self.dropout(hidden_BTD[:, 0])
        real_BTD = hidden_BTD * there_BT[..., None]
        return self.dropout(real_BTD.sum(1) / batch.lengths_B.to(real_BTD.dtype).unsqueeze(1))
