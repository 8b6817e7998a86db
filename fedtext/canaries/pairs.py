"""Canaries over several runs: whether what two runs release tells more of a client than both guarantee.

The runs of a sweep have the same canaries, and each draws anew which of them are in it. If two runs share noise, the
difference of what they release has none, and shows which canaries are in one of them only.

Legend: K canaries.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fedtext.accounting.entry import Entry, Measured
from fedtext.canaries.measure import guessed, measure
from fedtext.config.experiment import Experiment
from fedtext.ledger import format_epsilon
from fedtext.ledger.together import together


@dataclass(frozen=True, eq=False)
class Run:
    """A completed run with canaries.

    Attributes:
        experiment: The experiment.
        inside_K: Whether each canary was in the run.
        scores_K: Their scores.
    """

    experiment: Experiment
    inside_K: NDArray[np.bool_]
    scores_K: NDArray[np.float64]


def run(experiment: Experiment, content: str) -> Run:
    """Return a run from the content of its ``canaries.csv``.

    Raises:
        ValueError, KeyError: It is something else.
    """
    rows = list(csv.DictReader(io.StringIO(content)))
    inside_K = np.array([row["inside"] == "1" for row in rows], np.bool_)
    return Run(experiment, inside_K, np.array([float(row["score"]) for row in rows]))


def of_pairs(runs: Sequence[Run]) -> list[str]:
    """Return a sentence on the pair of runs whose outputs tell the most together; none if there is no pair.

    The bound holds with the confidence of ``privacy.canaries`` for all pairs of runs together.

    Args:
        runs: Runs with ``server.noise``. Those of one corpus, seed and number of canaries are compared.
    """
    groups: dict[str, list[Run]] = {}
    for each in runs:
        made = each.experiment
        if made.server.noise and made.privacy.canaries:
            groups.setdefault(f"{made.corpus!r} {made.seed} {len(each.scores_K)}", []).append(each)
    pairs = [pair for group in groups.values() for pair in combinations(group, 2)]
    if not pairs:
        return []
    found, claimed = _most(pairs)
    bound = f"epsilon is at least {format_epsilon(found.epsilon)} with {found.confidence:.0%} confidence"
    said = (
        f"canaries of {len(runs)} trials: of the two whose outputs tell most together {bound}, the confidence of all "
        f"pairs ({found.right} of {found.guesses} guesses are right)"
    )
    if claimed.epsilon is None:
        return [said]
    if found.epsilon > claimed.epsilon:
        return [f"{said}, MORE than the {format_epsilon(claimed.epsilon)} that both guarantee: do they share noise?"]
    return [f"{said}; both guarantee {format_epsilon(claimed.epsilon)}"]


def _most(pairs: Sequence[tuple[Run, Run]]) -> tuple[Measured, Entry]:
    """Return the largest bound of all pairs, at the delta of what the pair guarantees, and that guarantee.

    Each pair is tested twice, for who was in the one and in the other; the confidence is that of all tests.
    """
    both = [pair for one, other in pairs for pair in ((one, other), (other, one))]
    config = both[0][0].experiment.privacy.canaries
    assert config is not None, "or they would have been left out"
    asked = config.model_copy(update={"confidence": 1 - (1 - config.confidence) / len(both)})
    shares = [_right(config.guesses, one.inside_K, one.scores_K - other.scores_K) for one, other in both]
    one, other = both[int(np.argmax(shares))]
    ((claimed, _),) = together([one.experiment, other.experiment])
    found = measure(asked, one.inside_K, one.scores_K - other.scores_K, claimed.delta, gaussian=False)
    return replace(found, confidence=config.confidence), claimed


def _right(share: float, inside_K: NDArray[np.bool_], scores_K: NDArray[np.float64]) -> float:
    guesses, right = guessed(share, inside_K, scores_K)
    return right / guesses
