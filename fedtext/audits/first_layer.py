"""An encoder's first layer: its inputs, and what the update of its weights discloses about them.

The gradient of a matrix that multiplies vectors x is sum delta x^T over all of them: its rows are combinations of the
x. If there are fewer x than they have dimensions, and the deltas are linearly independent, its rows span the same
space as the x, and the vector of no other word lies in it. The input weights of a recurrent layer multiply the words'
vectors themselves. Queries, keys and values of a transformer multiply LayerNorm(word + position + type), a different
vector at each place of a text, so that the update also discloses the positions of words. This is the test of single
tokens in DAGER (Petrov et al. 2024).

Legend: V rows of a table, M vectors at places of texts, K kinds of places, D embedding, S directions.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

_RECURRENT = re.compile(r".*\.weight_ih_l0(_reverse)?")
_ATTENTION = re.compile(r"(.*)layers\.layer\.0\.attention\.(self\.(query|key|value)|[qkv]_lin)\.weight")
EPS = 1e-12  # that of BERT and DistilBERT
_ROUNDED = 1e-3  # share of a vector's length that may lie outside of the span because of float32 rounding


@dataclass(frozen=True)
class FirstLayer:
    """A first layer whose inputs are word vectors, the same at every place.

    Attributes:
        basis_SD: Orthonormal basis of the space in which its inputs lie; all D directions if nothing is known.
        places: Whether a word has different inputs at different places.
        near: A word is an input if the share of its vector outside of the space is less than this multiple of the
            median word's share.
    """

    basis_SD: Tensor
    places: ClassVar[bool] = False
    near: ClassVar[float] = 0.1

    def inputs(self, words_MD: Tensor, places: int | Tensor) -> Tensor:
        """Return the layer's inputs for these word vectors, each at its place or all at the same one."""
        return words_MD

    def words(self, inputs_MD: Tensor, places_M: Tensor) -> Tensor:
        """Return word vectors with these inputs at these places: the inverse of ``inputs``."""
        return inputs_MD

    def outside(self, inputs_VD: Tensor) -> Tensor:
        """Return shares_V: the share of each vector's length outside of the space; 1 for vectors of zeros."""
        left_VD = inputs_VD - inputs_VD @ self.basis_SD.T @ self.basis_SD
        return (left_VD.norm(dim=1) / inputs_VD.norm(dim=1)).nan_to_num(1.0)

    def within(self, words_VD: Tensor, most_K: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Find the words that are inputs of the layer.

        If places matter, words are ranked by their share outside relative to their smallest share at any place. This
        ranks them correctly under dropout, where all of them lie a little outside, some more than others.

        Args:
            words_VD: Word vectors.
            most_K: Largest number of words at each place; a single number stands for all places together.

        Returns:
            found_KV, which words are inputs at each place, and shares_KV, the share of each outside of the space. At a
            place where no word stands out (as under noise), or if the space has D dimensions, all words are found.
        """
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
    """A first layer whose inputs are LayerNorm(word + position + type), as in a transformer.

    Attributes:
        added_TD: Position and type embeddings, by place.
        scale_D, shift_D, eps: Parameters of the layer norm.
    """

    added_TD: Tensor
    scale_D: Tensor
    shift_D: Tensor
    eps: float
    places: ClassVar[bool] = True
    near: ClassVar[float] = 0.5  # with dropout of 0.1 before the layer a third of a vector lies outside

    def inputs(self, words_MD: Tensor, places: int | Tensor) -> Tensor:
        return layer_norm(words_MD + self.added_TD[places], self.scale_D.shape, self.scale_D, self.shift_D, self.eps)

    def words(self, inputs_MD: Tensor, places_M: Tensor) -> Tensor:
        """Return word vectors with these inputs; exact only for vectors that are outputs of the layer norm."""
        return (inputs_MD - self.shift_D) / self.scale_D - self.added_TD[places_M]


def everywhere(dim: int) -> FirstLayer:
    """Return a first layer about whose inputs nothing is known: all ``dim`` directions."""
    return FirstLayer(torch.eye(dim))


def first_layer(
    target: Mapping[str, Tensor],
    parameters: Mapping[str, Tensor],
    read: int,
    dim: int,
    squashed: bool,
    eps: float = EPS,
) -> FirstLayer:
    """Compute the space of a first layer's inputs from a received update.

    The space is spanned by the strongest singular vectors of the update of its weights, one for each input. All
    directions are returned if there are at least D inputs, or more than the weights have rows; if the update has no
    first layer, or several with different inputs; and for a transformer with Adam, whose steps have other directions
    than the gradient (this matters less for a recurrent layer).

    Args:
        target: The received update, by the names of parameters.
        parameters: Parameters of the network without tables.
        read: Number of inputs: tokens of all texts behind the update.
        dim: D.
        squashed: Whether the client's optimizer was Adam.
        eps: ``eps_of`` the network.
    """
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
    return placed(basis_SD, encoder, parameters, eps)


def placed(basis_SD: Tensor, encoder: str, parameters: Mapping[str, Tensor], eps: float = EPS) -> Placed:
    """Return the first layer of a transformer, given the space of its inputs.

    Args:
        basis_SD: Orthonormal basis of the space.
        encoder: Beginning of the names of the transformer's parameters.
        parameters: Parameters of the network.
        eps: ``eps_of`` the network.
    """
    block = {name.removeprefix(f"{encoder}embeddings."): tensor for name, tensor in parameters.items()}
    added_TD, types = block["position_embeddings.weight"], block.get("token_type_embeddings.weight")
    if types is not None:
        added_TD = added_TD + types[0]
    return Placed(basis_SD, added_TD, block["LayerNorm.weight"], block["LayerNorm.bias"], eps)


def eps_of(network: nn.Module) -> float:
    """Return the smallest variance of the layer norm after the embeddings of a transformer."""
    norms = [m for name, m in network.named_modules() if name.endswith("embeddings.LayerNorm")]
    return float(norms[0].eps) if norms and isinstance(norms[0], nn.LayerNorm) else EPS
