"""How exactly a GPU multiplies float32 numbers. On a CPU nothing here changes anything.

TF32 reads the first 10 bits of each number's mantissa and adds up in float32; GPUs since Ampere have it. torch leaves
that to the process, and lets cuDNN's recurrent layers have it unless told otherwise, so that the engine ``reference``
would be less exact on a GPU than ``cells``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def products(tf32: bool) -> Iterator[None]:
    """Within the block cuBLAS and cuDNN multiply float32 numbers as TF32, or else as they are."""
    backends: list[Any] = [torch.backends.cuda.matmul, torch.backends.cudnn]
    before = [backend.allow_tf32 for backend in backends]
    try:
        for backend in backends:
            backend.allow_tf32 = tf32
        yield
    finally:
        for backend, allowed in zip(backends, before, strict=True):
            backend.allow_tf32 = allowed
