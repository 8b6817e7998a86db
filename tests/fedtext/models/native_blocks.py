"""Blocks of transformers in C, and networks that have them."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedtext.models.causal import CausalLanguageModel
from fedtext.models.fixed import blocks_of
from fedtext.models.native_block import NativeBlocks
from fedtext.models.native_products import products_in_c
from fedtext.models.transformer import TransformerClassifier, TransformerEncoder
from fedtext.models.unpadded import Places
from tests.checkpoints import SCRATCH

EVERY = ["query", "key", "value", "output", "up", "down"]
LENGTHS = np.array([3, 1, 5])
GPT = {"name": "causal", "embedding": {"dim": 12}, "layers": 1, "heads": 2, "positions": 40}


def network(architecture: str, rate: float = 0.0, layers: int = 1, **lora: Any) -> Any:
    """Make an encoder or decoder of width 12 in float64.

    Args:
        architecture: Its architecture.
        rate: Of dropout.
        layers: Number of blocks.
        lora: Keys of the adapter.
    """
    keys = {"dropout": rate, "layers": layers, "adapter": {"lora": {"rank": 2, "modules": EVERY} | lora}}
    torch.manual_seed(2)
    if architecture == "gpt2":
        found: Any = CausalLanguageModel.model_validate(GPT | keys).build(9, nn.Embedding(9, 12), weights=True)
    else:
        sizes = {"architecture": architecture, "embedding": {"dim": 12}}
        found = TransformerEncoder(TransformerClassifier.model_validate(SCRATCH | sizes | keys))
    for tensor in found.state_dict().values():
        nn.init.normal_(tensor, std=0.3)
    return found.double()


def block(architecture: str, rate: float = 0.0, layers: int = 1, **lora: Any) -> NativeBlocks:
    """Make blocks of width 12 in float64, with the arguments of ``network``."""
    (found,) = blocks_of(network(architecture, rate, layers, **lora).run.__self__)
    assert isinstance(found, NativeBlocks)
    return found


def in_c(outputs: Tensor) -> bool:
    """Whether they come from a part in C."""
    unsqueezed = outputs.grad_fn.next_functions[0][0]  # type: ignore[union-attr]
    return "_InCBackward" in str(unsqueezed.next_functions)  # type: ignore[union-attr]


def run(made: nn.Module, inputs_SD: Tensor, native: bool = True) -> Tensor:
    places = Places.of(LENGTHS, 5, inputs_SD.device, in_c=True)
    torch.manual_seed(7)
    with products_in_c(native):
        found: Tensor = made(inputs_SD[None], places=places)[0]
    return found


def inputs(requires_grad: bool = True) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(9, 12, dtype=torch.float64, generator=generator).requires_grad_(requires_grad)


def rounded(tensor: Tensor) -> Tensor:
    return tensor.bfloat16().to(tensor.dtype)


class Rounded(torch.autograd.Function):
    """A product of which either factor is rounded to bfloat16, as is the gradient of its outputs."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        return rounded(inputs) @ rounded(weight).t() + bias

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return rounded(grad) @ rounded(ctx.saved_tensors[0]), None, None
