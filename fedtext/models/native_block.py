"""Engine native: blocks of transformers whose weights do not change, with their gradients, in C.

A block adds up twice: first what its attention makes of its inputs, then what its feed-forward part makes of that sum.
LayerNorm comes after either sum (BERT, DistilBERT), or before either part (GPT-2). A part is one function for autograd:
products are those of models/products.c, and what is between them is in models/between.c.

Legend: S tokens of all texts, D width of the block, F of the feed-forward part, R rank of an adapter.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from fedtext.models.adapted import FrozenLinear, LoRALinear, linear_of
from fedtext.models.native_attention import Attention, choice
from fedtext.models.native_between import KINDS, Norm, add_dropped, gelu, gelu_back
from fedtext.models.native_linear import Factors, gradients, outputs
from fedtext.models.native_products import in_c

_ACTIVATIONS = {"bert": "hidden_act", "distilbert": "activation", "gpt2": "activation_function"}
_FIRST = ("gpt2",)  # LayerNorm comes before the parts
# The modules of each architecture: attention and its dropout, and of either part LayerNorm and the outputs' dropout.
_NAMES = {
    "bert": (
        ("attention.self", "dropout"),
        ("attention.output.LayerNorm", "attention.output.dropout"),
        ("output.LayerNorm", "output.dropout"),
    ),
    "distilbert": (("attention", "dropout"), ("sa_layer_norm", ""), ("output_layer_norm", "ffn.dropout")),
    "gpt2": (("attn", "attn_dropout"), ("ln_1", "attn.resid_dropout"), ("ln_2", "mlp.dropout")),
}


@dataclass(frozen=True)
class _Linear:
    """A layer of a part in one call.

    Args:
        layer: The layer.
        weight: Its weight in that call.
        factors: Those of its adapter, if it has one.
        wanted: Whether gradients of A and B are wanted.
    """

    layer: FrozenLinear
    weight: Tensor
    factors: Factors | None
    wanted: Sequence[bool]

    def outputs(self, inputs: Tensor) -> tuple[Tensor, Tensor | None]:
        return outputs(self.layer, inputs, self.factors)

    def gradients(
        self, grad: Tensor, inputs: Tensor, between: Tensor | None, further: bool = True, sums: Tensor | None = None
    ) -> tuple[Tensor | None, list[Tensor | None]]:
        """Return the gradient of the inputs, and those of the factors."""
        if not (further or any(self.wanted)):
            return None, [None] * len(self.wanted)
        wanted = further, *(self.wanted or (False, False))
        found = gradients(grad, self.weight, self.factors, inputs, between, wanted, sums)
        return found[0], list(found[1 : 1 + len(self.wanted)])


class _Part(ABC):
    """A part of a block.

    Args:
        layers: Its linear layers, in the order of their keys.
        norm: Its LayerNorm, before it or after the sum.
        first: Whether that is before it.
        dropout: Dropout on its outputs; None: none.
    """

    def __init__(self, layers: Sequence[FrozenLinear], norm: nn.LayerNorm, first: bool, dropout: Any) -> None:
        self.layers, self.norm, self.first, self.dropout = layers, norm, first, dropout

    @property
    def whole(self) -> bool:
        """Whether all of it is computed in C."""
        return all(layer.alone for layer in self.layers if isinstance(layer, LoRALinear))

    @property
    def factors(self) -> list[Tensor]:
        """A and B of each adapted layer."""
        adapted = (layer for layer in self.layers if isinstance(layer, LoRALinear))
        return [factor for layer in adapted for factor in (layer.lora_A, layer.lora_B)]

    def linears(
        self, weights: Sequence[Tensor], factors: Sequence[Tensor], wanted: Sequence[bool]
    ) -> Iterator[_Linear]:
        """Yield the layers with their weights and factors, and whether the gradients of the factors are wanted."""
        at = 0
        for layer, weight in zip(self.layers, weights, strict=True):
            if isinstance(layer, LoRALinear):
                made = Factors(factors[at], factors[at + 1], layer.scale)
                yield _Linear(layer, weight, made, wanted[at : at + 2])
                at += 2
            else:
                yield _Linear(layer, weight, None, ())

    @abstractmethod
    def forward(self, linears: Sequence[_Linear], inputs_SD: Tensor, starts: Tensor) -> tuple[Tensor, tuple[Any, ...]]:
        """Return the outputs, shape (S, D), and what the gradients need."""

    @abstractmethod
    def backward(
        self, linears: Sequence[_Linear], grad_SD: Tensor, kept: tuple[Any, ...], further: bool, sums_SD: Tensor | None
    ) -> tuple[Tensor | None, list[Tensor | None]]:
        """Return the gradients of the inputs, added to sums if there are any, and those of the factors."""


class _AttentionPart(_Part):
    """Attention: queries, keys, values and outputs.

    Args:
        module: The attention of the package transformers.
        dropout: Name of its dropout of weights.
        heads: Number of heads.
        more: The arguments of ``_Part``.
    """

    def __init__(self, module: Any, dropout: str, heads: int, *more: Any) -> None:
        super().__init__(*more)
        self.module, self.weights, self.heads = module, getattr(module, dropout), heads

    def forward(self, linears: Sequence[_Linear], inputs_SD: Tensor, starts: Tensor) -> tuple[Tensor, tuple[Any, ...]]:
        made = [each.outputs(inputs_SD) for each in linears[:3]]
        rate = self.weights.p if self.weights.training else 0.0
        attention = Attention.drawn(starts, self.heads, self.module.scaling, rate, bool(self.module.is_causal))
        parts = [part for part, _ in made]
        mixed_SD = attention.outputs(*parts)
        outputs_SD, last = linears[3].outputs(mixed_SD)
        return outputs_SD, (inputs_SD, attention, parts, mixed_SD, [*(between for _, between in made), last])

    def backward(
        self, linears: Sequence[_Linear], grad_SD: Tensor, kept: tuple[Any, ...], further: bool, sums_SD: Tensor | None
    ) -> tuple[Tensor | None, list[Tensor | None]]:
        inputs_SD, attention, parts, mixed_SD, between = kept
        grad_mixed_SD, last = linears[3].gradients(grad_SD, mixed_SD, between[3])
        found: list[Tensor | None] = []
        for each, grad, beside in zip(linears, attention.gradients(*parts, grad_mixed_SD), between, strict=False):
            grad_inputs_SD, own = each.gradients(grad, inputs_SD, beside, further, sums_SD)
            sums_SD = sums_SD if grad_inputs_SD is None else grad_inputs_SD
            found += own
        return sums_SD, found + last


class _FeedForward(_Part):
    """Two layers with GELU between them.

    Args:
        kind: The kind of GELU.
        more: The arguments of ``_Part``.
    """

    def __init__(self, kind: int, *more: Any) -> None:
        super().__init__(*more)
        self.kind = kind

    def forward(self, linears: Sequence[_Linear], inputs_SD: Tensor, starts: Tensor) -> tuple[Tensor, tuple[Any, ...]]:
        raised_SF, first = linears[0].outputs(inputs_SD)
        active_SF = gelu(self.kind, raised_SF)
        outputs_SD, second = linears[1].outputs(active_SF)
        return outputs_SD, (inputs_SD, raised_SF, active_SF if any(linears[1].wanted) else None, first, second)

    def backward(
        self, linears: Sequence[_Linear], grad_SD: Tensor, kept: tuple[Any, ...], further: bool, sums_SD: Tensor | None
    ) -> tuple[Tensor | None, list[Tensor | None]]:
        inputs_SD, raised_SF, active_SF, first, second = kept
        grad_SF, last = linears[1].gradients(grad_SD, active_SF, second)
        assert grad_SF is not None
        sums_SD, found = linears[0].gradients(
            gelu_back(self.kind, raised_SF, grad_SF), inputs_SD, first, further, sums_SD
        )
        return sums_SD, found + last


class _Sum(Function):
    """The inputs plus what a part makes of them, with LayerNorm before it or after the sum."""

    @staticmethod
    def forward(ctx: Any, inputs_SD: Tensor, part: _Part, starts: Tensor, *factors: Tensor) -> Tensor:
        read_SD, norm = Norm.of(part.norm, inputs_SD) if part.first else (inputs_SD, None)
        weights, factors = [layer.weight for layer in part.layers], tuple(factor.contiguous() for factor in factors)
        linears = list(part.linears(weights, factors, ctx.needs_input_grad[3:]))
        values_SD, kept = part.forward(linears, read_SD, starts)
        rate = part.dropout.p if part.dropout is not None and part.dropout.training else 0.0
        drawn = choice(rate) if rate else (0, 0)
        outputs_SD = add_dropped(values_SD, rate, drawn, inputs_SD)
        if norm is None:
            outputs_SD, norm = Norm.of(part.norm, outputs_SD)
        ctx.part, ctx.norm, ctx.kept, ctx.dropout = part, norm, kept, (rate, drawn)
        ctx.save_for_backward(inputs_SD, part.norm.weight, *weights, *factors)
        return outputs_SD

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_SD: Tensor) -> tuple[Tensor | None, ...]:
        part, further = ctx.part, ctx.needs_input_grad[0]
        saved, count = ctx.saved_tensors[2:], len(part.layers)  # which raises an error if a tensor has changed
        linears = list(part.linears(saved[:count], saved[count:], ctx.needs_input_grad[3:]))
        grad_SD = grad_SD.contiguous()
        if not part.first:
            grad_SD = ctx.norm.back(grad_SD.clone())
        inner_SD = add_dropped(grad_SD, *ctx.dropout)
        sums_SD, found = part.backward(linears, inner_SD, ctx.kept, further, None if part.first else grad_SD)
        if part.first and sums_SD is not None:
            sums_SD = ctx.norm.back(sums_SD).add_(grad_SD)
        return sums_SD if further else None, None, None, *found


class NativeBlock(nn.Module):
    """A block that is computed in C where that is possible, and otherwise as the package transformers does it.

    Args:
        block: The block, whose modules keep their names.
        parts: The attention and the feed-forward part.
    """

    def __init__(self, block: nn.Module, parts: tuple[_Part, _Part]) -> None:
        super().__init__()
        self._modules = block._modules
        self._block, self._parts = (block,), parts  # in a tuple it is no module of this one

    def forward(self, hidden_1SD: Tensor, *more: Any, places: Any = None, **options: Any) -> Any:
        if places is None or places.starts is None or not in_c(hidden_1SD) or not all(p.whole for p in self._parts):
            return self._block[0](hidden_1SD, *more, places=places, **options)
        hidden_SD = hidden_1SD[0].contiguous()
        for part in self._parts:
            hidden_SD = _Sum.apply(hidden_SD, part, places.starts, *part.factors)
        return hidden_SD[None]


def into_c(blocks: nn.ModuleList, config: Any) -> None:
    """Replace the blocks of an adapted network by such that can be computed in C, if there are such.

    Args:
        blocks: The blocks.
        config: Their configuration in the package transformers.
    """
    kind = KINDS.get(getattr(config, _ACTIVATIONS[config.model_type]))
    if kind is None or getattr(config, "is_decoder", False) or getattr(config, "add_cross_attention", False):
        return
    for number, block in enumerate(blocks):
        blocks[number] = NativeBlock(block, _parts(block, config, kind))


def _parts(block: nn.Module, config: Any, kind: int) -> tuple[_Part, _Part]:
    architecture = config.model_type
    (attention, weights), *others = _NAMES[architecture]
    more = []
    for keys, (norm, dropout) in zip((("query", "key", "value", "output"), ("up", "down")), others, strict=True):
        layers = [linear_of(block, architecture, key) for key in keys]
        first = architecture in _FIRST
        more.append((layers, block.get_submodule(norm), first, block.get_submodule(dropout) if dropout else None))
    whole = block.get_submodule(attention), weights, config.num_attention_heads
    return _AttentionPart(*whole, *more[0]), _FeedForward(kind, *more[1])
