"""The canaries of a run from its first round to its ledger."""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedtext.accounting.entry import DELTA, Entry
from fedtext.canaries import measure
from fedtext.canaries.base import CanaryClients
from fedtext.canaries.central import CentralCanaries
from fedtext.canaries.local import LocalCanaries
from fedtext.canaries.plan import Plan, check
from fedtext.config.experiment import Experiment
from fedtext.ledger import format_epsilon, spent, with_measured
from fedtext.messages import Update
from fedtext.state.noise_key import NoiseKey
from fedtext.wire.decoder import Decoder


class CanaryAudit:
    """The canaries of an experiment; without ``privacy.canaries`` it does nothing.

    Args:
        experiment: The experiment.
        clients: Number of clients that can train.
        noise: The run's key.
        decoder: The server's decoder of updates.
        withheld: Rows of the table that no client sends; None: there are none.
        kept: The tensors that ``to_keep`` returned after an earlier round; None: the run begins.
    """

    def __init__(
        self,
        experiment: Experiment,
        clients: int,
        noise: NoiseKey,
        decoder: Decoder,
        withheld: NDArray[np.int64] | None,
        kept: Mapping[str, NDArray[np.float32]] | None = None,
    ) -> None:
        self.experiment = experiment
        self.canaries: CanaryClients | None = None
        if config := experiment.privacy.canaries:
            check(experiment, decoder.sent.numbers)
            kind = CentralCanaries if experiment.server.noise else LocalCanaries
            self.canaries = kind(Plan(config, experiment, clients), noise, decoder, withheld, kept)

    def updates(self, flat: NDArray[np.float32], round_: int, attempt: int) -> Iterator[Update]:
        """Yield the updates of the canaries in a round's sum. See ``CanaryClients.updates``."""
        if self.canaries:
            yield from self.canaries.updates(flat, round_, attempt)

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
        claimed = spent(entries)
        noise = self.experiment.server.noise
        delta = claimed.get("delta", noise.delta if noise else DELTA)
        gaussian = bool(noise) or not any(mechanism.bits for mechanism in self.experiment.uplink)
        found = measure.measure(plan.config, plan.inside_K, scores_K, delta, gaussian)
        if found.epsilon > claimed.get("epsilon", math.inf):
            logging.getLogger(__name__).warning(
                "privacy.canaries: epsilon is at least %s with %.0f %% confidence, more than the %s of the ledger: "
                "if it is with other seeds too, the guarantee does not hold",
                format_epsilon(found.epsilon),
                100 * found.confidence,
                format_epsilon(claimed["epsilon"]),
            )
        files = {measure.FILE: measure.table(plan.inside_K, scores_K)}
        return with_measured(entries, found), measure.metrics(found), files
