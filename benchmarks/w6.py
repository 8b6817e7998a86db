"""W6 and W6L of gpu.py: LoRA on transformers with random weights, and plain loops with transformers and peft.

W6: MiniLM's sizes (6 layers of 384), 16 texts as long as SST-2's phrases (about 12 pieces, at most 48). W6L: those of
BERT-base (12 layers of 768), 32 texts as long as AG News's cut at 64 (about 50 pieces). LoRA of rank 8 on queries and
values, dropout 0.1, AdamW, 30,522 pieces. ``plain`` pads each batch to its longest text; it needs peft.
``tf32`` and ``bfloat16`` are the precisions of products.

Legend: B batch, T time, D width.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks import synthetic
from benchmarks.local_loop import Run, Task, engine, full_batches
from fedtext.corpora.types import ClientData, TokenSet
from fedtext.methods import FedAvg
from fedtext.models.transformer import TransformerClassifier
from fedtext.runtime.precision import products
from fedtext.training.config import AdamW

PIECES, TEXTS = 30_522, 640
PRECISIONS = ("float32", "tf32", "bfloat16")


@dataclass(frozen=True)
class Shape:
    """Sizes of a workload.

    Attributes:
        layers, dim, heads: Sizes of the encoder, whose inner layers are four times as wide.
        batch: Texts of a batch.
        typical, longest: Median and largest number of pieces of a text.
        dropout: All dropout rates.
    """

    layers: int
    dim: int
    heads: int
    batch: int
    typical: int
    longest: int
    dropout: float = 0.1

    def model(self, precision: str) -> TransformerClassifier:
        return TransformerClassifier.model_validate(
            {
                "architecture": "bert",
                "layers": self.layers,
                "heads": self.heads,
                "intermediate": 4 * self.dim,
                "embedding": {"dim": self.dim},
                "dropout": self.dropout,
                "precision": precision,
                "adapter": {"lora": {"rank": 8, "alpha": 16}},
            }
        )

    def client(self, texts: int) -> ClientData:
        rng = np.random.default_rng(0)
        lengths = np.clip(rng.lognormal(np.log(self.typical), 0.6, texts).astype(np.int64), 3, self.longest)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        drawn = rng.integers(synthetic.RESERVED, PIECES, offsets[-1]).astype(np.int32)
        return synthetic.holding(0, TokenSet(drawn, offsets, rng.integers(0, 2, texts)))


SHAPES = {"W6": Shape(6, 384, 12, 16, 11, 48), "W6L": Shape(12, 768, 12, 32, 50, 64)}


class Plain(nn.Module):
    """BERT of transformers with LoRA of peft, the mean over a text's pieces, and an output layer."""

    def __init__(self, shape: Shape) -> None:
        from peft import LoraConfig, get_peft_model
        from transformers import BertConfig, BertModel

        super().__init__()
        config = BertConfig(
            vocab_size=PIECES,
            hidden_size=shape.dim,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            intermediate_size=4 * shape.dim,
            hidden_dropout_prob=shape.dropout,
            attention_probs_dropout_prob=shape.dropout,
        )
        lora = LoraConfig(r=8, lora_alpha=16, target_modules=["query", "value"], lora_dropout=0.0)
        self.encoder = get_peft_model(BertModel(config, add_pooling_layer=False), lora)
        self.head = nn.Linear(shape.dim, 2)

    def forward(self, tokens_BT: Tensor, mask_BT: Tensor) -> Tensor:
        hidden_BTD = self.encoder(input_ids=tokens_BT, attention_mask=mask_BT).last_hidden_state
        return self.head((hidden_BTD * mask_BT[..., None]).sum(1) / mask_BT.sum(1, keepdim=True))


def plain(shape: Shape, client: ClientData, device: torch.device, precision: str) -> Run:
    """Return the loop of transformers and peft."""
    torch.manual_seed(0)
    network = Plain(shape).to(device).train()
    moving = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(moving, lr=1e-3, weight_decay=0.0, fused=True)
    ids, offsets = torch.from_numpy(client.rows_R[client.train.tokens_T]).long(), client.train.offsets
    texts = [ids[start:stop] for start, stop in pairwise(offsets)]
    labels_N = torch.from_numpy(client.train.labels_N)
    order = full_batches(len(texts), shape.batch, 0)

    def run(steps: int) -> None:
        for _ in range(steps):
            chosen_B = next(order)
            tokens_BT = nn.utils.rnn.pad_sequence([texts[i] for i in chosen_B], batch_first=True)
            mask_BT = (tokens_BT != 0).long()
            optimizer.zero_grad()
            with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
                logits_BC = network(tokens_BT.to(device), mask_BT.to(device))
            cross_entropy(logits_BC.float(), labels_N[chosen_B].to(device)).backward()
            optimizer.step()

    return with_precision(run, precision)


def ours(shape: Shape, client: ClientData, device: torch.device, precision: str, kind: str = "reference") -> Run:
    """Return fedtext's loop.

    Args:
        shape: The workload.
        client: Its texts.
        device: Where it trains.
        precision: Of the products.
        kind: The engine.
    """
    model = shape.model("bfloat16" if precision == "bfloat16" else "float32")
    task = Task(FedAvg(), model, AdamW(lr=1e-3, weight_decay=0.0), shape.batch, ())
    return with_precision(engine(task, kind, [client], device), precision)


def with_precision(run: Run, precision: str) -> Run:
    """Return a loop whose products are in TF32 if that is the precision."""

    def inside(steps: int) -> None:
        with products(precision == "tf32"):
            run(steps)

    return inside


def variants(name: str, device: torch.device) -> dict[str, Run]:
    """Return a workload's loops: the plain one if peft is there, and ours, in each precision."""
    shape = SHAPES[name]
    client = shape.client(TEXTS)
    makers: dict[str, Callable[..., Run]] = {"plain": plain} if find_spec("peft") else {}
    makers["ours"] = ours
    return {f"{kind}, {p}": make(shape, client, device, p) for kind, make in makers.items() for p in PRECISIONS}
