"""Adapters: a few parameters that are trained beside weights that stay as they are (Hu et al. 2022, LoRA).

An adapted network of layers has no other parameters than those of its adapters: its weights are buffers, which neither
move nor leave the process that has built them from the checkpoint or the seed. A linear layer y = W x + b becomes

    y = W x + b + s (B A x + R x),    s = alpha / rank

with factors A of shape (rank, in) and B of shape (out, rank). R, of the shape of W, is there with ``residual`` only: it
is the server's, which puts into it what the mean of the factors lacks (``server.aggregation: lora``).
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, PositiveInt, field_validator, model_validator
from torch import Tensor, nn
from torch.nn.functional import linear

from fedtext.errors import UserError
from fedtext.schema import Strict
from fedtext.text.pretrained import Checkpoint

A, B, RESIDUAL = "lora_A", "lora_B", "lora_residual"
Module = Literal["query", "key", "value", "output", "up", "down"]
# The linear layers of each architecture, as the last parts of their names.
_MODULES: dict[str, dict[str, str]] = {
    "bert": {
        "query": "attention.self.query",
        "key": "attention.self.key",
        "value": "attention.self.value",
        "output": "attention.output.dense",
        "up": "intermediate.dense",
        "down": "output.dense",
    },
    "distilbert": {
        "query": "attention.q_lin",
        "key": "attention.k_lin",
        "value": "attention.v_lin",
        "output": "attention.out_lin",
        "up": "ffn.lin1",
        "down": "ffn.lin2",
    },
    "gpt2": {
        "query": "attn.c_attn.query",
        "key": "attn.c_attn.key",
        "value": "attn.c_attn.value",
        "output": "attn.c_proj",
        "up": "mlp.c_fc",
        "down": "mlp.c_proj",
    },
}


class LoRA(Strict):
    """Low-rank adapters (Hu et al. 2022): W + (alpha / rank) B A in place of W, of which A and B are trained alone."""

    rank: int = Field(8, ge=1, description="rank of the product of both factors")
    ranks: dict[PositiveInt, Annotated[float, Field(gt=0, le=1)]] | None = Field(
        None,
        description="clients of unequal ranks, in the place of rank: the share of the clients by rank, as in {2: 0.5, "
        "8: 0.5}; the server has the largest rank, and who has which is a draw; null: all have rank",
    )
    alpha: float = Field(
        16.0, gt=0, description="alpha: the product is multiplied by alpha / rank; of unequal ranks by the largest"
    )
    modules: tuple[Module, ...] = Field(
        ("query", "value"),
        min_length=1,
        description="the adapted layers of each block: query, key, value, output of the attention, up and down of the "
        "feed-forward part",
    )
    blocks: PositiveInt | None = Field(
        None,
        description="number of blocks that are adapted, the last ones; those before them have no dropout, and on a CPU "
        "their outputs are computed once for each text; null: all",
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout on the input of the factors")
    train: Literal["both", "b"] = Field(
        "both", description="the factors that are trained; b: A keeps its initial values (FFA-LoRA, Sun et al. 2024)"
    )
    share: Literal["both", "a"] = Field(
        "both",
        description="the factors that clients send; a: each client keeps its own B (FedSA-LoRA, Guo et al. 2025)",
    )
    checkpoint: Checkpoint | None = Field(
        None,
        description="initial values of the factors: a folder in the format of the package peft, with the same rank, "
        "alpha and layers; null: A is drawn, and B is 0",
    )
    residual: bool = Field(
        False,
        description="keep a matrix of full rank beside the factors, for the residual of server.aggregation: lora with "
        "factors: exact; the server sends it",
    )

    @model_validator(mode="before")
    @classmethod
    def _largest(cls, value: Any) -> Any:
        """Set rank to the largest of ``ranks``. A single one is the rank of all."""
        ranks = value.get("ranks") if isinstance(value, dict) else None
        if not isinstance(ranks, dict) or not (numbers := [rank for rank in ranks if str(rank).isdecimal()]):
            return value  # if it is wrong, the field says so
        largest = max(map(int, numbers))
        same = value.get("rank", largest) == largest  # otherwise it is refused
        alone = {"ranks": None} if list(ranks.values()) == [1] and same else {}
        return {"rank": largest} | value | alone

    @field_validator("ranks")
    @classmethod
    def _whole(cls, value: dict[int, float] | None) -> dict[int, float] | None:
        if value is not None and abs(sum(value.values()) - 1) > 1e-6:
            raise ValueError(f"the shares add up to {sum(value.values()):g}: they are to add up to 1")
        return value

    @model_validator(mode="after")
    def _in_its_place(self) -> "LoRA":
        if self.ranks and self.rank != max(self.ranks):
            raise ValueError(
                f"ranks: the largest is {max(self.ranks)}, and rank, in the place of which they are, is {self.rank}: "
                f"leave rank out, or set it to {max(self.ranks)}"
            )
        return self

    @field_validator("modules")
    @classmethod
    def _distinct(cls, value: tuple[Module, ...]) -> tuple[Module, ...]:
        if len(set(value)) < len(value):
            raise ValueError("name each layer once")
        return value


class Adapter(Strict):
    """The trained parameters of an encoder in place of its weights. The table of word vectors is not trained either."""

    lora: LoRA | None = Field(LoRA(), description="adapters of low rank; null: none, the output layer alone is trained")
    cache_mb: float = Field(
        256.0,
        ge=0,
        description="MB of each encoder in a process for the outputs of blocks before the adapted ones; results do not "
        "depend on it",
    )

    def fixed(self, blocks: int) -> int:
        """Return how many blocks, the first ones, never change.

        Args:
            blocks: Number of all blocks.

        Raises:
            UserError: There are fewer than are to be adapted.
        """
        adapted = 0 if self.lora is None else self.lora.blocks or blocks
        if adapted > blocks:
            raise UserError(
                f"model.adapter.lora.blocks is {adapted}, and the model has {blocks}: set it to at most that"
            )
        return blocks - adapted

    def fixes(self, parameter: str) -> bool:
        """Whether clients neither move nor send this parameter: the server alone may change it."""
        return parameter.endswith(f".{RESIDUAL}")

    @property
    def parted(self) -> bool:
        """Whether clients keep a factor."""
        return self.lora is not None and self.lora.share == "a"

    def keeps(self, parameter: str) -> bool:
        """Whether this parameter stays with each client."""
        return self.parted and parameter.endswith(f".{B}")

    @property
    def ranks(self) -> Mapping[int, float]:
        """The shares of clients by rank, if these are unequal; otherwise empty."""
        return (self.lora.ranks if self.lora else None) or {}

    def rank_axis(self, parameter: str) -> int | None:
        """Return the axis of a parameter whose length is the rank; None: there is none."""
        return 0 if parameter.endswith(f".{A}") else 1 if parameter.endswith(f".{B}") else None


class LoRALinear(nn.Module):
    """A linear layer with an adapter. Only the factors, and the residual, are parameters.

    Args:
        base: The layer, whose weights become buffers.
        config: The keys.
    """

    def __init__(self, base: nn.Linear, config: LoRA) -> None:
        super().__init__()
        self.weight: Tensor
        self.bias: Tensor | None
        self.register_buffer("weight", base.weight.detach())
        self.register_buffer("bias", None if base.bias is None else base.bias.detach())
        self.scale, self.dropout = config.alpha / config.rank, nn.Dropout(config.dropout)
        first = torch.empty(config.rank, base.in_features)
        nn.init.kaiming_uniform_(first, a=math.sqrt(5))
        self.lora_A: Tensor
        if config.train == "both":
            self.lora_A = nn.Parameter(first)
        else:
            self.register_buffer(A, first)
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, config.rank))
        self.lora_residual = nn.Parameter(torch.zeros_like(base.weight)) if config.residual else None

    def forward(self, inputs: Tensor) -> Tensor:
        beside = linear(linear(self.dropout(inputs), self.lora_A), self.lora_B)
        if self.lora_residual is not None:
            beside = beside + linear(inputs, self.lora_residual)
        return linear(inputs, self.weight, self.bias) + self.scale * beside


def adapt(encoder: nn.Module, architecture: str, blocks: nn.ModuleList, config: Adapter) -> None:
    """Replace the layers of an encoder that are adapted, and turn all of its own parameters into buffers.

    Args:
        encoder: The encoder.
        architecture: Name of its architecture: bert, distilbert or gpt2.
        blocks: Its blocks.
        config: The keys.

    Raises:
        UserError: It has fewer blocks than are to be adapted.
    """
    _straighten(encoder)
    lora = config.lora
    for block in list(blocks)[config.fixed(len(blocks)) :]:
        for path, module in list(block.named_modules()):
            if lora and _kind(path, architecture) in lora.modules:
                parent, _, leaf = path.rpartition(".")
                assert isinstance(module, nn.Linear)
                setattr(block.get_submodule(parent), leaf, LoRALinear(module, lora))
    for module in encoder.modules():
        if isinstance(module, LoRALinear):
            continue
        for name, parameter in list(module._parameters.items()):
            del module._parameters[name]
            module.register_buffer(name, None if parameter is None else parameter.detach())


class Joined(nn.Module):
    """Linear layers of the same input, whose outputs are laid end to end: the query, key and value of GPT-2.

    Args:
        weight: Their weights, of shape (in, 3 out).
        bias: Their biases, of shape (3 out,).
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        parts = zip(weight.chunk(3, 1), bias.chunk(3), strict=True)
        self.query, self.key, self.value = (_linear(*part) for part in parts)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.cat([self.query(inputs), self.key(inputs), self.value(inputs)], -1)


def _straighten(encoder: nn.Module) -> None:
    """Replace GPT-2's layers, whose weights are transposed, by linear ones. What was one layer of query, key and value
    is three of them afterwards."""
    for path, module in list(encoder.named_modules()):
        if type(module).__name__ != "Conv1D":
            continue
        parent, _, leaf = path.rpartition(".")
        weight, bias = module.weight, module.bias
        assert isinstance(weight, Tensor)
        assert isinstance(bias, Tensor)
        setattr(encoder.get_submodule(parent), leaf, (Joined if leaf == "c_attn" else _linear)(weight, bias))


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    """Make a linear layer of a weight of shape (in, out)."""
    made = nn.Linear(weight.shape[0], weight.shape[1], device="meta")
    made.weight, made.bias = nn.Parameter(weight.detach().t().contiguous()), nn.Parameter(bias.detach().clone())
    return made


def _kind(path: str, architecture: str) -> str:
    """Return the key of a layer by its path; empty if it has none. The longest name counts: the attention's output
    ends like the block's."""
    found = [(len(name), key) for key, name in _MODULES[architecture].items() if f".{path}".endswith(f".{name}")]
    return max(found)[1] if found else ""
