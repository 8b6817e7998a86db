"""Engine native: blocks of transformers whose weights do not change, with their gradients, in C (models/transformer.c).

Legend: S tokens of all texts, D width of a block.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from fedtext.models.adapted import FrozenLinear, LoRALinear, linear_of
from fedtext.models.functions import first_order
from fedtext.models.native_attention import Attention, Dropout
from fedtext.models.native_linear import Factors, Panels, grad_of, layer_in_c
from fedtext.models.native_products import halves_in_c, in_c
from fedtext.models.native_transformer import ALONE, BACKWARD, KEEPING, LAYERS, PARTS, Adapted, Block, Sum, library
from fedtext.runtime.compiled import address

_KINDS = {"gelu": 0, "gelu_new": 1, "gelu_pytorch_tanh": 1}  # of GELU, by their names in the package transformers
_ACTIVATIONS = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta"), "hidden_act"),
    "distilbert": "activation",
    "gpt2": "activation_function",
}
_FIRST = ("gpt2",)  # LayerNorm comes before the parts
_KEYS = ("query", "key", "value", "output", "up", "down")  # of the layers, in the order of models/transformer.c
IN_C = tuple(_ACTIVATIONS)  # architectures whose blocks engine native computes as a whole
# The modules of each architecture: attention and its dropout, and of either part LayerNorm and the outputs' dropout.
_BERT = (
    ("attention.self", "dropout"),
    ("attention.output.LayerNorm", "attention.output.dropout"),
    ("output.LayerNorm", "output.dropout"),
)
_NAMES = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta"), _BERT),
    "distilbert": (("attention", "dropout"), ("sa_layer_norm", ""), ("output_layer_norm", "ffn.dropout")),
    "gpt2": (("attn", "attn_dropout"), ("ln_1", "attn.resid_dropout"), ("ln_2", "mlp.dropout")),
}


@dataclass(frozen=True)
class _Parts:
    """Layers and settings of a block, as the C code takes them.

    Attributes:
        layers: The linear layers, in the order of ``_KEYS``.
        norms: LayerNorm of attention and of the feed-forward part.
        dropouts: Dropout on the outputs of each; None: none.
        attention: The attention of the package transformers.
        weights: Dropout on its weights.
        heads: Number of its heads.
        first: Whether LayerNorm comes before a part, and not after its sum.
        kind: The kind of GELU.
    """

    layers: Sequence[FrozenLinear]
    norms: Sequence[Any]
    dropouts: Sequence[Any]
    attention: Any
    weights: Any
    heads: int
    first: bool
    kind: int

    @property
    def adapted(self) -> list[tuple[int, LoRALinear]]:
        """The layers that have an adapter, and their places."""
        return [(place, layer) for place, layer in enumerate(self.layers) if isinstance(layer, LoRALinear)]

    @property
    def whole(self) -> bool:
        """Whether all of it is computed in C."""
        return all(layer.alone for _, layer in self.adapted)

    @property
    def always(self) -> bool:
        """Whether it is in training too."""
        return all(layer.lora_residual is None and not layer.dropout.p for _, layer in self.adapted)

    @property
    def factors(self) -> list[Tensor]:
        """A and B of each adapted layer."""
        return [factor for _, layer in self.adapted for factor in (layer.lora_A, layer.lora_B)]

    @property
    def fixed(self) -> list[Tensor]:
        """The other tensors that the gradients depend on."""
        return [*(layer.weight for layer in self.layers), *(norm.weight for norm in self.norms)]

    def drawn(self, inputs_SD: Tensor, starts: Tensor, factors: Iterator[Tensor], panels: Sequence[Panels]) -> Block:
        """Return the block for C, which has the addresses of these tensors. What dropout leaves is drawn.

        Args:
            inputs_SD: The inputs of the first block.
            starts: Index of each text's first token, and at the end S.
            factors: A and B of each adapted layer, and then those of later blocks.
            panels: The weight of each layer, packed.
        """
        (rows, width), module = inputs_SD.shape, self.attention
        attention = Attention(starts, self.heads, module.scaling, bool(module.is_causal), _drawn(self.weights))
        sums = [_sum(*each) for each in zip(self.norms, self.dropouts, strict=True)]
        layers = []
        for layer, packed in zip(self.layers, panels, strict=True):
            beside = Factors(next(factors), next(factors), layer.scale) if isinstance(layer, LoRALinear) else None
            layers.append(layer_in_c(rows, layer.weight, layer.bias, beside, packed))
        assert inputs_SD.dtype == self.norms[0].weight.dtype == self.layers[0].weight.dtype
        arrays = (LAYERS * Adapted)(*layers), (PARTS * Sum)(*sums)
        return Block(rows, self.first, self.kind, *arrays, attention.layout(width))


def _drawn(dropout: Any) -> Dropout:
    return Dropout.drawn(dropout.p if dropout is not None and dropout.training else 0.0)


def _sum(norm: Any, dropout: Any) -> Sum:
    return Sum(norm.weight.data_ptr(), norm.bias.data_ptr(), norm.eps, *_drawn(dropout))


class _InC(Function):
    """Blocks with their gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs_SD: Tensor,
        parts: Sequence[_Parts],
        starts: Tensor,
        halves: bool,
        moves: bool,
        *factors: Tensor,
    ) -> Tensor:
        """Compute the outputs.

        Args:
            inputs_SD: The inputs of the first block, contiguous.
            parts: The blocks.
            starts: Index of each text's first token, and at the end S.
            halves: Whether factors of the products with weights are rounded to bfloat16.
            moves: Whether gradients follow.
            factors: A and B of each adapted layer.
        """
        factors, outputs_SD = tuple(factor.contiguous() for factor in factors), torch.empty_like(inputs_SD)
        panels = [[layer.panels(halves) for layer in each.layers] for each in parts]
        rest = iter(factors)
        made = [each.drawn(inputs_SD, starts, rest, packed) for each, packed in zip(parts, panels, strict=True)]
        blocks, functions = (len(made) * Block)(*made), library(inputs_SD.dtype)
        kept = inputs_SD.new_empty(functions.kept_size(len(made), blocks)) if moves else None
        scratch = inputs_SD.new_empty(functions.scratch_size(len(made), blocks, KEEPING if moves else ALONE))
        tensors = inputs_SD, kept, scratch, outputs_SD
        functions.blocks_outputs(len(made), blocks, *map(address, tensors))
        # Nothing else may hold what C has addresses of.
        ctx.blocks, ctx.kept, ctx.starts, ctx.panels, ctx.count = blocks, kept, starts, panels, len(factors)
        ctx.places = [(number, place) for number, each in enumerate(parts) for place, _ in each.adapted]
        ctx.save_for_backward(inputs_SD, *factors, *(tensor for each in parts for tensor in each.fixed))
        return outputs_SD

    @staticmethod
    @first_order
    def backward(ctx: Any, grad_SD: Tensor) -> tuple[Tensor | None, ...]:
        blocks, saved = ctx.blocks, ctx.saved_tensors  # which raises an error if a tensor has changed
        inputs_SD, factors = saved[0], saved[1 : 1 + ctx.count]
        further, _, _, _, _, *wanted = ctx.needs_input_grad
        grads = [grad_of(factor, len(inputs_SD), each) for factor, each in zip(factors, wanted, strict=True)]
        for (number, place), grad_a, grad_b in zip(ctx.places, grads[::2], grads[1::2], strict=True):
            layer = blocks[number].layers[place]
            layer.grad_a, layer.grad_b = address(grad_a), address(grad_b)
        grads_SD, functions = grad_SD.clone(memory_format=torch.contiguous_format), library(inputs_SD.dtype)
        scratch = inputs_SD.new_empty(functions.scratch_size(len(blocks), blocks, BACKWARD))
        kept = map(address, (inputs_SD, ctx.kept))
        functions.blocks_gradients(len(blocks), blocks, *kept, further, address(scratch), address(grads_SD))
        return grads_SD if further else None, None, None, None, None, *grads


class NativeBlocks(nn.Module):
    """Blocks that are computed in C where that is possible, and otherwise as the package transformers does it.

    Args:
        blocks: The blocks.
        config: Their configuration in the package transformers.
        kind: Their kind of GELU.
    """

    def __init__(self, blocks: Sequence[nn.Module], config: Any, kind: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self._parts = [_parts(block, config, kind) for block in blocks]

    def forward(self, hidden_1SD: Tensor, *more: Any, places: Any = None, **options: Any) -> Tensor:
        halves = halves_in_c(hidden_1SD)
        native = places is not None and places.starts is not None and (halves or in_c(hidden_1SD))
        pairs = zip(self.blocks, self._parts, strict=True)
        for whole, found in groupby(pairs, lambda pair: native and pair[1].whole):
            if whole:
                hidden_1SD = _run([parts for _, parts in found], hidden_1SD, places.starts, halves)
                continue
            for block, _ in found:
                hidden_1SD = block(hidden_1SD, *more, places=places, **options)
        return hidden_1SD


def always_in_c(blocks: nn.ModuleList) -> bool:
    """Return whether these blocks, as ``into_c`` returns them, are computed in C also where they are trained."""
    return all(isinstance(each, NativeBlocks) and all(parts.always for parts in each._parts) for each in blocks)


def _run(parts: Sequence[_Parts], hidden_1SD: Tensor, starts: Tensor, halves: bool) -> Tensor:
    factors = [factor for each in parts for factor in each.factors]
    moves = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (hidden_1SD, *factors))
    found: Tensor = _InC.apply(hidden_1SD[0].contiguous(), parts, starts, halves, moves, *factors)
    return found[None]


def into_c(blocks: nn.ModuleList, config: Any) -> nn.ModuleList:
    """Return the blocks of an adapted network, as one that computes them in C, if there is such for them.

    Args:
        blocks: The blocks.
        config: Their configuration in the package transformers.
    """
    activation = _ACTIVATIONS.get(config.model_type)
    kind = _KINDS.get(getattr(config, activation)) if activation else None
    if kind is None or getattr(config, "is_decoder", False) or getattr(config, "add_cross_attention", False):
        return blocks
    return nn.ModuleList([NativeBlocks(list(blocks), config, kind)])


def _parts(block: nn.Module, config: Any, kind: int) -> _Parts:
    architecture = config.model_type
    (attention, weights), *others = _NAMES[architecture]
    module = block.get_submodule(attention)
    return _Parts(
        layers=[linear_of(block, architecture, key) for key in _KEYS],
        norms=[block.get_submodule(norm) for norm, _ in others],
        dropouts=[block.get_submodule(dropout) if dropout else None for _, dropout in others],
        attention=module,
        weights=getattr(module, weights),
        heads=config.num_attention_heads,
        first=architecture in _FIRST,
        kind=kind,
    )
