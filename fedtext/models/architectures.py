"""Names of parts of the architectures of the package transformers.

The parts of their blocks in C are in models/native_block.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fedtext.errors import UserError


@dataclass(frozen=True)
class Architecture:
    """The names of an architecture's parts.

    Attributes:
        sizes: Of sizes in its configuration, by the keys of a model.
        dropouts: Of the rates of dropout in its configuration.
        blocks: Path of the list of its blocks.
        linear: Of the linear layers of a block, by the keys of an adapter: the last parts of their paths.
        before: Of the modules between the word table and the blocks.
        after: Of the modules after the blocks.
        beside: Of the modules that all blocks use.
        shifted: Whether the first token of a text has not position 0 but the one after that of padding.
    """

    sizes: Mapping[str, str]
    dropouts: tuple[str, ...]
    blocks: str
    linear: Mapping[str, str]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    shifted: bool = False

    @property
    def holder(self) -> str:
        """Path of the module that holds the list of blocks; empty: the network itself."""
        return self.blocks.rpartition(".")[0]

    @property
    def leaf(self) -> str:
        """Name of the list of blocks in that module."""
        return self.blocks.rpartition(".")[2]

    @property
    def layers(self) -> str:
        """The module called ``layers`` in a network of ours: the holder of the list of blocks, or the list itself."""
        return self.holder or self.blocks

    @property
    def modules(self) -> tuple[str, ...]:
        """Names of the modules of a decoder, without its word table, in the order of the computation."""
        return *self.before, self.blocks, *self.after, *self.beside

    def kind(self, path: str) -> str:
        """Return the key of a linear layer by its path; empty if it has none. The longest name counts: the attention's
        output ends like the block's."""
        found = [(len(name), key) for key, name in self.linear.items() if f".{path}".endswith(f".{name}")]
        return max(found)[1] if found else ""


_BERT = Architecture(
    sizes={
        "embedding": "hidden_size",
        "layers": "num_hidden_layers",
        "heads": "num_attention_heads",
        "intermediate": "intermediate_size",
        "positions": "max_position_embeddings",
    },
    dropouts=("hidden_dropout_prob", "attention_probs_dropout_prob"),
    blocks="encoder.layer",
    linear={
        "query": "attention.self.query",
        "key": "attention.self.key",
        "value": "attention.self.value",
        "output": "attention.output.dense",
        "up": "intermediate.dense",
        "down": "output.dense",
    },
    before=("embeddings",),
)
_LLAMA = Architecture(
    sizes={
        "embedding": "hidden_size",
        "layers": "num_hidden_layers",
        "heads": "num_attention_heads",
        "kv_heads": "num_key_value_heads",
        "intermediate": "intermediate_size",
        "positions": "max_position_embeddings",
    },
    dropouts=("attention_dropout",),
    blocks="layers",
    linear={
        "query": "self_attn.q_proj",
        "key": "self_attn.k_proj",
        "value": "self_attn.v_proj",
        "output": "self_attn.o_proj",
        "gate": "mlp.gate_proj",
        "up": "mlp.up_proj",
        "down": "mlp.down_proj",
    },
    after=("norm",),
    beside=("rotary_emb",),
)
ARCHITECTURES: Mapping[str, Architecture] = {
    "bert": _BERT,
    "distilbert": Architecture(
        sizes={
            "embedding": "dim",
            "layers": "n_layers",
            "heads": "n_heads",
            "intermediate": "hidden_dim",
            "positions": "max_position_embeddings",
        },
        dropouts=("dropout", "attention_dropout"),
        blocks="transformer.layer",
        linear={
            "query": "attention.q_lin",
            "key": "attention.k_lin",
            "value": "attention.v_lin",
            "output": "attention.out_lin",
            "up": "ffn.lin1",
            "down": "ffn.lin2",
        },
        before=("embeddings",),
    ),
    "gpt2": Architecture(
        sizes={
            "embedding": "n_embd",
            "layers": "n_layer",
            "heads": "n_head",
            "intermediate": "n_inner",
            "positions": "n_positions",
        },
        dropouts=("resid_pdrop", "embd_pdrop", "attn_pdrop"),
        blocks="h",
        linear={
            "query": "attn.c_attn.query",
            "key": "attn.c_attn.key",
            "value": "attn.c_attn.value",
            "output": "attn.c_proj",
            "up": "mlp.c_fc",
            "down": "mlp.c_proj",
        },
        before=("wpe", "drop"),
        after=("ln_f",),
    ),
    "roberta": replace(_BERT, shifted=True),
    "xlm-roberta": replace(_BERT, shifted=True),
    # Llama, and architectures whose parts are called as its parts are.
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
}


def check_modules(name: str, modules: tuple[str, ...]) -> None:
    """Check that the blocks of an architecture have these linear layers.

    Args:
        name: Its name.
        modules: Keys of layers.

    Raises:
        UserError: They have not.
    """
    linear = ARCHITECTURES[name].linear
    if unknown := [key for key in modules if key not in linear]:
        raise UserError(
            f"model.adapter.lora.modules: a block of {name} has no {unknown[0]}: name some of {', '.join(linear)}"
        )
