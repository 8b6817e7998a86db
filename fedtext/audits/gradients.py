"""A client's gradient, as far as a received update tells it.

The server knows the optimizer, its rate, the batch size, the local epochs and, from the payload, the number of texts:
hence how many steps K the client made. With SGD and momentum m an update is -lr sum_s w_s g_s, where g_s is step s's
gradient and w_s = 1 + m + ... + m^(K - s); so that -update / (lr sum_s w_s) is a mean of the client's gradients, and
of one step the gradient itself. Adam divides a gradient by its own size: of one step only the signs are left, and of
several what is returned is the mean of such steps.
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
    from fedtext.audits.base import LocalUpdate, Setting
    from fedtext.methods.base import Phase


def last_phase(experiment: "Setting") -> "Phase":
    """Of a client's local update: before it, what is sent does not move."""
    return experiment.method.phases(experiment.training.local_epochs)[-1]


def texts_behind(local: "LocalUpdate") -> Ints:
    """Which of the client's train texts its update was trained on."""
    experiment, data = local.known.experiment, local.data
    return part(len(data.train), last_phase(experiment).texts, experiment.seed, data.id)


def count_behind(experiment: "Setting", texts: int) -> int:
    """Return the number of texts that an update was trained on, of a client with ``samples`` texts."""
    return len(part(texts, last_phase(experiment).texts, seed=0, client=0))  # of this number, whichever they are


def local_steps(experiment: "Setting", texts: int) -> int:
    """Return K of a client with ``samples`` texts."""
    texts = count_behind(experiment, texts)
    return last_phase(experiment).epochs * -(-texts // experiment.training.batch(texts))


def step_weight(experiment: "Setting", texts: int) -> float:
    """sum_s w_s, with the rate of each step as its schedule has it; momentum that persists from earlier rounds, and
    what clipping took away, are not counted."""
    optimizer, steps = experiment.training.optimizer, local_steps(experiment, texts)
    momentum = optimizer.momentum if isinstance(optimizer, SGD) else 0.0
    weight = velocity = 0.0
    for step in range(steps):  # of gradients of one
        velocity = momentum * velocity + 1
        weight += velocity * optimizer.slope(step, steps)
    return weight


def rescaled(local: "LocalUpdate") -> bool:
    """Whether the received update may be a multiple, between 0 and 1, of the update that the optimizer's rate and the
    number of steps account for: behind a mechanism that clips, or where SGD's gradients are clipped. An attack that did
    not fit this factor would take it for protection."""
    experiment = local.known.experiment
    uplink, optimizer = experiment.uplink, experiment.training.optimizer
    if isinstance(optimizer, SGD) and optimizer.clip_norm is not None:
        return True
    return any(part.rescales(dict(local.update.tensors) if part is uplink[-1] else None) for part in uplink)


def mean_gradient(local: "LocalUpdate") -> Mapping[str, NDArray[np.float32]]:
    """Of every shared parameter that is no table, by name: in a payload they have no order."""
    experiment, update = local.known.experiment, local.update
    scale = np.float32(-1 / (experiment.training.optimizer.lr * step_weight(experiment, update.samples)))
    return {name: tensor * scale for name, tensor in sorted(update.tensors.items()) if not is_table(name)}
