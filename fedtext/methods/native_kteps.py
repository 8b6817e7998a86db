"""Engine native: the loss terms of KTEPS, and HSIC alone for clients of a stack, in C (methods/kteps.c).

Legend: C clients of a stack, B batch, F features.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedtext.models.functions import MappedFunction, first_order
from fedtext.runtime.compiled import addresses, compiled, places

SOURCE = Path(__file__).with_name("kteps.c")


@cache
def _library(dtype: torch.dtype) -> ctypes.CDLL:
    library, place, pointer = compiled(SOURCE, dtype), ctypes.c_int64, ctypes.c_void_p
    real = {torch.float32: ctypes.c_float, torch.float64: ctypes.c_double}[dtype]
    library.hsic_memory.argtypes, library.hsic_memory.restype = [place], place
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
        memory = o_s.new_empty(_library(o_s.dtype).hsic_memory(batch))
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
    @first_order
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


@dataclass(frozen=True)
class Branches:
    """The terms of a batch after ``compute``, from which ``gradients`` goes back.

    Attributes:
        asked: The terms' settings.
        shared_BF, private_BF: The outputs of the encoders, contiguous; they may be the same.
        parameters: Weight and bias of the layers of each branch, contiguous: of its projection, if there is one, and of
            its classifier.
        head: Arguments of the functions in C.
        memory: What they keep.
        values: Cross-entropy of the shared and the private branch, transfer, and diversity (0 without it), in float64.
    """

    asked: Terms
    shared_BF: Tensor
    private_BF: Tensor
    parameters: Sequence[Tensor]
    head: tuple[Any, ...]
    memory: Tensor
    values: Tensor

    @staticmethod
    def compute(asked: Terms, shared_BF: Tensor, private_BF: Tensor, parameters: Sequence[Tensor]) -> "Branches":
        """Compute the terms of a batch.

        Args:
            asked: The terms' settings.
            shared_BF, private_BF: The outputs of the encoders, contiguous; they may be the same.
            parameters: As in the attributes.
        """
        layers = parameters[2 * asked.projected : len(parameters) // 2]
        sizes, count = [shared_BF.shape[1], *(len(bias) for bias in layers[1::2])], len(layers) // 2
        expected = [(sizes[0], sizes[0])] * asked.projected + list(zip(sizes[1:], sizes, strict=False))
        # C reads as many numbers as these sizes say, whatever the tensors hold.
        assert [tuple(weight.shape) for weight in parameters[::2]] == 2 * expected
        assert [len(bias) for bias in parameters[1::2]] == 2 * [out for out, _ in expected]
        assert private_BF.shape == shared_BF.shape
        widths, library = places(*sizes), _library(shared_BF.dtype)
        head = len(shared_BF), asked.projected, count, widths
        memory = shared_BF.new_empty(library.terms_memory(len(shared_BF), count, widths))
        logs = torch.empty(3 * len(layers[-1]) + 4, dtype=torch.float64)
        values = logs[-4:]
        library.terms(
            *head,
            shared_BF.data_ptr(),
            private_BF.data_ptr(),
            addresses(parameters),
            asked.labels_B.data_ptr(),
            logs.data_ptr(),
            asked.temperature,
            asked.standard,
            asked.diverse,
            asked.bandwidth,
            memory.data_ptr(),
            values.data_ptr(),
        )
        return Branches(asked, shared_BF, private_BF, parameters, head, memory, values)

    def gradients(
        self, by: Sequence[float], grads: Sequence[Tensor], grad_shared_BF: Tensor, grad_private_BF: Tensor
    ) -> None:
        """Add the gradients of the weighted terms.

        Args:
            by: The weight of each term, in the order of ``values``.
            grads: The gradients of ``parameters``, contiguous.
            grad_shared_BF, grad_private_BF: Those of the encoders' outputs, which are the same if these are.
        """
        _library(self.shared_BF.dtype).terms_backward(
            *self.head,
            self.shared_BF.data_ptr(),
            self.private_BF.data_ptr(),
            addresses(self.parameters),
            self.asked.diverse,
            (ctypes.c_double * 4)(*by),
            self.memory.data_ptr(),
            addresses(grads),
            grad_shared_BF.data_ptr(),
            grad_private_BF.data_ptr(),
        )


class NativeTerms(torch.autograd.Function):
    """The terms of one client's batch, ``Branches.values``, for autograd.

    Its arguments are the terms' settings, the outputs of the encoders, and the parameters of ``Branches``.
    """

    @staticmethod
    def forward(
        ctx: Any, asked: Terms, shared_BF: Tensor, private_BF: Tensor, *parameters: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.same = shared_BF is private_BF
        kept = [tensor.contiguous() for tensor in parameters]
        ctx.branches = Branches.compute(asked, shared_BF.contiguous(), private_BF.contiguous(), kept)
        return ctx.branches.values.to(shared_BF.dtype).unbind()

    @staticmethod
    @first_order
    def backward(ctx: Any, *by: Tensor) -> tuple[Tensor | None, ...]:
        branches, count = ctx.branches, len(ctx.branches.parameters)
        wanted = [*branches.parameters, branches.shared_BF, *([] if ctx.same else [branches.private_BF])]
        sizes = [tensor.numel() for tensor in wanted]
        pieces = branches.shared_BF.new_zeros(sum(sizes)).split(sizes)
        grads = [piece.view(of.shape) for piece, of in zip(pieces, wanted, strict=True)]
        own = grads[count:]
        branches.gradients([slope.item() for slope in by], grads[:count], own[0], own[-1])
        return None, own[0], None if ctx.same else own[1], *grads[:count]
