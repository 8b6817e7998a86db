"""Updates that the adversaries of a round choose together."""

from collections.abc import Iterable, Iterator, Mapping, Set

import numpy as np
from numpy.typing import NDArray

from fedtext.adversaries import Collusion
from fedtext.config.experiment import Experiment
from fedtext.layout import Layout
from fedtext.messages import Update


def chosen(
    experiment: Experiment,
    updates: Iterable[Update],
    ids: Set[int],
    state: Mapping[str, NDArray[np.float32]],
    sent: Layout,
) -> Iterator[Update]:
    """Yield the updates of a round in the order of clients, those of adversaries who collude as they choose them.

    Args:
        experiment: The experiment.
        updates: The updates that were received, in the order of clients.
        ids: The adversaries.
        state: The shared parameters before the round.
        sent: The layout of an update, with the tensors that the method sends beside it.
    """
    attack = experiment.adversaries and experiment.adversaries.attack
    if not isinstance(attack, Collusion):
        yield from updates
        return
    received = list(updates)
    own = [update for update in received if update.client in ids]
    before = {name: np.zeros(shape, np.float32) for name, shape in sent.shapes.items()} | dict(state)
    made = {u.client: u for u in attack.choose(own, len(received) - len(own), before)} if own else {}
    for update in received:
        yield made.get(update.client, update)
