"""Precisions of products: TF32 on a GPU, which has no effect on a CPU, and bfloat16 on a CPU.

TF32 uses the first 10 bits of each mantissa and adds in float32; GPUs since Ampere support it. In torch it is a setting
of the process, and by default on in cuDNN's recurrent layers, so that the engine ``reference`` would be less exact on a
GPU than ``cells``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def products(tf32: bool) -> Iterator[None]:
    """Set whether cuBLAS and cuDNN use TF32 within the block."""
    backends: list[Any] = [torch.backends.cuda.matmul, torch.backends.cudnn]
    before = [backend.allow_tf32 for backend in backends]
    try:
        for backend in backends:
            backend.allow_tf32 = tf32
        yield
    finally:
        for backend, allowed in zip(backends, before, strict=True):
            backend.allow_tf32 = allowed


def emulates_bfloat16() -> bool:
    """Whether torch computes products in bfloat16 one number after the other on this processor.

    Its library needs AVX-512 or newer instructions for them. Without these a product takes 7 to 30 times as long as in
    float32 (docs/how-to/train-adapters.md).
    """
    return not torch.ops.mkldnn._is_mkldnn_bf16_supported()
