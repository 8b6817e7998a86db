"""Construction of batch assemblers and of local optimizers."""

from collections.abc import Callable, Iterable
from functools import partial

import torch

from fedtext.config.experiment import Experiment
from fedtext.models.recurrent import Recurrent
from fedtext.training.batches import Assembler
from fedtext.training.optimizer import LocalOptimizer


def assembler_of(experiment: Experiment, device: torch.device) -> Assembler:
    """Return what makes batches for the engine of an experiment.

    Args:
        experiment: The experiment.
        device: The device on which clients are trained.
    """
    model, engine = experiment.model, experiment.engine
    directions = model.directions if engine != "reference" and isinstance(model, Recurrent) else None
    knows_words = directions is not None or (engine == "native" and model.native)
    return Assembler(directions, knows_words and not experiment.reads_table, device, engine, experiment.language)


def optimizer_of(experiment: Experiment, cut: bool, parameters: Iterable[str]) -> Callable[..., LocalOptimizer]:
    """Return what makes the optimizer of a stack, given the stack, the learning rate and ``moving``.

    Args:
        experiment: The experiment.
        cut: As in ``LocalOptimizer``.
        parameters: Names of the parameters.
    """
    names, method = list(parameters), experiment.method
    return partial(
        LocalOptimizer,
        experiment.training.optimizer,
        cut=cut,
        task_of=method.task_of,
        native=experiment.engine == "native",
        scales={name: experiment.model.lr_scale(name) for name in names},
        bounds={name: between for name in names if (between := method.bounds(name))},
    )
