"""The keys of adapters: a few parameters that are trained beside weights that stay as they are (LoRA, Hu et al. 2022).

The layers are in models/adapted.py.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, field_validator, model_validator

from fedtext.errors import UserError
from fedtext.schema import Strict
from fedtext.text.pretrained import Checkpoint

A, B, RESIDUAL = "lora_A", "lora_B", "lora_residual"
Module = Literal["query", "key", "value", "output", "gate", "up", "down"]


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
        "feed-forward part, and its gate, if it has one (llama)",
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
    lr_ratio: float = Field(
        1.0,
        gt=0,
        description="learning rate of B, divided by training.optimizer.lr, which is that of A and of the output layer "
        "(LoRA+, Hayou et al. 2024)",
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

    def lr_scale(self, parameter: str) -> float:
        """Return the factor of ``training.optimizer.lr`` with which clients train this parameter."""
        return self.lora.lr_ratio if self.lora is not None and parameter.endswith(f".{B}") else 1.0

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
