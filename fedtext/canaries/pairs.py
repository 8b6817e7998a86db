"""Canaries over several runs: whether what two runs release tells more of a client than both guarantee.

The runs of a sweep have the same canaries, and each draws anew which of them are in it. If two runs share noise, the
difference of what they release has none, and shows which canaries are in one of them only.

Legend: K canaries.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fedtext.accounting.one_run import p_value
from fedtext.canaries.measure import guessed
from fedtext.config.canaries import Canaries
from fedtext.ledger.together import Trial, together
from fedtext.metrics.wording import format_epsilon


@dataclass(frozen=True, eq=False)
class Run:
    """A completed run with canaries.

    Attributes:
        trial: Its experiment and its ledger.
        inside_K: Whether each canary was in the run.
        scores_K: Their scores.
    """

    trial: Trial
    inside_K: NDArray[np.bool_]
    scores_K: NDArray[np.float64]


def run(trial: Trial, content: str) -> Run:
    """Return a run from the content of its ``canaries.csv``.

    Args:
        trial: Its experiment and its ledger.
        content: The content.

    Raises:
        ValueError, KeyError: It is something else.
    """
    rows = list(csv.DictReader(io.StringIO(content)))
    inside_K = np.array([row["inside"] == "1" for row in rows], np.bool_)
    return Run(trial, inside_K, np.array([float(row["score"]) for row in rows]))


def of_pairs(runs: Sequence[Run]) -> list[str]:
    """Return a sentence on whether two runs tell more together than both guarantee; none if there are no two.

    Each run is compared with the one of the same seed before it. For each pair it is tested, with who was in the one
    run, and with who was in the other, whether the guarantee of both allows that number of right guesses.

    Args:
        runs: Runs. Those with ``server.noise``, of one corpus, seed and number of canaries, are compared.
    """
    groups: dict[str, list[Run]] = {}
    for each in runs:
        made = each.trial.experiment
        if made.server.noise and made.privacy.canaries:
            groups.setdefault(f"{made.corpus!r} {made.seed} {len(each.scores_K)}", []).append(each)
    pairs = [pair for group in groups.values() for pair in pairwise(group)]
    found = [(pair, test) for pair in pairs for test in (_test(*pair), _test(*reversed(pair))) if test]
    if not found:
        return []
    compared, tests = {id(each) for pair, _ in found for each in pair}, [test for _, test in found]
    least, claimed, config = min(tests, key=lambda test: test[0])
    chance = min(1.0, least * len(tests))
    said = f"canaries of {len(compared)} trials, each compared with the one of the same seed before it"
    if chance < 1 - config.confidence:
        return [
            f"{said}: two tell MORE together than the epsilon of {format_epsilon(claimed)} that both guarantee (p = "
            f"{chance:.2g}): do they share noise?"
        ]
    return [f"{said}: no two tell more together than both guarantee (p = {chance:.2g})"]


def _test(one: Run, other: Run) -> tuple[float, float, Canaries] | None:
    """Test who was in a run by how much more its canaries stand out than in another run.

    Returns:
        The probability of as many right guesses under the guarantee of both runs, its epsilon, and the keys; None if
        both have no guarantee together.
    """
    config = one.trial.experiment.privacy.canaries
    assert config is not None, "or it would have been left out"
    ((entry, _),) = together([one.trial, other.trial])
    if entry.epsilon is None:
        return None
    guesses, right = guessed(config.guesses, one.inside_K, one.scores_K - other.scores_K)
    return p_value(len(one.inside_K), guesses, right, entry.epsilon, entry.delta), entry.epsilon, config
