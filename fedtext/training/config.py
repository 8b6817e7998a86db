"""The keys of a client's training."""

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import Discriminator, Field, PositiveInt, Tag

from fedtext.schema import Strict, choice


class Stepped(Strict):
    """The keys of all optimizers."""

    embedding_lr: float | None = Field(None, ge=0, description="for the embedding table alone; null: the same lr")
    schedule: Literal["constant", "linear"] = Field(
        "constant",
        description="linear: from lr down to 0 over a client's steps of each round; constant where Ap is evaluated",
    )
    clip_norm: float | None = Field(
        None, gt=0, description="of each batch's gradient, over all parameters; null: as it is"
    )
    persist: bool = Field(False, description="keep the optimizer's state with the client between rounds")

    def slope(self, step: int, steps: int) -> float:
        """Return the factor of the learning rate at a step, counted from 0, of ``steps`` steps."""
        return 1 - step / steps if self.schedule == "linear" else 1.0


class SGD(Stepped):
    """Stochastic gradient descent with momentum.

    The papers' choice. Its state is rebuilt each round unless it persists with the
    client's private state."""

    name: Literal["sgd"] = "sgd"
    lr: float = Field(0.01, gt=0, description="learning rate")
    momentum: float = Field(0.9, ge=0, lt=1, description="factor of the previous steps' direction")


class Adam(Stepped):
    """Adam with torch's betas; its state is rebuilt or persists as that of SGD."""

    name: Literal["adam"] = "adam"
    lr: float = Field(0.001, gt=0, description="learning rate")


class AdamW(Adam):
    """Adam with decoupled weight decay.

    Adam, and a share of each weight taken off it in each step. Of the embedding it decays the rows of the words in a
    client's texts, in every step whether the batch has them or not; others it cannot move (FedeVocab paper, appendix
    A.1, whose code has lr 5e-5, schedule linear, clip_norm 15)."""

    name: Literal["adamw"] = "adamw"  # type: ignore[assignment]
    lr: float = Field(5e-5, gt=0, description="learning rate")
    weight_decay: float = Field(0.01, ge=0, description="times lr: the share that a step takes off each weight")


if TYPE_CHECKING:
    OptimizerField: TypeAlias = SGD | Adam
else:
    OptimizerField = choice(SGD, Adam, AdamW, default="sgd")


class Steps(Strict):
    """A batch size that follows from a client's number of texts.

    A batch size that follows from a client's texts, so that many clients with little make about as many steps
    as a few with much (RR-LDP paper, section 5.1)."""

    steps: int = Field(ge=1, description="batches of an epoch at most, each of texts / steps texts, rounded up")


BatchSize: TypeAlias = Annotated[  # told apart beforehand, so that an error is about what was written
    Annotated[PositiveInt, Tag("number")] | Annotated[Steps, Tag("by steps")],
    Discriminator(lambda value: "by steps" if isinstance(value, dict | Steps) else "number"),
]


class Training(Strict):
    """How a client trains the model that it receives."""

    rounds: int = Field(50, ge=1, description="of communication between clients and server")
    local_epochs: int = Field(2, ge=1, description="passes of a client over its train texts in a round")
    batch_size: BatchSize = Field(8, description="texts; or {steps: 5}, at most 5 batches an epoch")
    optimizer: OptimizerField = Field(SGD(), description="of the clients")
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
    tf32: bool = Field(
        False,
        description="on a GPU float32 products, of training, evaluation and audits, read the first 10 bits of each "
        "mantissa, so that what they give may differ from a CPU's after three digits",
    )

    def batch(self, texts: int) -> int:
        """Return the number of texts in a batch of a client with ``texts`` texts."""
        return -(-texts // self.batch_size.steps) if isinstance(self.batch_size, Steps) else self.batch_size
