"""From the scores of canaries to bounds.

Legend: K canaries.
"""

import numpy as np
from numpy.typing import NDArray

from fedtext.accounting import composition
from fedtext.accounting.entry import Measured
from fedtext.accounting.one_run import estimate, gaussian_lower_bound, lower_bound
from fedtext.config.canaries import Canaries

FILE = "canaries.csv"


def measure(
    config: Canaries, inside_K: NDArray[np.bool_], scores_K: NDArray[np.float64], delta: float, gaussian: bool
) -> Measured:
    """Guess which canaries were in the run, and bound epsilon by how many guesses are right.

    Args:
        config: The keys.
        inside_K: Whether each canary was in the run.
        scores_K: Their scores.
        delta: Where epsilon is bounded.
        gaussian: Whether the mechanism is one of Gaussian noise.
    """
    guesses, right = guessed(config.guesses, inside_K, scores_K)
    given = len(scores_K), guesses, right, config.confidence, delta
    known = gaussian and delta > 0 and composition.available()
    inside, outside = scores_K[inside_K], scores_K[~inside_K]
    return Measured(
        epsilon=lower_bound(*given),
        confidence=config.confidence,
        canaries=len(scores_K),
        guesses=guesses,
        right=right,
        gaussian=gaussian_lower_bound(*given) if known else None,
        estimate=estimate(inside, outside, delta) if known and min(len(inside), len(outside)) > 1 else None,
    )


def guessed(share: float, inside_K: NDArray[np.bool_], scores_K: NDArray[np.float64]) -> tuple[int, int]:
    """Guess that the canaries with the largest scores were in the run, and as many with the smallest were not.

    Args:
        share: Share of the canaries of which it is guessed.
        inside_K: Whether each canary was in the run.
        scores_K: Their scores.

    Returns:
        The number of guesses, and how many of them are right.
    """
    guesses = max(2, round(share * len(scores_K)))
    order_K = np.argsort(scores_K, kind="stable")
    few = guesses // 2
    lowest_K, highest_K = order_K[:few], order_K[len(order_K) - (guesses - few) :]
    return guesses, int(inside_K[highest_K].sum()) + int((~inside_K[lowest_K]).sum())


def metrics(measured: Measured) -> dict[str, float]:
    """Return the metrics of the last round."""
    found = {
        "epsilon_lower": measured.epsilon,
        "epsilon_lower_gaussian": measured.gaussian,
        "epsilon_lower_confidence": measured.confidence,
        "epsilon_estimate": measured.estimate,
    }
    return {name: value for name, value in found.items() if value is not None}


def table(inside_K: NDArray[np.bool_], scores_K: NDArray[np.float64]) -> str:
    """Return the scores as the content of ``canaries.csv``."""
    rows = zip(inside_K.astype(int).tolist(), scores_K.tolist(), strict=True)
    return "canary,inside,score\n" + "".join(f"{k},{inside},{score!r}\n" for k, (inside, score) in enumerate(rows))
