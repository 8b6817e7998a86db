"""numpy's linear algebra by one thread.

With several threads its sums are ordered otherwise, and the last bits of a product with them: results would depend on
how many cores a process happens to have.
"""

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()  # looks through all loaded libraries, so once


def one_blas_thread() -> AbstractContextManager[Any]:
    """Within the block products and decompositions of numpy run in one thread."""
    return _controller().limit(limits=1, user_api="blas")
