"""Layers whose weights stay as they are, alone or with a few parameters beside them (Hu et al. 2022, LoRA).

An adapted network of layers has no other parameters than those of its adapters: its weights are buffers, which neither
move nor leave the process that has built them from the checkpoint or the seed. A linear layer y = W x + b becomes

    y = W x + b + s (B A x + R x),    s = alpha / rank

with factors A of shape (rank, in) and B of shape (out, rank). R, of the shape of W, is there with ``residual`` only: it
is the server's, which puts into it what the mean of the factors lacks (``server.aggregation: lora``).

Legend: S tokens, I inputs and O outputs of a layer, R rank.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from fedtext.models.adapters import A, Adapter, LoRA
from fedtext.models.architectures import ARCHITECTURES
from fedtext.models.native_linear import Factors, LinearInC, Panels
from fedtext.models.native_products import Packed, halves_in_c, in_c

Made = TypeVar("Made")


class FrozenLinear(nn.Module):
    """A linear layer whose weight and bias are buffers.

    What is made of the weight for products, a copy in another precision or order, is kept as long as it does not
    change.

    Args:
        base: The layer.
    """

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.weight: Tensor
        self.bias: Tensor | None
        self.register_buffer("weight", base.weight.detach())
        self.register_buffer("bias", None if base.bias is None else base.bias.detach())
        self._made: dict[str, tuple[Tensor, tuple[int, int], Any]] = {}

    def forward(self, inputs: Tensor) -> Tensor:
        if (halves := halves_in_c(inputs)) or in_c(inputs):
            return self._in_c(inputs, None, halves)
        device, single = inputs.device.type, inputs.dtype != torch.float64 and self.weight.dtype == torch.float32
        if not (single and torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)):
            return linear(inputs, self.weight, self.bias)
        dtype = torch.get_autocast_dtype(device)
        return linear(inputs, self._of_weight(str(dtype), lambda weight: weight.to(dtype)), self.bias)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_made": {}}  # a copy has another weight

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "FrozenLinear":
        self._made.clear()
        super()._apply(fn, recurse)
        return self

    def _in_c(self, inputs: Tensor, factors: Factors | None, halves: bool) -> Tensor:
        given = (None, None, 0.0) if factors is None else (factors.a_RI, factors.b_OR, factors.scale)
        found: Tensor = LinearInC.apply(inputs.flatten(0, -2), *given, self, halves)
        return found.unflatten(0, inputs.shape[:-1])

    def packed(self) -> Packed:
        """Return the transposed weight for products in C."""
        return self._of_weight("packed", lambda weight: Packed.of(weight.t()))

    def panels(self, halves: bool) -> Panels:
        """Return the weight for products in C.

        Args:
            halves: Whether factors of products are rounded to bfloat16.
        """
        return self._of_weight("halves", Panels.halves) if halves else Panels(self.packed().panels)

    def _of_weight(self, name: str, make: Callable[[Tensor], Made]) -> Made:
        weight = self.weight
        if weight.is_inference():  # whose changes are not counted
            return make(weight)
        of, kept = (weight.data_ptr(), weight._version), self._made.get(name)
        if kept is None or kept[0] is not weight or kept[1] != of:
            kept = self._made[name] = weight, of, make(weight)
        found: Made = kept[2]
        return found


class LoRALinear(FrozenLinear):
    """A linear layer with an adapter. Only the factors, and the residual, are parameters.

    Args:
        base: The layer, whose weights become buffers.
        config: The keys.
    """

    def __init__(self, base: nn.Linear, config: LoRA) -> None:
        super().__init__(base)
        self.scale, self.dropout = config.alpha / config.rank, nn.Dropout(config.dropout)
        first = torch.empty(config.rank, base.in_features)
        nn.init.kaiming_uniform_(first, a=math.sqrt(5))
        self.lora_A: Tensor
        if config.train == "both":
            self.lora_A = nn.Parameter(first)
        else:
            self.register_buffer(A, first)
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, config.rank))
        self.lora_residual = nn.Parameter(torch.zeros_like(base.weight)) if config.residual else None

    @property
    def alone(self) -> bool:
        """Whether there is nothing beside the weight but the product of the factors."""
        return self.lora_residual is None and not (self.training and self.dropout.p > 0)

    def forward(self, inputs: Tensor) -> Tensor:
        if self.alone and ((halves := halves_in_c(inputs)) or in_c(inputs)):
            return self._in_c(inputs, Factors(self.lora_A, self.lora_B, self.scale), halves)
        beside = linear(linear(self.dropout(inputs), self.lora_A), self.lora_B)
        if self.lora_residual is not None:
            beside = beside + linear(inputs, self.lora_residual)
        return super().forward(inputs) + self.scale * beside


def adapt(encoder: nn.Module, architecture: str, blocks: nn.ModuleList, config: Adapter) -> None:
    """Replace the layers of an encoder that are adapted, and turn all of its own parameters into buffers.

    Args:
        encoder: The encoder.
        architecture: Name of its architecture.
        blocks: Its blocks.
        config: The keys.

    Raises:
        UserError: It has fewer blocks than are to be adapted.
    """
    _straighten(encoder)
    lora = config.lora
    for block in list(blocks)[config.fixed(len(blocks)) :]:
        for path, module in list(block.named_modules()):
            if lora and ARCHITECTURES[architecture].kind(path) in lora.modules:
                parent, _, leaf = path.rpartition(".")
                assert isinstance(module, nn.Linear)
                setattr(block.get_submodule(parent), leaf, LoRALinear(module, lora))
    for path, module in list(encoder.named_modules()):
        if isinstance(module, nn.Linear):
            parent, _, leaf = path.rpartition(".")
            setattr(encoder.get_submodule(parent), leaf, FrozenLinear(module))
    for module in encoder.modules():
        if isinstance(module, FrozenLinear):
            continue
        for name, parameter in list(module._parameters.items()):
            del module._parameters[name]
            module.register_buffer(name, None if parameter is None else parameter.detach())


class Joined(nn.Module):
    """Linear layers of the same input, whose outputs are laid end to end: the query, key and value of GPT-2.

    Args:
        weight: Their weights, of shape (in, 3 out).
        bias: Their biases, of shape (3 out,).
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        parts = zip(weight.chunk(3, 1), bias.chunk(3), strict=True)
        self.query, self.key, self.value = (_linear(*part) for part in parts)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.cat([self.query(inputs), self.key(inputs), self.value(inputs)], -1)


def _straighten(encoder: nn.Module) -> None:
    """Replace GPT-2's layers, whose weights are transposed, by linear ones. What was one layer of query, key and value
    is three of them afterwards."""
    for path, module in list(encoder.named_modules()):
        if type(module).__name__ != "Conv1D":
            continue
        parent, _, leaf = path.rpartition(".")
        weight, bias = module.weight, module.bias
        assert isinstance(weight, Tensor)
        assert isinstance(bias, Tensor)
        setattr(encoder.get_submodule(parent), leaf, (Joined if leaf == "c_attn" else _linear)(weight, bias))


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    """Make a linear layer of a weight of shape (in, out)."""
    made = nn.Linear(weight.shape[0], weight.shape[1], device="meta")
    made.weight, made.bias = nn.Parameter(weight.detach().t().contiguous()), nn.Parameter(bias.detach().clone())
    return made


def linear_of(block: nn.Module, architecture: str, key: str) -> FrozenLinear:
    """Return a layer of an adapted block.

    Args:
        block: The block.
        architecture: Name of its architecture.
        key: The key of the layer.
    """
    layer = block.get_submodule(ARCHITECTURES[architecture].linear[key])
    assert isinstance(layer, FrozenLinear)
    return layer
