"""W7 of adapters.py: LoRA on a Llama with random weights, and a plain loop with transformers and peft.

Six of the thirty layers of SmolLM2-135M (576 wide, nine heads of queries for three of keys and values, gated layers of
1,536), 8,000 tokens, and 16 sentences of about 20 tokens, at most 64. LoRA of rank 8 on queries and values, AdamW.
``plain`` pads each batch to its longest sentence; it needs peft.

Legend: B batch, T time.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.func import functional_call

from benchmarks.local_loop import Run, full_batches
from fedtext.corpora.types import TokenSet
from fedtext.layout import TABLE, Layout
from fedtext.models.causal import CausalLanguageModel
from fedtext.models.parts import Parts, whole
from fedtext.training.batches import Assembler, Texts
from fedtext.training.config import AdamW
from fedtext.training.optimizer import LocalOptimizer
from fedtext.training.stack import Stack, Workspace

SENTENCES = 640
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Shape:
    """Sizes of a workload.

    Attributes:
        layers, dim, heads, kv_heads, intermediate, vocabulary: Sizes of the decoder.
        batch: Sentences of a batch.
        typical, longest: Median and largest number of tokens of a sentence.
        dropout: Dropout of attention.
    """

    layers: int
    dim: int
    heads: int
    kv_heads: int
    intermediate: int
    vocabulary: int
    batch: int
    typical: int
    longest: int
    dropout: float = 0.1

    def model(self, precision: str) -> CausalLanguageModel:
        return CausalLanguageModel.model_validate(
            {
                "architecture": "llama",
                "layers": self.layers,
                "heads": self.heads,
                "kv_heads": self.kv_heads,
                "intermediate": self.intermediate,
                "positions": self.longest,
                "embedding": {"dim": self.dim},
                "dropout": self.dropout,
                "precision": precision,
                "adapter": {"lora": {"rank": 8, "alpha": 16}},
            }
        )

    def client(self, sentences: int) -> TokenSet:
        """Return sentences of tokens that are drawn evenly, as rows of a table without padding."""
        rng = np.random.default_rng(0)
        lengths = np.clip(rng.lognormal(np.log(self.typical), 0.5, sentences).astype(np.int64), 3, self.longest)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        drawn = rng.integers(0, self.vocabulary, offsets[-1]).astype(np.int32)
        return TokenSet(drawn, offsets, np.zeros(sentences, np.int64))


SHAPE = Shape(6, 576, 9, 3, 1_536, 8_000, 16, 20, 64)


def plain_network(shape: Shape) -> Any:
    """Return LlamaForCausalLM with LoRA of peft."""
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.dim,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        intermediate_size=shape.intermediate,
        max_position_embeddings=shape.longest,
        attention_dropout=shape.dropout,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
    )
    lora = LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"], lora_dropout=0.0, task_type="CAUSAL_LM")
    return get_peft_model(LlamaForCausalLM(config), lora)


def plain(shape: Shape, client: TokenSet, precision: str) -> Run:
    """Return the loop of transformers and peft."""
    torch.manual_seed(0)
    network = plain_network(shape).train()
    moving = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(moving, lr=1e-3, weight_decay=0.0, fused=True)
    tokens_T = torch.from_numpy(client.tokens_T).long()
    sentences = [tokens_T[start:stop] for start, stop in pairwise(client.offsets)]
    order = full_batches(len(sentences), shape.batch, 0)

    def run(steps: int) -> None:
        for _ in range(steps):
            chosen = [sentences[i] for i in next(order)]
            tokens_BT = nn.utils.rnn.pad_sequence(chosen, batch_first=True)
            there_BT = nn.utils.rnn.pad_sequence([torch.ones_like(each) for each in chosen], batch_first=True)
            labels_BT = tokens_BT.masked_fill(there_BT == 0, -100)
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
                loss = network(input_ids=tokens_BT, attention_mask=there_BT, labels=labels_BT).loss
            loss.backward()
            optimizer.step()

    return run


def ours(shape: Shape, client: TokenSet, precision: str, engine: str = "reference") -> Run:
    """Return fedtext's loop.

    Args:
        shape: The workload.
        client: Its sentences.
        precision: Of the products.
        engine: The engine.
    """
    torch.manual_seed(0)
    model = shape.model(precision)
    network = whole(Parts(model, shape.vocabulary)).train()
    drawn = {name: parameter.detach() for name, parameter in network.named_parameters()}
    drawn[TABLE] = torch.randn(shape.vocabulary, shape.dim) / 50
    layout = Layout({name: tuple(tensor.shape) for name, tensor in drawn.items()})
    stack, one = Stack(layout, [shape.vocabulary], Workspace(CPU)), range(1)
    for name, tensor in stack.tensors(0).items():
        tensor.copy_(drawn[name])
    moving = [name for name in layout.shapes if not model.fixes(name)]
    kind = AdamW(lr=1e-3, weight_decay=0.0)
    optimizer = LocalOptimizer(kind, stack, kind.lr, False, moving, native=engine == "native")
    assembler = Assembler(None, cut=False, device=CPU, engine=engine, ahead=True)
    texts, order = Texts(client, shape.vocabulary), full_batches(len(client), shape.batch, 0)

    def run(steps: int) -> None:
        for _ in range(steps):
            batch, _ = assembler.single(texts, next(order))
            parameters = optimizer.begin(one, [])
            optimizer.step(one, functional_call(network, parameters, (batch,)).loss)
        optimizer.finish()

    return run
