"""The evaluation after a round, and the model that it selects."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtext.config.experiment import Experiment
from fedtext.errors import UserError
from fedtext.evaluation import SPLITS
from fedtext.records import RoundRecord
from fedtext.server.best_rounds import BestRounds
from fedtext.server.evaluations import evaluate_fleet
from fedtext.server.fleet import Fleet
from fedtext.server.selection import best_round, reached
from fedtext.state.checkpoint import Snapshot


class RoundEvaluation:
    """Evaluates the clients after rounds, and keeps the parameters of the best round if ``evaluation.select`` chooses.

    Args:
        experiment: The experiment.
        fleet: The clients.
        snapshot: The checkpoint from which a run goes on; None: the run begins.

    Attributes:
        choosing: Whether ``evaluation.select`` chooses a round.
        selected: The parameters of the best round so far; None: the last round counts, or none has been evaluated.
        best_rounds: Each client's best round, with ``evaluation.union.best_round``; None without it.
    """

    def __init__(self, experiment: Experiment, fleet: Fleet, snapshot: Snapshot | None) -> None:
        self.experiment, self.fleet = experiment, fleet
        self.choosing = experiment.evaluation.select != "last"
        self.selected: NDArray[np.float32] | None = None
        if snapshot and self.choosing:
            self.selected = snapshot.flat if snapshot.selected is None else snapshot.selected
        union, kept = experiment.evaluation.union, snapshot.moments if snapshot else None
        self.best_rounds = BestRounds(len(fleet.clients), kept) if union and union.best_round else None

    def after(
        self,
        history: Sequence[RoundRecord],
        flat: NDArray[np.float32],
        handle: Any,
        completed: Sequence[int],
        attacked: Sequence[int],
    ) -> None:
        """Add the metrics of evaluations to the record of the last round.

        Args:
            history: The records of all rounds so far.
            flat: The parameters after the last of them.
            handle: Their handle in the fleet.
            completed: Ids of the clients that completed the round.
            attacked: Ids of the clients that audits attack, in the order of ``ClientTable.audited``.

        Raises:
            UserError: No round can be selected.
            ClientError: A client failed, and ``participation.on_client_error`` is ``fail``.
        """
        record = history[-1]
        if self.best_rounds:
            record.metrics.update(self.best_rounds.observe(self.fleet, handle, record.round, completed))
        if self.experiment.evaluates(record.round):
            self._evaluate(history, flat, handle, attacked)

    def _evaluate(
        self, history: Sequence[RoundRecord], flat: NDArray[np.float32], handle: Any, attacked: Sequence[int]
    ) -> None:
        """Evaluate on all clients' texts; with ``evaluation.select`` test texts only once, by the selected model."""
        record, config = history[-1], self.experiment.evaluation
        last = record.round == self.experiment.training.rounds
        splits = ("validation",) if self.choosing else SPLITS
        evaluate_fleet(self.experiment, self.fleet, handle, record, splits, last and not self.choosing, attacked)
        record.metrics |= reached(history, config.thresholds)
        if not self.choosing:
            return
        best = best_round(history, config.select)
        if best == record.round:
            self.selected = flat
        if last:
            if not best or self.selected is None:
                raise UserError(f"evaluation.select: no round has a {config.select}: lower training.optimizer.lr")
            theirs = handle if self.selected is flat else self.fleet.broadcast(self.selected)
            evaluate_fleet(self.experiment, self.fleet, theirs, record, SPLITS, True, attacked)
            record.metrics["selected_round"] = float(best)

    def final(self, flat: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the parameters of the best round so far if ``evaluation.select`` chooses, else those given."""
        return flat if self.selected is None else self.selected

    def earlier(self, flat: NDArray[np.float32]) -> NDArray[np.float32] | None:
        """Return the selected parameters for a checkpoint that has ``flat``; None if they are these, or none are."""
        return None if self.selected is flat else self.selected
