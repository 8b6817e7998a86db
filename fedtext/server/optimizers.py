"""The server's optimizers (Reddi et al. 2021, Adaptive Federated Optimization, algorithm 2).

The clients' mean update Delta takes the place of a negative gradient. With an aggregation of individual updates, Delta
is its result minus the former parameters. A round without participants is no step: moments do not change.

An embedding row that no participant has gets Delta = 0. It still moves if the optimizer has a memory: by momentum, or
in adam and yogi along m, which decays by beta1. Adam's v of it decays by beta2 in each round, so that a rare word makes
large steps when it occurs again; yogi's v of it does not change.

Legend: N entries of the flat buffer.
"""

import numpy as np
from numpy.typing import NDArray

from fedtext.config.server import ServerAdam, ServerOptimizer, ServerSGD
from fedtext.server import native_sums

# The state of an optimizer between rounds, by name: flat float32 buffers. Empty before the first round.
Moments = dict[str, NDArray[np.float32]]


def step(
    optimizer: ServerOptimizer, flat_N: NDArray[np.float32], change_N: NDArray[np.float64], moments: Moments
) -> tuple[NDArray[np.float32], Moments]:
    """Make a step of the server's optimizer.

    Args:
        optimizer: The optimizer.
        flat_N: The shared parameters.
        change_N: The mean update. It is overwritten.
        moments: The optimizer's state.

    Returns:
        The next parameters and the next state.
    """
    if isinstance(optimizer, ServerSGD):
        moments, change_N = _with_momentum(optimizer, change_N, moments)
        if (moved_N := native_sums.moved(flat_N, change_N, optimizer.lr)) is not None:
            return moved_N, moments
        if optimizer.lr != 1:
            change_N *= optimizer.lr
        change_N += flat_N
        return change_N.astype(np.float32), moments
    beta1, beta2, tau = optimizer.beta1, optimizer.beta2, optimizer.tau
    m_N = moments.get("m", np.zeros_like(flat_N))
    v_N = moments.get("v", np.full_like(flat_N, tau**2))
    m_N = (beta1 * m_N + (1 - beta1) * change_N).astype(np.float32)
    np.square(change_N, out=change_N)
    if isinstance(optimizer, ServerAdam):
        v_N = (beta2 * v_N + (1 - beta2) * change_N).astype(np.float32)
    else:
        v_N = (v_N - (1 - beta2) * change_N * np.sign(v_N - change_N)).astype(np.float32)
    moved = flat_N + np.float64(optimizer.lr) * m_N / (np.sqrt(v_N, dtype=np.float64) + tau)
    return moved.astype(np.float32), {"m": m_N, "v": v_N}


def _with_momentum(
    optimizer: ServerSGD, change_N: NDArray[np.float64], moments: Moments
) -> tuple[Moments, NDArray[np.float64]]:
    if not optimizer.momentum:
        return {}, change_N
    if "m" in moments:
        change_N += optimizer.momentum * moments["m"]
    m_N = change_N.astype(np.float32)
    return {"m": m_N}, m_N.astype(np.float64)
