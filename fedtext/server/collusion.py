"""Updates that the adversaries of a round choose together."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Set

import numpy as np
from numpy.typing import NDArray

from fedtext.adversaries import Collusion
from fedtext.config.experiment import Experiment
from fedtext.errors import UserError
from fedtext.layout import Layout, not_finite
from fedtext.messages import Update


def chosen(
    experiment: Experiment,
    updates: Iterable[Update],
    ids: Set[int],
    state: Mapping[str, NDArray[np.float32]],
    sent: Layout,
    check: Callable[[Update], None],
) -> Iterator[Update]:
    """Yield the updates of a round in the order of clients, those of adversaries who collude as they choose them.

    Args:
        experiment: The experiment.
        updates: The updates that were received, in the order of clients.
        ids: The adversaries.
        state: The shared parameters before the round.
        sent: The layout of an update, with the tensors that the method sends beside it.
        check: Raises a ValueError if the server would refuse an update.

    Raises:
        UserError: It would refuse one that they have chosen.
    """
    attack = experiment.adversaries and experiment.adversaries.attack
    if not isinstance(attack, Collusion):
        yield from updates
        return
    received = list(updates)
    own = [update for update in received if update.client in ids]
    before = {name: np.zeros(shape, np.float32) for name, shape in sent.shapes.items()} | dict(state)
    made = {u.client: u for u in attack.choose(own, len(received) - len(own), before)} if own else {}
    for update in made.values():
        try:
            if name := not_finite(update.tensors):
                raise ValueError(f"it sent {name} with numbers that are not finite")
            check(update)
        except ValueError as refused:
            who = f"the server refuses the update that {attack.name} chose for client {update.client}"
            raise UserError(f"adversaries.attack: {who} ({refused}): choose other options") from refused
    for update in received:
        yield made.get(update.client, update)
