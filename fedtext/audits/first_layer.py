"""What an encoder's first layer reads, and what the update of its weights says of that.

The gradient of a matrix that multiplies vectors x is sum delta x^T over all of them, so that they lie among the
combinations of its rows, and do so alone as long as they are fewer than they have numbers. A recurrent layer's input
weights multiply the words' vectors themselves. A transformer's queries, keys and values multiply LayerNorm(word +
position + type), another vector at each place of a text, so that its update also says where a word stands (DAGER,
Petrov et al. 2024, whose test of single tokens this is).

Legend: V rows of a table, T places, M vectors at places of texts, D embedding, S directions.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import layer_norm

_RECURRENT = re.compile(r".*\.weight_ih_l0(_reverse)?")
_ATTENTION = re.compile(r"(.*)layers\.layer\.0\.attention\.(self\.(query|key|value)|[qkv]_lin)\.weight")
_ROUNDED = 1e-3  # a share of a vector's length that float32's rounding of updates leaves outside of any span


@dataclass(frozen=True)
class FirstLayer:
    """It reads word vectors as they are. ``basis_SD``: the directions among which they lie; all D where nothing is
    known of them."""

    basis_SD: Tensor
    places: ClassVar[bool] = False  # whether a word is read otherwise at another place
    near: ClassVar[float] = 0.1  # of what half of all words leave outside: less does one that was read
    contrast: ClassVar[float] = torch.inf  # how many times as much as the best of them

    def inputs(self, words_VD: Tensor, place: int) -> Tensor:
        """What it reads where these words stand at this place."""
        return words_VD

    def words(self, inputs_MD: Tensor, places_M: Tensor) -> Tensor:
        """Word vectors that it would read so at these places."""
        return inputs_MD

    def within(self, inputs_VD: Tensor, most: int) -> Tensor:
        """Which of these were read: V flags, of at most so many. They lie in its directions, but for little. All if
        none stands out so, as under noise, or if every direction is there."""
        left_VD = inputs_VD - inputs_VD @ self.basis_SD.T @ self.basis_SD
        shares_V = (left_VD.norm(dim=1) / inputs_VD.norm(dim=1)).nan_to_num(1.0)  # of zeros, which are never found
        limits = shares_V.median() * self.near, shares_V.kthvalue(min(most, len(shares_V))).values
        found_V = (shares_V < limits[0]) & (shares_V <= limits[1])
        if len(self.basis_SD) == self.basis_SD.shape[1] or not found_V.any():
            return torch.ones_like(found_V)
        return found_V & (shares_V <= self.contrast * shares_V.min().clamp_min(_ROUNDED))


@dataclass(frozen=True)
class Placed(FirstLayer):
    """It reads LayerNorm(word + what is added at its place). Dropout of a tenth there, which nobody plays through,
    leaves a third of each vector outside; without, a word's neighbouring places are nearly as good as its own."""

    added_TD: Tensor
    scale_D: Tensor
    shift_D: Tensor
    places: ClassVar[bool] = True
    near: ClassVar[float] = 0.5
    contrast: ClassVar[float] = 10.0

    def inputs(self, words_VD: Tensor, place: int) -> Tensor:
        return layer_norm(words_VD + self.added_TD[place], self.scale_D.shape, self.scale_D, self.shift_D, 1e-12)

    def words(self, inputs_MD: Tensor, places_M: Tensor) -> Tensor:
        """Of inputs that the layer norm cannot give, those of the nearest multiple that it can."""
        return (inputs_MD - self.shift_D) / self.scale_D - self.added_TD[places_M]


def everywhere(dim: int) -> FirstLayer:
    """Where nothing is known of what was read."""
    return FirstLayer(torch.eye(dim))


def first_layer(target: Mapping[str, Tensor], parameters: Mapping[str, Tensor], read: int, dim: int) -> FirstLayer:
    """That of a received update ``target`` of ``read`` vectors, which a network with these parameters read. Its
    directions are the strongest, as many as there were vectors; all if those are no fewer than D, or if the update
    tells of no first layer."""
    named = {name: match for name in target if (match := _RECURRENT.fullmatch(name) or _ATTENTION.fullmatch(name))}
    blocks = {match.group(1) for match in named.values() if match.re is _ATTENTION}
    wide = [target[name] for name in named if target[name].shape[1] == dim]
    if not wide or read >= dim or len(blocks) > 1:  # several encoders, which read differently
        return everywhere(dim)
    _, values_S, basis_SD = torch.linalg.svd(torch.cat(wide), full_matrices=False)
    basis_SD = basis_SD[: max(1, min(read, int((values_S > values_S[0] * 1e-6).sum())))]
    if not blocks:
        return FirstLayer(basis_SD)
    (encoder,) = blocks
    block = {name.removeprefix(f"{encoder}embeddings."): tensor for name, tensor in parameters.items()}
    added_TD = block["position_embeddings.weight"] + block.get("token_type_embeddings.weight", torch.zeros(1, dim))[0]
    return Placed(basis_SD, added_TD, block["LayerNorm.weight"], block["LayerNorm.bias"])
