"""Tiny checkpoints, and models of their size, made in the test."""

from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import BertProcessing

from fedtext.models.transformer import TransformerClassifier

SIGNS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
PIECES = [*SIGNS, "good", "bad", "film", "##s", "the", "was", "a", "book", "."]
SCRATCH = {"name": "transformer", "embedding": {"dim": 8}, "layers": 2, "heads": 2, "intermediate": 12, "positions": 40}
SIZES = {
    "bert": {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12},
    "distilbert": {"dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 12},
}
SIZES["roberta"] = SIZES["bert"] | {"pad_token_id": 0, "max_position_embeddings": 41}  # texts begin at position 1


def saved(architecture: str, folder: Path) -> Path:
    """The folder, with a model of 13 pieces and its tokenizer, saved by the package itself. Weights are so large that
    attention matters."""
    torch.manual_seed(3)
    sizes = {"max_position_embeddings": 40} | SIZES[architecture]
    config = transformers.AutoConfig.for_model(architecture, **sizes, vocab_size=len(PIECES), initializer_range=0.5)
    transformers.AutoModel.from_config(config).save_pretrained(folder)
    cutter = Tokenizer(WordPiece({piece: number for number, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    cutter.normalizer, cutter.pre_tokenizer = BertNormalizer(lowercase=True), BertPreTokenizer()
    cutter.post_processor = BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), SIGNS, strict=True))
    transformers.PreTrainedTokenizerFast(tokenizer_object=cutter, **names).save_pretrained(folder)
    return folder


def from_checkpoint(folder: Path, **changes: Any) -> TransformerClassifier:
    return TransformerClassifier.model_validate({"checkpoint": str(folder), "embedding": {"dim": 8}} | changes)
