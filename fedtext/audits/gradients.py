"""A client's mean gradient, computed from a received update.

The server knows the optimizer, its rate, the batch size, the local epochs and, from the payload, the number of texts,
and so the number of steps K of the client. With SGD and momentum m an update is -lr sum_s w_s g_s, where g_s is the
gradient of step s and w_s = 1 + m + ... + m^(K - s). Then -update / (lr sum_s w_s) is a weighted mean of the client's
gradients, and for a single step the gradient itself. Adam divides a gradient by its own size: after one step only the
sign of each coordinate remains, and after several steps the result is the mean of such steps.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedtext.layout import is_table
from fedtext.models.packing import Ints
from fedtext.training.batches import part
from fedtext.training.config import SGD

if TYPE_CHECKING:
    from fedtext.audits.base import LocalUpdate
    from fedtext.audits.known import Setting
    from fedtext.methods.base import Phase


def last_phase(experiment: "Setting") -> "Phase":
    """Return the last phase of a local update, the only one in which shared parameters change."""
    return experiment.method.phases(experiment.training.local_epochs)[-1]


def rate_scale(experiment: "Setting", parameter: str) -> float:
    """Return the factor of ``training.optimizer.lr`` with which that phase moves a parameter, which may be 0."""
    phase, optimizer = last_phase(experiment), experiment.training.optimizer
    if not phase.moves(parameter) or experiment.model.fixes(parameter):
        return 0.0
    if is_table(parameter) and optimizer.embedding_lr is not None:
        return phase.lr * optimizer.embedding_lr / optimizer.lr
    return phase.lr * experiment.model.lr_scale(parameter)


def texts_behind(local: "LocalUpdate") -> Ints:
    """Return the indices of the client's train texts that its update was trained on."""
    experiment, data = local.known.experiment, local.data
    return part(len(data.train), last_phase(experiment).texts, experiment.seed, data.id)


def count_behind(experiment: "Setting", texts: int) -> int:
    """Return the number of texts that an update was trained on, of a client with ``texts`` train texts."""
    return len(part(texts, last_phase(experiment).texts, seed=0, client=0))  # the number does not depend on the draw


def local_steps(experiment: "Setting", texts: int) -> int:
    """Return the number of steps K of a client with ``texts`` train texts."""
    texts = count_behind(experiment, texts)
    return last_phase(experiment).epochs * -(-texts // experiment.training.batch(texts))


def step_weight(experiment: "Setting", texts: int) -> float:
    """Compute sum_s w_s, where each w_s includes the factor of the learning rate schedule.

    Momentum from earlier rounds, and the effect of clipping, are not included.
    """
    optimizer, steps = experiment.training.optimizer, local_steps(experiment, texts)
    momentum = optimizer.momentum if isinstance(optimizer, SGD) else 0.0
    weight = velocity = 0.0
    for step in range(steps):  # the update that gradients of 1 would give
        velocity = momentum * velocity + 1
        weight += velocity * optimizer.slope(step, steps)
    return weight


def rescaled(local: "LocalUpdate") -> bool:
    """Whether the received update may have been multiplied by an unknown factor between 0 and 1.

    This is the case behind a mechanism that clips, or if gradients are clipped before the steps of SGD, or for each
    text (``training.dp_sgd``). An attack that did not fit the factor would mistake it for protection.
    """
    experiment = local.known.experiment
    uplink, optimizer = experiment.uplink, experiment.training.optimizer
    if isinstance(optimizer, SGD) and (optimizer.clip_norm is not None or experiment.training.dp_sgd):
        return True
    return any(part.rescales(dict(local.update.tensors) if part is uplink[-1] else None) for part in uplink)


def mean_gradient(local: "LocalUpdate") -> Mapping[str, NDArray[np.float32]]:
    """Compute the mean gradient of each shared parameter that is not a table, sorted by name."""
    experiment, update = local.known.experiment, local.update
    weight = experiment.training.optimizer.lr * step_weight(experiment, update.samples)
    named = {name: tensor for name, tensor in sorted(update.tensors.items()) if not is_table(name)}
    scales = {name: rate_scale(experiment, name) or 1.0 for name in named}  # the change is 0 of what does not move
    return {name: tensor * np.float32(-1 / (scales[name] * weight)) for name, tensor in named.items()}
