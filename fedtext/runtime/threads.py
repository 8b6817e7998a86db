"""Linear algebra in one thread.

With several threads sums have another order, so that the last bits of results would depend on the number of cores of a
process. It also avoids that several workers compete for cores.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

import torch
from threadpoolctl import ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # it searches all loaded libraries, so it is made once


def one_blas_thread() -> AbstractContextManager[Any]:
    """Limit products and decompositions of numpy to one thread within the block."""
    return _controller().limit(limits=1, user_api="blas")


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Limit torch to one thread within the block, and flush denormal numbers (below 1e-38 in float32) to zero.

    Gradients that vanish over hundreds of steps become denormal, and operations on such numbers are many times slower.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(before)
