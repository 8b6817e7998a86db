"""Linear algebra by one thread.

With several its sums are ordered otherwise, and the last bits of a product with them: results would depend on how many
cores a process happens to have. And two busy workers do not fight for cores.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

import torch
from threadpoolctl import ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # looks through all loaded libraries, so once


def one_blas_thread() -> AbstractContextManager[Any]:
    """Within the block products and decompositions of numpy run in one thread."""
    return _controller().limit(limits=1, user_api="blas")


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """The same for torch; and numbers too small to be written in full (below 1e-38 in float32) count as zero. Gradients
    that fade over hundreds of steps come down to such, and a core takes many times as long over each."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(before)
