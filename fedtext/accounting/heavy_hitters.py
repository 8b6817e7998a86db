"""Guarantees of frequent words that are released from clients' texts.

Both are of clients: for two collections of texts of which one has all texts of a client, and the other none in their
place. Other texts in their place would move noised sums by sqrt(2) and not by 1, and two votes and not one.
"""

import math

from fedtext.accounting import composition


def triehh_threshold(epsilon: float, delta: float, length: int) -> int:
    """Return theta, the least number of votes of a prefix (Zhu et al. 2020, corollary 1).

    It is the smallest of at least 4 with (theta - 2) / ((theta - 3) theta!) <= delta, and at least
    e^(epsilon / length) - 1.

    Args:
        epsilon, delta: The guarantee of the whole trie.
        length: Number of levels of the trie.
    """
    theta = max(4, math.ceil(math.expm1(epsilon / length)))
    while math.log(theta - 2) - math.log(theta - 3) - math.lgamma(theta + 1) > math.log(delta):
        theta += 1
    return theta


def triehh_sample(clients: int, epsilon: float, threshold: int, length: int) -> int:
    """Return how many clients vote on a level: n (1 - e^(-epsilon / length)) / theta (Zhu et al. 2020, corollary 1).

    With a share s of the clients, one level is -log(1 - s theta)-private, and fails with the delta of theta. That needs
    many more votes than theta: otherwise the last vote for a prefix that nearly everyone has decides too often. With
    2 theta or more it fails with less than that delta, summed over levels.

    Args:
        clients: n, the number of clients.
        epsilon: The guarantee of the whole trie.
        threshold: theta.
        length: Number of levels of the trie.

    Returns:
        The number; 0 if it would be less than 2 theta.
    """
    sample = math.floor(-clients * math.expm1(-epsilon / length) / threshold)
    return sample if sample >= 2 * threshold else 0


def sum_sigma(epsilon: float, delta: float) -> float:
    """Return the standard deviation of Gaussian noise on sums in which a client has a norm of 1, for half of delta.

    Args:
        epsilon, delta: The guarantee of the released words.

    Raises:
        UserError: dp-accounting is not installed.
    """
    return composition.multiplier_for(epsilon, 1.0, 1, delta / 2, "corpus.vocabulary.private.epsilon")


def sum_threshold(sigma: float, delta: float, words: int) -> float:
    """Return the least noised sum of a word that is released (Gopi et al. 2020, theorem 5.1).

    A client adds 1 / sqrt(t) to each of t words, at most ``words``. Words of no one else are released with a
    probability of at most delta / 2: the threshold is max_t 1 / sqrt(t) + sigma Phi^-1((1 - delta / 2)^(1 / t)).

    Args:
        sigma: Standard deviation of the noise.
        delta: Delta of the guarantee.
        words: Largest number of words of a client.
    """
    from scipy.special import ndtri

    def at(count: int) -> float:
        # 1 - (1 - delta / 2)^(1 / t), whose digits would be lost next to 1
        beyond = -math.expm1(math.log1p(-delta / 2) / count)
        return 1 / math.sqrt(count) - sigma * float(ndtri(beyond))

    return max(map(at, range(1, words + 1)))
