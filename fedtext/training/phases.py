"""Parameters and table rows that move in a phase of a local update."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtext.methods.base import Method, Phase
from fedtext.methods.frozen import Frozen
from fedtext.training.config import SGD, Adam, decays


def moving(phase: Phase, parameters: Iterable[str], fixes: Callable[[str], bool]) -> frozenset[str]:
    """Return the names of the parameters that move.

    Args:
        phase: The phase.
        parameters: Names of the parameters of the model.
        fixes: Whether the model fixes a parameter (``ModelConfig.fixes``).
    """
    return frozenset(name for name in parameters if phase.moves(name) and not fixes(name))


def moving_rows(
    phase: Phase, rows: Sequence[NDArray[np.int32]], digits_V: NDArray[np.bool_] | None
) -> NDArray[np.float32] | None:
    """Return which rows of a stack's tables move.

    Args:
        phase: The phase.
        rows: rows_R of each client of the stack.
        digits_V: Which words have a digit in them; None: none.

    Returns:
        0 or 1, shape (N, 1), with a row for each client's padding at the end; None: all rows move.
    """
    if phase.rows == "all":
        return None
    digits = [np.zeros(len(rows_R), bool) if digits_V is None else digits_V[rows_R] for rows_R in rows]
    chosen = [digits_R if phase.rows == "digits" else ~digits_R for digits_R in digits]
    moving_N = np.concatenate([*chosen, np.zeros(len(rows), bool)])
    return moving_N[:, None].astype(np.float32)


def still_columns(widths: Mapping[str, int], moving: Collection[str], device: torch.device) -> Tensor | None:
    """Return which columns of tables side by side do not move.

    Args:
        widths: The dimension of each table, by name.
        moving: Names of the parameters that move.
        device: The device of the result.

    Returns:
        Booleans of shape (D,); None if all tables move, or none does.
    """
    still = [name not in moving for name, width in widths.items() for _ in range(width)]
    return torch.tensor(still, device=device) if any(still) and not all(still) else None


def shrinking(method: Method, parameters: Iterable[str], optimizer: SGD | Adam) -> frozenset[str]:
    """Return the frozen copies among some parameters, if weight decay would shrink them: they have no gradient.

    Args:
        method: The method.
        parameters: Their names.
        optimizer: The clients' optimizer.
    """
    if not (isinstance(method, Frozen) and decays(optimizer)):
        return frozenset()
    return frozenset(name for name in parameters if method.mirrors(name))
