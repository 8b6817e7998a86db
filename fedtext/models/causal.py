"""Causal language models: word rows -> decoder layers -> softmax.

The layers are those of the package transformers: GPT-2 (Radford et al. 2019), or Llama (Touvron et al. 2023) and those
that are built as it is. Their parameters are called ``decoder.`` and their name there: ``wpe.weight``, the positions of
GPT-2, ``h.0.attn.c_attn.weight`` and so on, and ``ln_f.weight``; ``layers.0.self_attn.q_proj.weight`` and so on, and
``norm.weight``. A token is computed from those before it alone, so that padding, which comes last, is never read; with
``attention: sdpa`` it is not computed either (models/unpadded.py).

Legend: B sentences, T tokens of the longest one, S tokens to predict, L layers, N heads, A width of a head, V
vocabulary, D embedding.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from fedtext.errors import UserError
from fedtext.models import adapter_files
from fedtext.models.adapted import adapt
from fedtext.models.architectures import ARCHITECTURES
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
from fedtext.models.language import OUTPUT, TIED, LanguageConfig, LanguageModel, Score
from fedtext.models.native_block import always_in_c
from fedtext.models.native_products import products_in_c
from fedtext.models.unpadded import Places, implementation, run_unpadded
from fedtext.text import pretrained
from fedtext.text.byte_pairs import never

LENGTH_DEPENDENT = ("dynamic", "longrope")  # types of rotary positions


class CausalLanguageModel(TransformerConfig, LanguageConfig):
    """Causal language model: GPT-2 or Llama, from a checkpoint or from random weights, predicts the next token.

    A decoder as in Radford et al. (2019) or Touvron et al. (2023), with a separate word table (models/causal.py).
    Checkpoints may also be of Mistral, Qwen2 and Qwen3. Without a checkpoint its weights are random and its sizes those
    of the smallest GPT-2, unless others are given.
    """

    name: Literal["causal"] = "causal"
    checkpoint: pretrained.Checkpoint | None = Field(
        None, description=CHECKPOINT.format(name="gpt2", package="of this name", text="bpe")
    )
    architecture: Literal["gpt2", "llama"] | None = Field(None, description=f"{OF_CHECKPOINT}gpt2")
    layers: PositiveInt | None = Field(None, description=f"{OF_CHECKPOINT}12")
    heads: PositiveInt | None = Field(None, description=f"{OF_CHECKPOINT}12")
    kv_heads: PositiveInt | None = Field(
        None,
        description="heads of keys and values in a llama, each for as many heads of the queries; null: the "
        "checkpoint's; without one as many as heads",
    )
    intermediate: PositiveInt | None = Field(
        None, description=f"{OF_CHECKPOINT}4 times embedding.dim, in a llama 8/3 of it, rounded up to a multiple of 16"
    )
    positions: PositiveInt | None = Field(None, description=f"number of positions; {OF_CHECKPOINT}1024")
    dropout: float = Field(0.1, ge=0, lt=1, description=DROPOUT)
    tied: bool = Field(True, description=f"{TIED}; of a checkpoint as in its config.json (tie_word_embeddings)")
    biased = False
    architectures = ("gpt2", "llama", "mistral", "qwen2", "qwen3")
    sizes: ClassVar[Mapping[str, Any]] = {
        "architecture": "gpt2",
        "layers": 12,
        "heads": 12,
        "kv_heads": None,
        "intermediate": None,
        "positions": 1024,
    }

    @model_validator(mode="after")
    def _is_known(self) -> "CausalLanguageModel":
        if self.adapter and self.adapter.lora is None and self.tied:
            raise ValueError(
                "adapter.lora: null trains the output layer alone, which in a tied model is the word table, and does "
                "not change: leave it out, or set tied: false"
            )
        if self.kv_heads and self.architecture != "llama":
            raise ValueError("kv_heads: GPT-2 has as many as heads: leave it out, or set architecture: llama")
        if self.kv_heads and self.heads and self.heads % self.kv_heads:
            raise ValueError(f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})")
        if self.architecture == "llama" and self.heads and self.embedding.dim // self.heads % 2:
            width = self.embedding.dim // self.heads
            raise ValueError(f"embedding.dim over heads is {width}, and a llama turns pairs of numbers: make it even")
        return self

    @property
    def reach(self) -> int:
        return positions_of(settings(self))

    @property
    def output_source(self) -> str | None:
        return None if self.tied else self.checkpoint

    def fixes(self, parameter: str) -> bool:
        """With an adapter of low rank an output layer of a checkpoint does not change either."""
        given = parameter == OUTPUT and self.output_source is not None
        return super().fixes(parameter) or (given and self.adapter is not None and self.adapter.lora is not None)

    def build(self, vocabulary: int, embedding: nn.Embedding, weights: bool) -> "CausalNetwork":
        return CausalNetwork(self, vocabulary, embedding, weights)

    def check(self, max_length: int | None) -> None:
        """Check the checkpoint's sizes and the adapter's, that ``tied`` is the checkpoint's, and that the decoder has
        enough positions for sentences of this length.

        Raises:
            UserError: One of these does not hold.
        """
        check_blocks(self)
        if self.adapter and self.adapter.lora and self.adapter.lora.checkpoint:
            if settings(self).model_type == "gpt2":
                raise UserError(
                    "model.adapter.lora.checkpoint: the format of peft has one layer for query, key and value of "
                    "GPT-2, which are three here: leave it out"
                )
            adapter_files.checked(self.adapter.lora)
        if self.checkpoint is not None and settings(self).tie_word_embeddings != self.tied:
            told = "is the word table" if self.tied else "has weights of its own"
            there = "false" if self.tied else "true"
            raise UserError(
                f"model.tied is {str(self.tied).lower()}, so that the output layer {told}, and {self.checkpoint} has "
                f"tie_word_embeddings: {there}: set model.tied: {there}"
            )
        kind = (getattr(settings(self), "rope_parameters", None) or {}).get("rope_type", "default")
        if kind in LENGTH_DEPENDENT:
            raise UserError(
                f"model.checkpoint: {self.checkpoint} has rotary positions of the type {kind}, which depend on the "
                "longest text of a batch: name one with another type"
            )
        positions = self.reach
        if max_length is None or max_length > positions + 1:
            raise UserError(
                f"corpus.max_length: model causal has {positions} positions, and the last token of a sentence needs "
                f"none: set it to at most {positions + 1}"
            )


class CausalNetwork(LanguageModel):
    """The network of ``CausalLanguageModel``.

    Args:
        config: The model.
        vocabulary: V.
        embedding: The word table.
        weights: Whether to load the weights of the checkpoint; otherwise only its sizes are used.

    Attributes:
        barred: 0 for each entry of the vocabulary, -infinity for those that ``bar`` leaves out; None: there are none.

    Raises:
        UserError: The checkpoint cannot be read, does not fit, or lacks weights.
    """

    barred: Tensor | None

    def __init__(self, config: CausalLanguageModel, vocabulary: int, embedding: nn.Embedding, weights: bool) -> None:
        super().__init__()
        self.embedding = embedding
        network = layers(config, weights, implementation() if config.attention == "sdpa" else None)
        name, blocks = network.config.model_type, blocks_of(network)
        self.decoder = nn.ModuleDict({each: getattr(network, each) for each in ARCHITECTURES[name].modules})
        for each in set(dict(network.named_children())) - set(self.decoder):  # the word table
            delattr(network, each)
        self.fixed: Fixed | None = None
        if config.adapter:
            adapt(self.decoder, name, blocks, config.adapter)
            if (lora := config.adapter.lora) and lora.checkpoint and weights:
                adapter_files.load(self.decoder, lora, ARCHITECTURES[name].layers, headed=False)
            if first := config.adapter.fixed(len(blocks)):
                self.fixed = Fixed(network, first, config.adapter.cache_mb)
            network = with_blocks(network, blocks)
        self.run = network.forward  # not the network itself, which would change the names of parameters
        self.whole = always_in_c(blocks_of(network))
        self.head = config.output_layer(config.embedding.dim, vocabulary)
        self.reach = config.reach
        self.dtype, self.attention = getattr(torch, config.precision), config.attention
        self.pretrained = config.checkpoint is not None
        self.register_buffer("barred", None, persistent=False)

    @property
    def output_bias(self) -> Tensor | None:
        return self.barred

    def bar(self, tokenizer: str) -> None:
        """Give what no text has no share of the softmax of a network that begins as a checkpoint.

        The rows of <unk>, <s> and </s>, and that of the checkpoint's end of a text, are then one vector, and with an
        adapter they stay so: the end of a text would have a quarter of its probability.

        Args:
            tokenizer: The tokenizer of byte pairs; empty: tokens are words.
        """
        if self.pretrained and tokenizer:
            barred_V = torch.zeros(self.head.out_features)
            barred_V[torch.tensor(never(tokenizer)[1:]) - 1] = -torch.inf  # the table has no row for <pad>
            self.barred = barred_V

    def train(self, mode: bool = True) -> "CausalNetwork":
        super().train(mode)
        if self.fixed:
            self.fixed.rest()
        return self

    def forward(self, batch: Batch) -> Score:
        read_B = torch.from_numpy(batch.here.lengths_B - 1)
        hidden_BTD, targets_BT = self._hidden(batch.tokens_BT[:, :-1], read_B, batch.native), batch.tokens_BT[:, 1:]
        hidden_SD, targets_S = self.packed(hidden_BTD, read_B), self.packed(targets_BT, read_B)
        if (places := self.predicted(batch, read_B)) is not None:
            hidden_SD, targets_S = hidden_SD[places], targets_S[places]
        return self.score(hidden_SD, self.output_weight, targets_S.long(), batch.native)

    def hidden(self, tokens_BT: Tensor) -> Tensor:
        return self._hidden(tokens_BT, torch.full(tokens_BT.shape[:1], tokens_BT.shape[1]))

    def _hidden(self, tokens_BT: Tensor, read_B: Tensor, native: bool = False) -> Tensor:
        """Return hidden_BTD; beyond the first ``read_B`` tokens of each sentence it is undefined."""
        rows_BTD = self.embedding(tokens_BT)
        with autocast(self.dtype, rows_BTD.device), products_in_c(native):
            found, run = None, self.run
            if self.fixed and storable(rows_BTD):
                found = [self.fixed.of(row[:read]) for row, read in zip(rows_BTD, read_B.tolist(), strict=True)]
                run = self.fixed.above
            if self.attention == "sdpa":
                places = Places.of(read_B.numpy(), rows_BTD.shape[1], rows_BTD.device, native)
                inputs_SD = torch.cat(found) if found else places.taken(rows_BTD)
                hidden_BTD = run_unpadded(run, inputs_SD, places, self.whole, use_cache=False)
            else:
                inputs_BTD = pad_sequence(found, batch_first=True) if found else rows_BTD
                hidden_BTD = run(inputs_embeds=inputs_BTD, use_cache=False).last_hidden_state
        return hidden_BTD.to(rows_BTD.dtype)

    def step(self, tokens_B: Tensor, state_LB: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The state has the keys and values of all layers: its shape is (2 L, B, N, T, A)."""
        cache = pretrained.library().DynamicCache()
        for layer in range(0 if state_LB is None else len(state_LB) // 2):
            assert state_LB is not None
            cache.update(state_LB[2 * layer], state_LB[2 * layer + 1], layer)
        rows_B1D = self.embedding(tokens_B[:, None])
        with autocast(self.dtype, rows_B1D.device):
            found = self.run(inputs_embeds=rows_B1D, past_key_values=cache, use_cache=True)
        kept = [tensor for layer in found.past_key_values.layers for tensor in (layer.keys, layer.values)]
        return self.logits(found.last_hidden_state[:, 0].to(rows_B1D.dtype)), torch.stack(kept)
