"""What a person can write about a client's training."""

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import Discriminator, Field, PositiveInt, Tag

from fedtext.schema import Strict, choice


class SGD(Strict):
    """Stochastic gradient descent, the papers' choice. Its state is rebuilt each round unless it persists with the
    client's private state."""

    name: Literal["sgd"] = "sgd"
    lr: float = Field(0.01, gt=0)
    embedding_lr: float | None = Field(None, ge=0, description="for the embedding table alone; null: the same lr")
    momentum: float = Field(0.9, ge=0, lt=1)
    persist: bool = False


class Adam(Strict):
    """Adam with torch's betas; its state likewise."""

    name: Literal["adam"] = "adam"
    lr: float = Field(0.001, gt=0)
    embedding_lr: float | None = Field(None, ge=0, description="for the embedding table alone; null: the same lr")
    persist: bool = False


if TYPE_CHECKING:
    OptimizerField: TypeAlias = SGD | Adam
else:
    OptimizerField = choice(SGD, Adam, default="sgd")


class Steps(Strict):
    """A batch size that follows from a client's texts, so that many clients with little make about as many steps
    as a few with much (RR-LDP paper, section 5.1)."""

    steps: int = Field(ge=1, description="batches of an epoch at most, each of texts / steps texts, rounded up")


BatchSize: TypeAlias = Annotated[  # told apart beforehand, so that an error is about what was written
    Annotated[PositiveInt, Tag("number")] | Annotated[Steps, Tag("by steps")],
    Discriminator(lambda value: "by steps" if isinstance(value, dict | Steps) else "number"),
]


class Training(Strict):
    """What a client does with the model it receives."""

    rounds: int = Field(50, ge=1)
    local_epochs: int = Field(2, ge=1)
    batch_size: BatchSize = Field(8, description="texts; or {steps: 5}, at most so many batches an epoch")
    optimizer: OptimizerField = SGD()
    engine: Literal["auto", "reference", "cells", "triton"] = Field(
        "auto",
        description="how recurrent layers compute: reference is torch's own, cells ours (the same sums in another "
        "order; model.dropout draws other masks), triton is cells with all steps of a layer in one kernel, for GPUs; "
        "auto: cells",
    )
    stack: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto",
        description="clients trained side by side by the engines cells and triton, blocks of consecutive ids; the last "
        "bits of the result depend on it; auto: as many as leave work for 16 actors",
    )

    def batch(self, texts: int) -> int:
        """How many of so many texts a batch has."""
        return -(-texts // self.batch_size.steps) if isinstance(self.batch_size, Steps) else self.batch_size
