"""Engine native: recurrent layers in C (models/native.c).

A layer with its projections, the mean of each text's states, and all gradients, is one function: each row reads its
projected input, and adds to that input's gradient, in the loop itself, and no copies of all rows or weights are made.

Legend: N inputs of a client, I width of an input, C clients of a stack, K directions, L = C x K lanes, P packed rows, H
hidden, G gates (3H of a GRU, 4H of an LSTM), S rows of a lane, B texts, F = K x H features.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedtext.models.functions import MappedFunction, first_order, merged
from fedtext.models.packing import Packing
from fedtext.runtime.compiled import compiled

SOURCE = Path(__file__).with_name("native.c")


class _Layer(ctypes.Structure):
    """``layer`` of models/native.c."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("parts", "steps", "lanes", "directions", "width", "inputs", "depth")),
        *((name, ctypes.c_void_p) for name in ("starts", "source", "order", "lengths", "weights")),
    ]


@cache
def _library(dtype: torch.dtype) -> ctypes.CDLL:
    library, place, pointer = compiled(SOURCE, dtype), ctypes.c_int64, ctypes.c_void_p
    library.forward.argtypes, library.backward.argtypes = [pointer] * 9, [pointer] * 14
    library.memory.argtypes, library.memory.restype = [pointer], place
    return library


def layer_states(
    inputs_NI: Tensor, source_P: Tensor, packing: Packing, means: bool, parameters: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Compute the states of a layer.

    Args:
        inputs_NI: The inputs, contiguous.
        source_P: The projected input of each row.
        packing: The packing.
        means: Whether the means of the texts' states are wanted.
        parameters: Its parameters, as ``cells.Directions`` takes them.

    Returns:
        With ``means`` first the means, (B, F); then hidden_PH, gates_P4H (of a GRU r, z, the recurrent part of n, and
        n), and of an LSTM c and tanh(c), (P, H).
    """
    gates, width = parameters[len(parameters) // 4].shape[-2:]
    hidden_PH = inputs_NI.new_empty(len(source_P), width)
    gates_P4H = inputs_NI.new_empty(len(source_P), 4, width)
    states = [torch.empty_like(hidden_PH) for _ in range(2 if gates == 4 * width else 0)]
    texts = packing.clients * packing.texts
    pooled = [inputs_NI.new_empty(texts, packing.directions * width)] if means else []
    projected_NG = inputs_NI.new_empty(len(inputs_NI) * packing.directions, gates)
    layer, used = _layer(inputs_NI, source_P, packing, parameters)
    library = _library(inputs_NI.dtype)
    memory = inputs_NI.new_empty(library.memory(layer))
    cells, means_BF = states or (None, None), pooled[0] if pooled else None
    tensors = inputs_NI, memory, projected_NG, gates_P4H, hidden_PH, *cells, means_BF
    library.forward(layer, *map(_address, tensors))
    del used
    return *pooled, hidden_PH, gates_P4H, *states


def layer_gradients(
    inputs_NI: Tensor,
    source_P: Tensor,
    packing: Packing,
    means: bool,
    parameters: Sequence[Tensor],
    states: Sequence[Tensor],
    grad: Tensor,
    grads: Sequence[Tensor],
    grad_inputs: Tensor | None,
) -> None:
    """Add the gradients of a layer to ``grads``, those of its parameters, and to ``grad_inputs``.

    Args:
        inputs_NI, source_P, packing, means, parameters: As in ``layer_states``.
        states: What that returned, without the means.
        grad: The gradient of the means, or without them of hidden_PH; contiguous.
        grads: Of the shapes of ``parameters``, contiguous.
        grad_inputs: Of the shape of ``inputs_NI``; None: not wanted.
    """
    hidden_PH, gates_P4H, *cells = states
    gates, width = parameters[len(parameters) // 4].shape[-2:]
    layer, used = _layer(inputs_NI, source_P, packing, parameters)
    library, rows = _library(grad.dtype), len(source_P)
    memory = grad.new_empty(library.memory(layer))
    scratch = grad.new_empty(rows * (gates + width))
    grad_projected = grad.new_zeros(len(inputs_NI) * packing.directions, gates)
    given = (None, grad) if means else (grad, None)
    tensors = inputs_NI, memory, *given, gates_P4H, hidden_PH, *(cells or (None, None)), grad_projected
    tensors = *tensors, scratch, scratch[rows * gates :], grad_inputs
    library.backward(layer, *map(_address, tensors), _addresses(grads, packing))
    del used


class Layer(MappedFunction):
    """A layer of a GRU or LSTM: from inputs_NI to hidden_PH, or with ``means`` to the means of texts' states, (B, F).

    The last arguments are its parameters, as ``cells.Directions`` takes them. In a stack the clients' inputs are
    one after the other, and each parameter has a leading axis of clients.
    """

    @staticmethod
    def forward(
        inputs_NI: Tensor, source_P: Tensor, packing: Packing, means: bool, *parameters: Tensor
    ) -> tuple[Tensor, ...]:
        return layer_states(inputs_NI.contiguous(), source_P, packing, means, parameters)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        inputs_NI, source_P, ctx.packing, ctx.means, *parameters = inputs
        ctx.save_for_backward(inputs_NI, source_P, *parameters, *output[int(ctx.means) :])
        ctx.parameters = len(parameters)
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    @first_order
    def backward(ctx: Any, grad: Tensor, *unused: None) -> tuple[Tensor | None, ...]:
        inputs_NI, source_P, *saved = ctx.saved_tensors
        parameters, states = saved[: ctx.parameters], saved[ctx.parameters :]
        inputs_NI, wanted = inputs_NI.contiguous(), [*parameters, inputs_NI][: ctx.parameters + ctx.needs_input_grad[0]]
        sizes = [tensor.numel() for tensor in wanted]
        pieces = grad.new_zeros(sum(sizes)).split(sizes)
        grads = [piece.view(of.shape) for piece, of in zip(pieces, wanted, strict=True)]
        grad_inputs = grads.pop() if ctx.needs_input_grad[0] else None
        given = inputs_NI, source_P, ctx.packing, ctx.means, parameters, states, grad.contiguous()
        layer_gradients(*given, grads, grad_inputs)
        return grad_inputs, None, None, None, *grads

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, inputs_NI: Tensor, source_P: Tensor, packing: Packing, means: bool, *parameters: Tensor
    ) -> tuple[tuple[Tensor, ...], Any]:
        together = merged(info.batch_size, in_dims[0], inputs_NI)
        each = [
            parameter.expand(info.batch_size, *parameter.shape) if dim is None else parameter.movedim(dim, 0)
            for dim, parameter in zip(in_dims[4:], parameters, strict=True)
        ]
        outputs = Layer.apply(together, source_P, packing, means, *each)
        return tuple(output.unflatten(0, (info.batch_size, -1)) for output in outputs), (0,) * len(outputs)


def _layer(
    inputs_NI: Tensor, source_P: Tensor, packing: Packing, parameters: Sequence[Tensor]
) -> tuple[Any, list[Any]]:
    """Return the description of a layer for models/native.c, and what must be referenced as long as it is used."""
    kept = [parameter if _dense(parameter, packing) else parameter.contiguous() for parameter in parameters]
    gates, width = kept[len(kept) // 4].shape[-2:]
    weights = _addresses(kept, packing)
    layer = _Layer(
        gates // width,
        len(packing.sizes_T),
        packing.lanes,
        packing.directions,
        width,
        len(inputs_NI) // packing.clients,
        inputs_NI.shape[1],
        packing.starts.data_ptr(),
        source_P.data_ptr(),
        packing.order.data_ptr(),
        packing.lengths.data_ptr(),
        ctypes.addressof(weights),
    )
    return ctypes.byref(layer), [kept, weights]


def _dense(parameter: Tensor, packing: Packing) -> bool:
    """Whether the parameter of each client is contiguous."""
    return parameter.is_contiguous() or (packing.clients > 1 and parameter[0].is_contiguous())


def _addresses(parameters: Sequence[Tensor], packing: Packing) -> Any:
    """Return the addresses of each lane's parameters: of all kinds, the lanes in order."""
    directions, bytes_ = packing.directions, parameters[0].element_size()
    stacked = parameters[-1].dim() == 2  # a bias
    steps = [parameter.stride(0) * bytes_ if stacked else 0 for parameter in parameters]
    starts = [parameter.data_ptr() for parameter in parameters]
    found = [
        starts[place] + client * steps[place]
        for client in range(packing.clients)
        for direction in range(directions)
        for place in range(direction, len(parameters), directions)
    ]
    return (ctypes.c_void_p * len(found))(*found)


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
