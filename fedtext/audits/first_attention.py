"""A transformer's first layers, as an attacker computes them for texts that it tries.

Legend: S texts of the same length, T places, W words, H heads, M = S x T, D embedding, A width of a head.
"""

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention

from fedtext.audits.first_layer import Placed, eps_of, placed
from fedtext.audits.spans import Span

_QUERY = re.compile(r"(.*layers\.layer\.)0\.attention\.(self\.query|q_lin)\.weight")
_OTHERS = {"self.query": ("self.key", "self.value", "output.dense"), "q_lin": ("k_lin", "v_lin", "out_lin")}


@dataclass(frozen=True)
class Names:
    """Names of a transformer's parameters in a network: those of BERT or of DistilBERT.

    Attributes:
        layers: Beginning of the names of its layers.
        reading: Queries, keys and values in a layer.
        output: The projection of the attention's output in a layer.
    """

    layers: str
    reading: tuple[str, ...]
    output: str

    def reads(self, layer: int) -> list[str]:
        """Return the names of the weights that multiply a layer's inputs."""
        return [f"{self.layers}{layer}.attention.{name}.weight" for name in self.reading]

    @property
    def projects(self) -> str:
        """The name of the weights that multiply the first attention's output."""
        return f"{self.layers}0.attention.{self.output}.weight"

    @property
    def encoder(self) -> str:
        """Beginning of the names of the encoder's parameters."""
        return self.layers.removesuffix("layers.layer.")


def named(parameters: Mapping[str, object]) -> Names | None:
    """Find the first transformer among parameters by their names; None if there is none."""
    for name in sorted(parameters):
        if match := _QUERY.fullmatch(name):
            key, value, output = _OTHERS[match.group(2)]
            return Names(match.group(1), (match.group(2), key, value), output)
    return None


class FirstLayers:
    """The layers up to the deepest one whose inputs are tested.

    Args:
        network: The network; it is not changed.
        names: Names of the transformer's parameters.
        parameters: Values of the network's parameters.
        depth: Number of layers that are computed.
    """

    def __init__(self, network: nn.Module, names: Names, parameters: Mapping[str, Tensor], depth: int) -> None:
        width = parameters[names.projects].shape[1]
        self.inputs: Placed = placed(torch.zeros(0, width), names.encoder, parameters, eps_of(network))
        first: Any = network.get_submodule(f"{names.layers}0.attention")
        self.heads: int = first.self.num_attention_heads if hasattr(first, "self") else first.n_heads
        own = f"{names.layers}0.attention."
        self.reading = [(parameters[f"{own}{name}.weight"], parameters[f"{own}{name}.bias"]) for name in names.reading]
        self.layers = copy.deepcopy([network.get_submodule(f"{names.layers}{number}") for number in range(depth)])
        for number, layer in enumerate(self.layers):
            start = f"{names.layers}{number}."
            values = {name.removeprefix(start): tensor for name, tensor in parameters.items() if name.startswith(start)}
            layer.load_state_dict(values, strict=False)
            layer.eval()

    def placed(self, words_WD: Tensor, places: int) -> Tensor:
        """Return the first layer's inputs for each word at each place, shape (T, W, D)."""
        return torch.stack([self.inputs.inputs(words_WD, place) for place in range(places)])

    def read(self, inputs_TWD: Tensor) -> list[Tensor]:
        """Return queries, keys and values of inputs, each with the shape of the inputs."""
        return [linear(inputs_TWD, weight, bias) for weight, bias in self.reading]

    def attended(self, read: Sequence[Tensor]) -> Tensor:
        """Return the output of the first attention, before its projection, shape (S, T, D).

        Args:
            read: Queries, keys and values of texts, each of shape (S, T, D).
        """
        split = [tensor.unflatten(-1, (self.heads, -1)).transpose(1, 2) for tensor in read]
        return scaled_dot_product_attention(*split).transpose(1, 2).flatten(2)

    def deeper(self, inputs_STD: Tensor, spans: Sequence[Span]) -> list[Tensor]:
        """Return for each of the layers after the first the shares of its inputs outside of their span, shape (S, T).

        Args:
            inputs_STD: Inputs of the first layer for texts without padding.
            spans: Spans of the inputs of the layers after the first.
        """
        found, hidden_STD = [], inputs_STD
        for layer, one in zip(self.layers, spans, strict=True):
            out = layer(hidden_STD, None)
            hidden_STD = out[0] if isinstance(out, tuple) else out
            found.append(one.outside(hidden_STD))
        return found
