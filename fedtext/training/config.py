"""The keys of a client's training."""

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import Field, PositiveInt, model_validator

from fedtext.accounting.entry import DELTA
from fedtext.schema import FORMS, KEYS, VALUE, Strict, choice

BETAS, EPSILON = (0.9, 0.999), 1e-8  # of Adam; torch's own


class Stepped(Strict):
    """The keys of all optimizers."""

    embedding_lr: float | None = Field(
        None, ge=0, description="learning rate of the embedding table; null: the same as lr"
    )
    schedule: Literal["constant", "linear"] = Field(
        "constant",
        description="schedule of the learning rate; linear: from lr to 0 over a client's steps of each round, but "
        "constant for Ap",
    )
    clip_norm: float | None = Field(
        None, gt=0, description="largest L2 norm of a batch's gradient, over all parameters; null: no clipping"
    )
    persist: bool = Field(False, description="whether to keep the optimizer's state on the client between rounds")

    def slope(self, step: int, steps: int) -> float:
        """Return the factor of the learning rate at a step, counted from 0, of ``steps`` steps."""
        return 1 - step / steps if self.schedule == "linear" else 1.0


class SGD(Stepped):
    """Stochastic gradient descent with momentum, the papers' choice.

    Its state begins at 0 in each round, unless it persists with the client's private state.
    """

    name: Literal["sgd"] = "sgd"
    lr: float = Field(0.01, gt=0, description="learning rate")
    momentum: float = Field(0.9, ge=0, lt=1, description="factor of the previous steps' direction")


class Adam(Stepped):
    """Adam with torch's betas. Its state begins at 0 or persists as that of SGD."""

    name: Literal["adam"] = "adam"
    lr: float = Field(0.001, gt=0, description="learning rate")


class AdamW(Adam):
    """Adam with decoupled weight decay.

    Each step reduces each weight by the share lr * weight_decay. In the embedding it decays the rows of all words in a
    client's texts, whether the batch has them or not, and no others (FedeVocab paper, appendix A.1, whose code has lr
    5e-5, schedule linear, clip_norm 15).
    """

    name: Literal["adamw"] = "adamw"  # type: ignore[assignment]
    lr: float = Field(5e-5, gt=0, description="learning rate")
    weight_decay: float = Field(0.01, ge=0, description="share by which a step reduces each weight, divided by lr")


def decays(optimizer: SGD | Adam) -> bool:
    """Return whether an optimizer moves parameters without a gradient, by weight decay."""
    return isinstance(optimizer, AdamW) and optimizer.weight_decay > 0


if TYPE_CHECKING:
    OptimizerField: TypeAlias = SGD | Adam
else:
    OptimizerField = choice(SGD, Adam, AdamW, default="sgd")


Engine: TypeAlias = Literal["reference", "cells", "triton", "native"]


class Steps(Strict):
    """A batch size that depends on a client's number of texts.

    Clients with few and with many texts then make about the same number of steps (RR-LDP paper, section 5.1).
    """

    steps: int = Field(
        ge=1, description="largest number of batches in an epoch, each of texts / steps texts, rounded up"
    )


BatchSize: TypeAlias = Annotated[Annotated[PositiveInt, VALUE] | Annotated[Steps, KEYS], FORMS]


class DpSgd(Strict):
    """DP-SGD (Abadi et al. 2016): steps along noised sums of the clipped gradients of single texts.

    The guarantee is of a text (example-level), against all who see a client's updates, the server among them. It costs
    a backward pass for each text.
    """

    clip_norm: float = Field(1.0, gt=0, description="largest L2 norm of a text's gradient, over all parameters")
    multiplier: float | None = Field(
        None, gt=0, description="noise multiplier: standard deviation of the noise on a batch's sum / clip_norm"
    )
    target_epsilon: float | None = Field(
        None, gt=0, description="epsilon of a text over the whole run, from which the multiplier is computed"
    )
    delta: float = Field(DELTA, gt=0, lt=1, description="delta at which epsilon is stated; far below 1 / texts")

    @model_validator(mode="after")
    def _one(self) -> "DpSgd":
        if (self.multiplier is None) == (self.target_epsilon is None):
            raise ValueError("give either multiplier or target_epsilon")
        return self


class Training(Strict):
    """The training of a client."""

    rounds: int = Field(50, ge=1, description="number of rounds")
    local_epochs: int = Field(2, ge=1, description="passes of a client over its train texts in a round")
    batch_size: BatchSize = Field(8, description="texts in a batch; or {steps: 5}, at most 5 batches in an epoch")
    optimizer: OptimizerField = Field(SGD(), description="the clients' optimizer")
    dp_sgd: DpSgd | None = Field(
        None, description="clip each text's gradient, and add noise to the sum of a batch; null: neither"
    )
    engine: Engine | Literal["auto"] = Field(
        "auto",
        description="implementation of layers: reference is torch's, cells has faster recurrent ones (same sums in "
        "another order; model.dropout draws other masks), triton is cells with all steps of a layer in one "
        "kernel, for GPUs, native is cells in C, for CPUs, compiled when it is first used, and has the sums over the "
        "words of a bag, the attention of a transformer and its blocks with an adapter too; auto: native on CPUs if "
        "every node has a C compiler, else cells, or reference for models without recurrent layers",
    )
    stack: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto",
        description="number of clients trained side by side by all engines but reference, blocks of consecutive "
        "ids; the last bits of results depend on it; auto: as many as leave work for 16 actors",
    )
    tf32: bool = Field(
        False,
        description="whether float32 products on a GPU, in training, evaluation and audits, use only the first 10 bits "
        "of each mantissa; results may then differ from those of a CPU after three digits",
    )

    def batch(self, texts: int) -> int:
        """Return the number of texts in a batch of a client with ``texts`` texts."""
        return -(-texts // self.batch_size.steps) if isinstance(self.batch_size, Steps) else self.batch_size
