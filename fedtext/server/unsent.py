"""Parameters that no client sends: a round leaves them unchanged."""

import numpy as np
from numpy.typing import NDArray

from fedtext.config.experiment import Experiment
from fedtext.layout import TABLE, Layout


def keep_unsent(
    experiment: Experiment,
    layout: Layout,
    before: NDArray[np.float32],
    flat: NDArray[np.float32],
    withheld: NDArray[np.int64] | None,
    round_: int,
) -> None:
    """Restore the parameters that no client has sent to their values before the round.

    Args:
        experiment: The experiment; its method says what is shared in a round.
        layout: The layout of the parameters.
        before: The parameters before the round.
        flat: Those after it, which change.
        withheld: Rows of the table that no client sends; None: there are none.
        round_: Number of the round.
    """
    if flat is before:  # a round without participants; after a resumption it is read-only
        return
    now, then = layout.views(flat), layout.views(before)
    if withheld is not None:  # updates have only a mechanism's noise in these rows
        now[TABLE][withheld] = then[TABLE][withheld]
    for name in layout.shapes:
        own = experiment.aggregation.changes(name)  # what the server alone changes
        if not own and not experiment.shared_in(name, round_):  # momentum or the server's noise would move it
            now[name][...] = then[name]
