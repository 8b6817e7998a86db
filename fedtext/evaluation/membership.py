"""Metrics of membership inference: of one client's texts, and of all audited clients' texts together.

Legend: M train texts, U other texts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedtext.evaluation.classes import Scored, area
from fedtext.evaluation.pooled import Pooled

_RATES = {"1pct": 100, "0.1pct": 1000}  # false positive rates, each with the least number of other texts that shows it


@dataclass(frozen=True, eq=False)
class Attacked(Pooled):
    """The scores of one client's texts, the smaller the more a text looks like a train text: losses, for example.

    Attributes:
        train_M: Scores of the client's train texts.
        test_U: Scores of texts that no client has trained on.
    """

    train_M: NDArray[np.float32]
    test_U: NDArray[np.float32]

    @classmethod
    def over_clients(cls, parts: "Sequence[Attacked]", name: str) -> dict[str, float]:
        return together(parts)


def measures(train_M: NDArray[np.float32], test_U: NDArray[np.float32]) -> dict[str, float]:
    """Compute the metrics of one client.

    Args:
        train_M: Scores of members, the smaller the more a text looks like one.
        test_U: Scores of other texts.

    Returns:
        Metrics by name, without those that need more texts; empty if a score is NaN.
    """
    auc = _auc(train_M, test_U)
    if auc is None:
        return {}
    found = {"member_auc": auc}
    if len(train_M) > 1:
        limit, judged_M = train_M[::2].mean(dtype=np.float64), train_M[1::2]
        found["member_advantage"] = float((judged_M <= limit).mean() - (test_U <= limit).mean())
    return found | _rates(train_M, test_U, "member", ["1pct"])


def together(parts: Sequence[Attacked]) -> dict[str, float]:
    """Compute the metrics over the texts of all audited clients, with one threshold for all of them, and over clients.

    A client counts as two users: one that has taken part, who has its train texts, and one that has not, who has its
    other texts. The score of a user is the mean over its texts.

    Args:
        parts: The scores of each client's texts.

    Returns:
        Metrics by name, without those that need more texts; empty if a score is NaN.
    """
    train_M = np.concatenate([part.train_M for part in parts])
    test_U = np.concatenate([part.test_U for part in parts])
    auc = _auc(train_M, test_U)
    if auc is None:
        return {}
    found = {"member_pooled_auc": auc}
    found |= _rates(train_M, test_U, "member_pooled", list(_RATES))
    users = [part for part in parts if len(part.train_M) and len(part.test_U)]
    if len(users) > 1:
        inside, outside = ([np.mean(side, dtype=np.float64) for side in sides] for sides in _sides(users))
        found["member_user_auc"] = _auc(np.array(inside), np.array(outside)) or 0.0
    return found


def _sides(users: Sequence[Attacked]) -> tuple[list[NDArray[np.float32]], list[NDArray[np.float32]]]:
    return [part.train_M for part in users], [part.test_U for part in users]


def _auc(train_M: NDArray, test_U: NDArray) -> float | None:
    """Return the probability that a member has the smaller score, ties counting half; None if a score is NaN."""
    scores_N = np.concatenate([train_M, test_U])
    return area([Scored(-scores_N, np.arange(len(scores_N)) < len(train_M))])


def _rates(
    train_M: NDArray[np.float32], test_U: NDArray[np.float32], begin: str, rates: Sequence[str]
) -> dict[str, float]:
    """Return the largest true positive rates of thresholds that at most these shares of the other texts pass, each with
    its chance level.

    The threshold is the (k + 1)-th smallest of U other scores, k = floor(U / least). Scores of the same distribution
    lie below it with the probability (k + 1) / (U + 1), if none are equal.

    Args:
        train_M: Scores of members, the smaller the more a text looks like one.
        test_U: Scores of other texts.
        begin: The beginning of the metrics' names.
        rates: The false positive rates, by their names.

    Returns:
        Metrics by name, without those that need more other texts.
    """
    found = {}
    for name in rates:
        passing = len(test_U) // _RATES[name]
        if passing:
            key = f"{begin}_tpr_at_{name}_fpr"
            found[key] = float((train_M < np.sort(test_U)[passing]).mean())
            found[f"{key}_chance"] = (passing + 1) / (len(test_U) + 1)
    return found
