"""The engine and the size of stacks of an experiment, and checks that they can be used."""

import logging
import os
from importlib.util import find_spec

import torch

from fedtext.config.experiment import Experiment
from fedtext.errors import UserError
from fedtext.models.base import ModelConfig
from fedtext.models.checkpointed import TransformerConfig, in_bfloat16, settings
from fedtext.models.native_block import IN_C
from fedtext.models.recurrent import Recurrent
from fedtext.runtime.compiled import compile_problem
from fedtext.runtime.precision import emulates_bfloat16
from fedtext.training.config import Engine

WIDEST = 8  # larger stacks do not fit in the caches: see docs/explanation/performance-training.md
NATIVE_WIDEST = 32  # the same for engine native, which has stacks of little models only
NARROW = 128  # up to this number of hidden units, one client's products are too small to fill a core
NATIVE_NARROW = 16  # the same for engine native, whose steps alone take no longer than the calls around them
AMPERE = (8, 0)  # the first GPUs with TF32
ENGINES = {
    "reference": "the layers of torch",
    "cells": "{what} in few operations, equal to torch's to rounding",
    "triton": "{what} in one kernel, equal to torch's to rounding",
    "native": "{what} in C, equal to torch's to rounding",
}
SLOW = (
    "; model.precision: bfloat16 is much slower than float32 on this machine, whose processor has no instructions for "
    "it: leave it out"
)
ACTORS = 16  # least number of blocks, so that as many actors have work


def engine_reason(experiment: Experiment) -> str:
    """Return a sentence about the engine that trains the clients, with the reason."""
    how = ENGINES[experiment.engine].format(what=_part(experiment.model))
    slow = experiment.engine == "native" and _in_torchs_bfloat16(experiment.model) and emulates_bfloat16()
    return f"engine {experiment.engine}: {how}{SLOW if slow else ''}"


def _in_torchs_bfloat16(model: ModelConfig) -> bool:
    """Whether torch computes a model's products in bfloat16, also where engine ``native`` has its attention."""
    return isinstance(model, TransformerConfig) and in_bfloat16(model) and not model.adapter


def _part(model: ModelConfig) -> str:
    """Return the part of a model that an engine computes."""
    if isinstance(model, TransformerConfig):
        if not model.adapter:
            return f"the attention of a {model.name}"
        whole = settings(model).model_type in IN_C
        return f"the {'blocks' if whole else 'attention and products'} of a {model.name}"
    return f"{'the steps' if isinstance(model, Recurrent) else 'the first layer'} of a {model.name}"


def choose_engine(experiment: Experiment, gpu: bool, problem: str, begun: Engine | None = None) -> Experiment:
    """Return the experiment with the engine that ``auto`` stands for.

    It is chosen once for a run, since the last bits of results depend on it.

    Args:
        experiment: The experiment.
        gpu: Whether clients may be trained on a GPU.
        problem: Why engine ``native`` cannot be used by every process that trains; empty if it can.
        begun: The engine of the run that is continued, which is kept.
    """
    if experiment.method.derivatives == 2 and experiment.training.engine == "auto":
        return with_engine(experiment, "reference")
    if experiment.training.engine != "auto" or not experiment.model.native:
        return experiment
    slower: Engine = "cells" if isinstance(experiment.model, Recurrent) else "reference"
    if begun is None and problem and not gpu:
        logging.getLogger(__name__).warning("engine %s is used, since the faster native cannot be: %s", slower, problem)
    return with_engine(experiment, begun or (slower if problem or gpu else "native"))


def with_engine(experiment: Experiment, engine: Engine) -> Experiment:
    """Return an experiment with another engine."""
    training = experiment.training.model_copy(update={"engine": engine})
    return experiment.model_copy(update={"training": training})


def check_engine(experiment: Experiment, device: str) -> None:
    """Check that the experiment's engine, and TF32, can be used by this process.

    Args:
        experiment: The experiment.
        device: The type of the torch device on which clients are trained: cpu, cuda, ...

    Raises:
        UserError: They cannot be used.
    """
    gpu, where = device == "cuda", {"cpu": "the CPU", "cuda": "a GPU"}.get(device, f"device {device}")
    if experiment.training.tf32 and not gpu:
        raise UserError(
            f"training.tf32 is about a GPU's products, but clients would be trained on {where}; give them shares of a "
            "GPU (resources.gpus_per_actor, or --device cuda), or leave it out"
        )
    if experiment.training.tf32 and torch.cuda.is_available() and torch.cuda.get_device_capability() < AMPERE:
        raise UserError(f"training.tf32: {torch.cuda.get_device_name()} does not support it: leave it out")
    if experiment.engine == "native" and device != "cpu":
        raise UserError(
            f"training.engine: native is for CPUs, but clients would be trained on {where}; use engine: auto"
        )
    if experiment.engine == "native" and (problem := compile_problem()):
        raise UserError(f"training.engine: native cannot be used: {problem}; or use another engine")
    if experiment.engine != "triton":
        return
    if not gpu and os.environ.get("TRITON_INTERPRET") != "1":
        raise UserError(
            f"training.engine: triton needs a GPU, but clients would be trained on {where}; give them shares of a GPU "
            "(resources.gpus_per_actor, or --device cuda), or use engine: cells"
        )
    if find_spec("triton") is None:
        raise UserError("training.engine: Triton is not installed here; pip install triton, or use engine: cells")


def trainees(experiment: Experiment, clients: int) -> int:
    """Return how many of these clients train in a round; for a Poisson sample on average."""
    return 1 if experiment.method.pooled else max(1, round(clients * experiment.participation.fraction))


def stack_size(experiment: Experiment, clients: int) -> tuple[int, str]:
    """Return the number of clients in a stack, and a sentence with the reason.

    Stacks are blocks of consecutive client ids, wherever these are hosted. The size depends on the experiment only and
    never on the cluster, since the last bits of results depend on which clients are stacked together.
    """
    asked, model = experiment.training.stack, experiment.model
    if asked != "auto":
        return asked, f"stacks of {asked}, as configured" if asked > 1 else "clients one by one, as configured"
    if isinstance(model, TransformerConfig):
        return 1, f"clients one by one: the layers of a {model.name} fill a core by themselves"
    if not isinstance(model, Recurrent):
        return 1, f"clients one by one: there are stacks of recurrent models, and {model.name} is none"
    if experiment.method.derivatives:
        return 1, f"clients one by one: the loss of method {experiment.method.name} takes gradients of one client"
    if experiment.engine == "reference":
        return 1, "clients one by one: the reference engine has no stacks"
    if experiment.language:
        return 1, f"clients one by one: the softmax of a {model.name} over the vocabulary fills a core by itself"
    if experiment.training.dp_sgd:
        return 1, "clients one by one: training.dp_sgd takes the gradient of one text at a time"
    if experiment.method.reads_table:
        return 1, f"clients one by one: method {experiment.method.name} uses the whole embedding table"
    if experiment.method.has_hooks():
        return 1, f"clients one by one: method {experiment.method.name} has hooks, which are of one client"
    if experiment.engine == "native" and model.hidden > NATIVE_NARROW:
        return 1, f"clients one by one: with engine native and {model.hidden} hidden units each fills a core by itself"
    if model.hidden > NARROW:
        return 1, f"clients one by one: with {model.hidden} hidden units each fills a core by itself"
    cohort = trainees(experiment, clients)
    if cohort == 1:
        return 1, "one client trains"
    size, widest = 1, NATIVE_WIDEST if experiment.engine == "native" else WIDEST
    while size < widest and cohort // (2 * size) >= ACTORS:
        size *= 2
    if size == 1:
        return 1, (
            f"clients one by one: {cohort} a round leave no more than {cohort} actors anything to do; on fewer actors, "
            f"and with small batches, training.stack={min(WIDEST, max(2, cohort // 2))} may be faster"
        )
    return size, f"stacks of {size}: {cohort} clients a round are enough for that"
