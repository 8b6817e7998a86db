"""Small models that are built as Llama is: the package's own, and ours with the same weights."""

from pathlib import Path
from typing import Any

import torch
import transformers

from fedtext.models.causal import CausalLanguageModel, CausalNetwork
from fedtext.models.parts import Parts, whole
from tests.fedtext.models.sentences import VOCABULARY

POSITIONS, END = 14, "<|endoftext|>"
SIZES = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2}
SIZES |= {"intermediate_size": 24, "max_position_embeddings": POSITIONS}
SMALL = {"name": "causal", "architecture": "llama", "embedding": {"dim": 16}, "layers": 3, "heads": 4, "kv_heads": 2}
SMALL |= {"intermediate": 24, "positions": POSITIONS, "dropout": 0.0}
LONG = SMALL | {"positions": 100}
ALL = ["query", "key", "value", "output", "gate", "up", "down"]
LATE = {"personalize": None, "every": 2}
TEXTS = ["the cat sat on the mat", "a cat saw the dog"]
ARCHITECTURES = ["llama", "mistral", "qwen2", "qwen3"]


def config(**changes: Any) -> CausalLanguageModel:
    return CausalLanguageModel.model_validate(SMALL | changes)


def theirs(architecture: str = "llama", attention: str = "sdpa", **changes: Any) -> Any:
    """The package's model, with weights so large that attention matters."""
    torch.manual_seed(3)
    sizes = SIZES | {"vocab_size": VOCABULARY, "initializer_range": 0.5, "tie_word_embeddings": True} | changes
    ends = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    made = transformers.AutoConfig.for_model(architecture, **sizes, **ends)
    return transformers.AutoModelForCausalLM.from_config(made, attn_implementation=attention)


def ours(source: Any, folder: Path, **changes: Any) -> CausalNetwork:
    """Our network with the same weights, from a checkpoint."""
    source.float().save_pretrained(folder / "theirs")
    given = {"name": "causal", "checkpoint": str(folder / "theirs"), "embedding": {"dim": 16}, "dropout": 0.0}
    made = whole(Parts(CausalLanguageModel.model_validate(given | changes), VOCABULARY)).double()
    assert isinstance(made, CausalNetwork)
    made.embedding = torch.nn.Embedding.from_pretrained(source.get_input_embeddings().weight.detach().double(), False)
    source.double()
    return made
