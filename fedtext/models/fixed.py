"""Layers that never change: those before the first adapted block. Each text's outputs are computed once.

Legend: B texts, T tokens of a text, D embedding.
"""

import copy
import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedtext.models.architectures import ARCHITECTURES, Architecture
from fedtext.models.native_block import always_in_c, into_c
from fedtext.models.native_products import wanted_in_c
from fedtext.models.unpadded import Places, run_unpadded

MB = 1_000_000


class Fixed:
    """A network of the package transformers in two parts: the layers before a block, which never change, and the rest.

    Both are networks of the same class with the same modules: parameters are not copied.

    A text goes through the first part by itself, whichever others are in its batch. Its outputs are therefore the same
    bits whenever they are computed, and results do not depend on what is stored. What no longer fits is computed each
    time, and nothing makes room for it: clients come back in turns, and the oldest entry is the next that is needed.

    Args:
        network: The network, without a word table.
        first: Number of blocks before.
        megabytes: Of outputs that are stored at most.
        finish: What is computed of the outputs of a text, of shape (T, D), before they are stored.

    Attributes:
        above: The rest, from the outputs of the first part.
    """

    def __init__(
        self, network: Any, first: int, megabytes: float, finish: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        architecture, blocks = _architecture(network), blocks_of(network)
        inputs = {name: _STAND_INS[name]() for name in architecture.before}
        self.below = with_blocks(network, blocks[:first], {name: nn.Identity() for name in architecture.after})
        self.above = with_blocks(network, blocks[first:], inputs)
        self.whole = always_in_c(blocks_of(self.below))
        self.modules = [*(getattr(network, name) for name in inputs), *blocks[:first]]
        self.left, self.finish = int(megabytes * MB), finish
        self.stored: dict[bytes, Tensor] = {}

    def rest(self) -> None:
        """Turn dropout off in the first part."""
        for module in self.modules:
            module.eval()

    def of(self, rows_TD: Tensor) -> Tensor:
        """Return the outputs of the first part for a text, or what ``finish`` made of them, without a gradient.

        Args:
            rows_TD: Its word rows, on the CPU.
        """
        rows_TD = rows_TD.detach().contiguous()
        kind = b"C" if wanted_in_c() else b""  # which has other last bits
        key = hashlib.blake2b(rows_TD.numpy().data, digest_size=16, person=kind).digest()
        found = self.stored.get(key)
        if found is None:
            found = self._computed(rows_TD)
            size = found.numel() * found.element_size()
            if size <= self.left:
                self.left -= size
                self.stored[key] = found
        return found

    @torch.no_grad()
    def _computed(self, rows_TD: Tensor) -> Tensor:
        if wanted_in_c():
            places = Places.of(np.array([len(rows_TD)]), len(rows_TD), rows_TD.device, in_c=True)
            outputs_TD = run_unpadded(self.below, rows_TD, places, self.whole)[0].to(rows_TD.dtype)
        else:
            outputs_TD = self.below(inputs_embeds=rows_TD[None]).last_hidden_state[0].to(rows_TD.dtype)
        return self.finish(outputs_TD) if self.finish else outputs_TD


def storable(rows_BTD: Tensor) -> bool:
    """Whether outputs for these word rows can be stored: they need no gradient, and are on the CPU, since looking them
    up would have to wait for a GPU."""
    return rows_BTD.device.type == "cpu" and not rows_BTD.requires_grad


def blocks_of(network: Any) -> nn.ModuleList:
    """Return the blocks of a network of the package transformers."""
    blocks = network.get_submodule(_architecture(network).blocks)
    assert isinstance(blocks, nn.ModuleList)
    return blocks


def _architecture(network: Any) -> Architecture:
    return ARCHITECTURES[network.config.model_type]


def with_blocks(network: Any, blocks: nn.ModuleList, others: Mapping[str, nn.Module] | None = None) -> Any:
    """Return a network that computes these blocks, in C where that is possible, and has the parameters of this one.

    Args:
        network: The network of the package transformers, adapted.
        blocks: Some of its blocks.
        others: Modules in place of its own.
    """
    architecture = _architecture(network)
    found: dict[str, nn.Module] = {architecture.leaf: into_c(blocks, network.config)}
    if holder := architecture.holder:
        found = {holder: _replaced(network.get_submodule(holder), found)}
    return _replaced(network, found | dict(others or {}))


def _replaced(module: Any, others: dict[str, nn.Module]) -> Any:
    made = copy.copy(module)
    made._modules = module._modules | others
    return made


class _Given(nn.Module):
    """In place of an encoder's embeddings: what is given to it."""

    def forward(
        self, input_ids: None = None, inputs_embeds: Tensor | None = None, *places: Any, **more: Any
    ) -> Tensor | None:
        return inputs_embeds


class _Zero(nn.Module):
    """In place of a decoder's positions."""

    def forward(self, places: Tensor) -> Tensor:
        return torch.zeros((), device=places.device)


# In place of what comes before the blocks, where its outputs are given.
_STAND_INS: Mapping[str, Callable[[], nn.Module]] = {"embeddings": _Given, "wpe": _Zero, "drop": nn.Identity}
