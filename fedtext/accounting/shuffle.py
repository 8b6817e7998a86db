"""Privacy amplification by shuffling of randomised response: the privacy blanket, computed exactly.

Of n clients each sends a bit, which is flipped with probability p = 1 / (1 + e^epsilon). That is a random bit with
probability 2 p, and the true one otherwise. Give the adversary the true bits of all other clients and who of them sent
a random one: what hides the client are N random bits of others, with N binomial of n - 1 and 2 p (Balle, Bell, Gascon
and Nissim 2019). It sees N and c, the number of ones among these and the client's own bit:

    P(c | N) = (1 - p) b(c - 1) + p b(c)    if the client's bit is 1, and
    Q(c | N) = p b(c - 1) + (1 - p) b(c)    if it is 0, with b binomial of N and 1/2.

Bits of other coordinates and rounds are independent of these, given what the adversary is given. Their Renyi
divergences add up, and a client's texts may change all of its bits.

Legend: A orders, N numbers of random bits, C numbers of ones.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedtext.accounting import composition

_ORDERS = np.concatenate([np.linspace(1.05, 10, 180), np.geomspace(10.5, 4096, 160)])
_REACH = 6.0  # times the root of a number of bits: by Hoeffding's inequality a sum is beyond it with 2 e^-72 at most
_TAIL = math.log(4) - 2 * _REACH**2
_BLOCKS = 64  # of numbers of random bits


def shuffled(epsilon: float, clients: int, count: int, delta: float) -> float:
    """Return epsilon at ``delta`` of the shuffled bits of a client.

    Args:
        epsilon: Epsilon of randomised response on one bit.
        clients: Number of clients whose bits are shuffled together.
        count: How many bits a client sends over all coordinates and rounds.
        delta: Where epsilon is computed.

    Returns:
        At most what holds without shuffling, by composition of the bits.
    """
    divergence_A = count * divergences(epsilon, clients)
    found_A = divergence_A + np.log1p(-1 / _ORDERS) - math.log(delta) / (_ORDERS - 1) - np.log(_ORDERS) / (_ORDERS - 1)
    return max(0.0, min(float(found_A.min()), composition.optimal(epsilon, count, delta)))


@lru_cache(maxsize=64)
def divergences(epsilon: float, clients: int) -> NDArray[np.float64]:
    """Return the Renyi divergences of one shuffled bit, of the orders ``_ORDERS``; shape (A,).

    They are the same in both directions: exchanging ones and zeros exchanges P and Q.

    Args:
        epsilon: Epsilon of randomised response.
        clients: n, the number of clients.
    """
    flip = 1 / (1 + math.exp(epsilon))
    numbers_N = _within(clients - 1, 2 * flip)
    log_N = _log_binomial(numbers_N, clients - 1, 2 * flip)
    found_A = _TAIL + (_ORDERS - 1) * epsilon  # what is not summed: a loss is at most epsilon
    for block_N in np.array_split(np.arange(len(numbers_N)), min(_BLOCKS, len(numbers_N))):
        # More random bits hide more: the least number of a block stands for all of them.
        weight = np.logaddexp.reduce(log_N[block_N])
        found_A = np.logaddexp(found_A, weight + _log_moments(int(numbers_N[block_N[0]]), flip))
    return np.asarray(np.maximum(found_A, 0) / (_ORDERS - 1))


def _log_moments(number: int, flip: float) -> NDArray[np.float64]:
    """Return log E_P exp((alpha - 1) log P / Q) given N, shape (A,)."""
    ones_C = _within(number, 0.5)
    if ones_C[-1] == number:  # then one more, of the client itself, is within reach too
        ones_C = np.append(ones_C, number + 1)
    log_C, before_C = _log_binomial(ones_C, number, 0.5), _log_binomial(ones_C - 1, number, 0.5)
    log_p_C = np.logaddexp(math.log1p(-flip) + before_C, math.log(flip) + log_C)
    log_q_C = np.logaddexp(math.log(flip) + before_C, math.log1p(-flip) + log_C)
    terms_AC = (_ORDERS[:, None] - 1) * (log_p_C - log_q_C) + log_p_C
    return np.asarray(np.logaddexp.reduce(terms_AC, axis=1))


def _within(count: int, chance: float) -> NDArray[np.int64]:
    """Return the values of a binomial number that are summed."""
    reach = _REACH * math.sqrt(count)
    return np.arange(max(0, math.floor(count * chance - reach)), min(count, math.ceil(count * chance + reach)) + 1)


def _log_binomial(values_C: NDArray[np.int64], count: int, chance: float) -> NDArray[np.float64]:
    """Return the logarithms of binomial probabilities; -inf of values that are none."""
    from scipy.special import gammaln, xlog1py, xlogy

    inside_C = np.clip(values_C, 0, count)
    log_C = gammaln(count + 1) - gammaln(inside_C + 1) - gammaln(count - inside_C + 1)
    log_C += xlogy(inside_C, chance) + xlog1py(count - inside_C, -chance)
    return np.where(inside_C == values_C, log_C, -np.inf)
