"""The canaries of a run from its first round to its ledger."""

import logging
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedtext.accounting.entry import DELTA, Entry
from fedtext.canaries import measure
from fedtext.canaries.base import CanaryClients, Total
from fedtext.canaries.central import CentralCanaries
from fedtext.canaries.local import LocalCanaries
from fedtext.canaries.plan import Plan, check
from fedtext.config.experiment import Experiment
from fedtext.layout import Layout
from fedtext.ledger import claimed, with_measured
from fedtext.methods import layouts
from fedtext.metrics.wording import format_epsilon
from fedtext.seeding import generator
from fedtext.state.noise_key import NoiseKey


class CanaryAudit:
    """The canaries of an experiment; without ``privacy.canaries`` it does nothing.

    Args:
        experiment: The experiment.
        clients: Number of clients that can train.
        noise: The run's key.
        layout: The shared tensors.
        withheld: Rows of the table that no client sends; None: there are none.
        kept: The tensors that ``to_keep`` returned after an earlier round; None: the run begins.
    """

    def __init__(
        self,
        experiment: Experiment,
        clients: int,
        noise: NoiseKey,
        layout: Layout,
        withheld: NDArray[np.int64] | None,
        kept: Mapping[str, NDArray[np.float32]] | None = None,
    ) -> None:
        self.experiment = experiment
        self.canaries: CanaryClients | None = None
        if config := experiment.privacy.canaries:
            check(experiment, layouts.coordinates(layout, experiment.model.fixes))
            kind = CentralCanaries if experiment.server.noise else LocalCanaries
            self.canaries = kind(Plan(config, experiment, clients), noise, layout, withheld, kept)

    def join(self, total: Total, flat: NDArray[np.float32], round_: int, attempt: int) -> None:
        """Add the canaries that take part in a round to its sum.

        Args:
            total: The sum of the clients' updates.
            flat: The shared parameters that clients received.
            round_: Number of the round.
            attempt: Number of the attempt at the round, from 1.
        """
        if self.canaries is None:
            return
        for update in self.canaries.updates(flat, round_, attempt):
            total.insert(update, generator(self.experiment.seed, "canary/rounding", round_, update.client))

    def observe(self, before: NDArray[np.float32], after: NDArray[np.float32], round_: int) -> None:
        """Note what a completed round has released. See ``CanaryClients.observe``."""
        if self.canaries:
            self.canaries.observe(before, after, round_)

    def to_keep(self) -> Mapping[str, NDArray[np.float32]]:
        """Return the tensors for a checkpoint."""
        return self.canaries.to_keep() if self.canaries else {}

    def measured(self, entries: Sequence[Entry]) -> tuple[list[Entry], dict[str, float], dict[str, str]]:
        """Bound the epsilon of the completed rounds.

        Args:
            entries: The ledger of these rounds.

        Returns:
            The ledger with the bound beside the guarantee of the run; metrics; and texts by file name.
        """
        if self.canaries is None:
            return list(entries), {}, {}
        plan, scores_K = self.canaries.plan, self.canaries.scores()
        claim = claimed(entries)
        noise = self.experiment.server.noise
        delta = claim.delta if claim else noise.delta if noise else DELTA
        gaussian = bool(noise) or not any(mechanism.bits for mechanism in self.experiment.uplink)
        found = measure.measure(plan.config, plan.inside_K, scores_K, delta, gaussian)
        if claim and claim.epsilon is not None and found.epsilon > claim.epsilon:
            logging.getLogger(__name__).warning(
                "privacy.canaries: epsilon is at least %s with %.0f %% confidence, more than the %s of the ledger: "
                "if it is with other seeds too, the guarantee does not hold",
                format_epsilon(found.epsilon),
                100 * found.confidence,
                format_epsilon(claim.epsilon),
            )
        files = {measure.FILE: measure.table(plan.inside_K, scores_K)}
        return with_measured(entries, found), measure.metrics(found), files
