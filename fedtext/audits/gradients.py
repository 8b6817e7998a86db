"""What a received update says of a client's gradient.

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

from fedtext.models.config import is_table
from fedtext.training.batches import part
from fedtext.training.config import SGD

if TYPE_CHECKING:
    from fedtext.audits.base import Turn
    from fedtext.experiment import Experiment


def local_steps(experiment: "Experiment", texts: int) -> int:
    """K, of a client with so many texts: those of the last phase of a turn, before which what is sent does not move."""
    training, last = experiment.training, experiment.method.phases(experiment.training.local_epochs)[-1]
    texts = len(part(texts, last.texts, seed=0, client=0))  # whichever they are, so many
    return last.epochs * -(-texts // training.batch(texts))


def step_weight(experiment: "Experiment", texts: int) -> float:
    """sum_s w_s, with the rate of each step as its schedule has it; momentum that persists from earlier rounds, and
    what clipping took away, are not counted."""
    optimizer, steps = experiment.training.optimizer, local_steps(experiment, texts)
    momentum = optimizer.momentum if isinstance(optimizer, SGD) else 0.0
    weight = velocity = 0.0
    for step in range(steps):  # of gradients of one
        velocity = momentum * velocity + 1
        weight += velocity * (1 - step / steps if optimizer.schedule == "linear" else 1)
    return weight


def mean_gradient(turn: "Turn") -> Mapping[str, NDArray[np.float32]]:
    """Of every shared parameter that is no table, by name: in a payload they have no order."""
    experiment, update = turn.known.experiment, turn.update
    scale = np.float32(-1 / (experiment.training.optimizer.lr * step_weight(experiment, update.samples)))
    return {name: tensor * scale for name, tensor in sorted(update.tensors.items()) if not is_table(name)}
