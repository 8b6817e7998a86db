"""An encoder's first layer: its inputs, and what the update of its weights tells of them.

The gradient of a matrix that multiplies vectors x is sum delta x^T over all of them: its rows are combinations of the
x. As long as there are fewer x than they have numbers, and the deltas are not combinations of each other, its rows span
what the x span, and no other word's vector lies there. A recurrent layer's input weights multiply the words' vectors
themselves. A transformer's queries, keys and values multiply LayerNorm(word + position + type), another vector at each
place of a text, so that its update also says where a word stands (DAGER, Petrov et al. 2024, whose test of single
tokens this is).

Legend: V rows of a table, M vectors at places of texts, K kinds of places, D embedding, S directions.
"""

import re
from collections.abc import Mapping, Sequence
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
    """It reads word vectors as they are, at every place. ``basis_SD``: the directions among which they lie; all D where
    nothing is known of them."""

    basis_SD: Tensor
    places: ClassVar[bool] = False  # whether a word has another input vector at another place
    near: ClassVar[float] = 0.1  # a word was read if it leaves less outside than this times what the median word does

    def inputs(self, words_MD: Tensor, places: int | Tensor) -> Tensor:
        """Return the layer's inputs of these words at these places, or all at one."""
        return words_MD

    def words(self, inputs_MD: Tensor, places_M: Tensor) -> Tensor:
        """Word vectors that it would read so at these places."""
        return inputs_MD

    def outside(self, inputs_VD: Tensor) -> Tensor:
        """shares_V: how much of each vector lies outside of the directions; of zeros, which are never found, all."""
        left_VD = inputs_VD - inputs_VD @ self.basis_SD.T @ self.basis_SD
        return (left_VD.norm(dim=1) / inputs_VD.norm(dim=1)).nan_to_num(1.0)

    def within(self, words_VD: Tensor, most_K: Sequence[int]) -> tuple[Tensor, Tensor]:
        """(found_KV, shares_KV): which words stand at each place, at most the given number, or with a single number at
        any; and how much of each lies outside. At a place all are, if none stands out, as under noise, or if every
        direction is there.

        Where places count, the words are those that lie as far inside there as they do anywhere: that ranks them where
        all of them lie a little outside, some words more than others, as dropout has it."""
        shares_KV = torch.stack([self.outside(self.inputs(words_VD, place)) for place in range(len(most_K))])
        if len(self.basis_SD) == self.basis_SD.shape[1]:
            return torch.ones_like(shares_KV, dtype=torch.bool), shares_KV
        near_KV = shares_KV < self.near * shares_KV.median(1, keepdim=True).values
        ranks_KV = shares_KV / shares_KV.amin(0).clamp_min(_ROUNDED) if self.places else shares_KV
        ranks_KV = ranks_KV.where(near_KV, torch.inf)
        last_K = [
            ranks_V.kthvalue(min(most, len(ranks_V))).values for ranks_V, most in zip(ranks_KV, most_K, strict=True)
        ]
        found_KV = near_KV & (ranks_KV <= torch.stack(last_K)[:, None])
        return found_KV | ~found_KV.any(1, keepdim=True), shares_KV


@dataclass(frozen=True)
class Placed(FirstLayer):
    """It reads LayerNorm(word + what is added at its place)."""

    added_TD: Tensor
    scale_D: Tensor
    shift_D: Tensor
    places: ClassVar[bool] = True
    near: ClassVar[float] = 0.5  # dropout of a tenth in front of it leaves a third of a vector outside

    def inputs(self, words_MD: Tensor, places: int | Tensor) -> Tensor:
        return layer_norm(words_MD + self.added_TD[places], self.scale_D.shape, self.scale_D, self.shift_D, 1e-12)

    def words(self, inputs_MD: Tensor, places_M: Tensor) -> Tensor:
        """Exact for what the layer norm can give; of other vectors it reads what it makes of them."""
        return (inputs_MD - self.shift_D) / self.scale_D - self.added_TD[places_M]


def everywhere(dim: int) -> FirstLayer:
    """Where nothing is known of what was read."""
    return FirstLayer(torch.eye(dim))


def first_layer(
    target: Mapping[str, Tensor], parameters: Mapping[str, Tensor], read: int, dim: int, squashed: bool
) -> FirstLayer:
    """That of a received update ``target`` of ``read`` vectors, which a network with these parameters read;
    ``squashed``: in steps of Adam. Its directions are the strongest, as many as there were vectors. All, if those are
    no fewer than D or than the weights' rows, if the update tells of no first layer or of several that read
    differently, and for a transformer under Adam, whose signs point elsewhere (a recurrent layer's less so)."""
    named = {name: match for name in target if (match := _RECURRENT.fullmatch(name) or _ATTENTION.fullmatch(name))}
    blocks = {match.group(1) for match in named.values() if match.re is _ATTENTION}
    wide = [target[name] for name in named if target[name].shape[1] == dim]
    if read >= dim or read > sum(map(len, wide)) or len(blocks) > 1 or (blocks and squashed):
        return everywhere(dim)
    _, values_S, basis_SD = torch.linalg.svd(torch.cat(wide), full_matrices=False)
    basis_SD = basis_SD[: max(1, min(read, int((values_S > values_S[0] * 1e-6).sum())))]
    if not blocks:
        return FirstLayer(basis_SD)
    (encoder,) = blocks
    block = {name.removeprefix(f"{encoder}embeddings."): tensor for name, tensor in parameters.items()}
    added_TD = block["position_embeddings.weight"] + block.get("token_type_embeddings.weight", torch.zeros(1, dim))[0]
    return Placed(basis_SD, added_TD, block["LayerNorm.weight"], block["LayerNorm.bias"])
