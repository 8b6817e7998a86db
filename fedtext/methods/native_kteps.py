"""Engine native: the loss terms of KTEPS, and HSIC alone for clients of a stack, in C (methods/kteps.c).

Legend: C clients of a stack, B batch, F features.
"""

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fedtext.models.functions import MappedFunction
from fedtext.runtime.compiled import addresses, compiled, places

SOURCE = Path(__file__).with_name("kteps.c")


@cache
def _library(dtype: torch.dtype) -> ctypes.CDLL:
    library, place, pointer = compiled(SOURCE, dtype), ctypes.c_int64, ctypes.c_void_p
    real = {torch.float32: ctypes.c_float, torch.float64: ctypes.c_double}[dtype]
    library.hsic.argtypes = [place, place, place, pointer, pointer, real, *[pointer] * 4]
    library.terms_memory.argtypes, library.terms_memory.restype = [place, place, pointer], place
    head: list[Any] = [place, place, place, *[pointer] * 4]
    library.terms.argtypes = [*head, pointer, pointer, ctypes.c_double, place, place, real, pointer, pointer]
    library.terms_backward.argtypes = [*head, place, *[pointer] * 5]
    return library


class NativeHSIC(MappedFunction):
    """HSIC of one client's features, shape (B, F), or of those of a stack, (C, B, F); bandwidth 0: the median.

    Further outputs are the gradients, which the backward pass scales.
    """

    @staticmethod
    def forward(o_s: Tensor, o_p: Tensor, bandwidth: float) -> tuple[Tensor, ...]:
        o_s, o_p = o_s.contiguous(), o_p.contiguous()
        batch, width = o_s.shape[-2:]
        value, grads = o_s.new_empty(o_s.shape[:-2]), (torch.empty_like(o_s), torch.empty_like(o_p))
        memory = o_s.new_empty(batch * (5 * batch + 1))
        tensors = o_s, o_p, value, *grads
        steps = [tensor.numel() // max(1, value.numel()) * tensor.element_size() for tensor in tensors]
        for client in range(value.numel()):
            places = [tensor.data_ptr() + client * step for tensor, step in zip(tensors, steps, strict=True)]
            features, results = places[:2], places[2:]
            _library(o_s.dtype).hsic(batch, width, o_p.shape[-1], *features, bandwidth, memory.data_ptr(), *results)
        return value, *grads

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.save_for_backward(*output[1:])
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor, *unused: None) -> tuple[Tensor | None, ...]:
        grad_s, grad_p = ctx.saved_tensors
        upstream = upstream[..., None, None]
        return grad_s * upstream, grad_p * upstream, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, o_s: Tensor, o_p: Tensor, bandwidth: float) -> tuple[tuple[Tensor, ...], Any]:
        features = [
            tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in zip((o_s, o_p), in_dims, strict=False)
        ]
        return NativeHSIC.apply(*features, bandwidth), (0, 0, 0)


@dataclass(frozen=True)
class Terms:
    """Labels and settings of the loss terms of a batch; see ``KTEPS``.

    Attributes:
        labels_B: Class index of each text.
        projected: Whether there are projections.
        temperature: T of equation 8.
        standard: Whether distillation is the standard one.
        diverse: Whether there is the diversity term.
        bandwidth: Of its kernel; 0: the median.
    """

    labels_B: Tensor
    projected: bool
    temperature: float
    standard: bool
    diverse: bool
    bandwidth: float


class NativeTerms(torch.autograd.Function):
    """Cross-entropy of the shared and the private branch, transfer, and diversity (0 without it), of one client.

    Its arguments are the terms' settings, the outputs of the encoders, and weight and bias of the layers of each
    branch: of its projection, if there is one, and of its classifier.
    """

    @staticmethod
    def forward(
        ctx: Any, asked: Terms, shared_BF: Tensor, private_BF: Tensor, *parameters: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.same = shared_BF is private_BF
        shared_BF, private_BF = shared_BF.contiguous(), private_BF.contiguous()
        layers = parameters[2 * asked.projected : len(parameters) // 2]
        ctx.widths = places(shared_BF.shape[1], *(len(bias) for bias in layers[1::2]))
        library, labels_B, count = _library(shared_BF.dtype), asked.labels_B.contiguous(), len(layers) // 2
        ctx.head = len(shared_BF), asked.projected, count, ctx.widths
        ctx.memory = shared_BF.new_empty(library.terms_memory(len(shared_BF), count, ctx.widths))
        kept = [tensor.contiguous() for tensor in parameters]
        logs = torch.empty(3 * len(layers[-1]) + 4, dtype=torch.float64)
        values = logs[-4:]
        library.terms(
            *ctx.head,
            shared_BF.data_ptr(),
            private_BF.data_ptr(),
            addresses(kept),
            labels_B.data_ptr(),
            logs.data_ptr(),
            asked.temperature,
            asked.standard,
            asked.diverse,
            asked.bandwidth,
            ctx.memory.data_ptr(),
            values.data_ptr(),
        )
        ctx.diverse = asked.diverse
        ctx.save_for_backward(shared_BF, private_BF, *kept)
        return values.to(shared_BF.dtype).unbind()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *by: Tensor) -> tuple[Tensor | None, ...]:
        shared_BF, private_BF, *parameters = ctx.saved_tensors
        wanted = [*parameters, shared_BF] if ctx.same else [*parameters, shared_BF, private_BF]
        sizes = [tensor.numel() for tensor in wanted]
        pieces = shared_BF.new_zeros(sum(sizes)).split(sizes)
        grads = [piece.view(of.shape) for piece, of in zip(pieces, wanted, strict=True)]
        own = grads[len(parameters) :]
        slopes = (ctypes.c_double * 4)(*(slope.item() for slope in by))
        _library(shared_BF.dtype).terms_backward(
            *ctx.head,
            shared_BF.data_ptr(),
            private_BF.data_ptr(),
            addresses(parameters),
            ctx.diverse,
            slopes,
            ctx.memory.data_ptr(),
            addresses(grads[: len(parameters)]),
            own[0].data_ptr(),
            own[-1].data_ptr(),
        )
        return None, own[0], None if ctx.same else own[1], *grads[: len(parameters)]
