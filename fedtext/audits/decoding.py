"""Decoding of the vectors that an attack has found into words.

Legend: V vocabulary, R candidate rows, N texts of the client, B texts that were attacked, M their places, H and W
places and words of one kind of place, D embedding, S directions, P pairs.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtext.audits.first_layer import FirstLayer
from fedtext.audits.known import Words
from fedtext.models.packing import Ints
from fedtext.text.tokens import PAD

_CHUNK = 256  # places that are compared with the table at a time


class Against(NamedTuple):
    """How badly a table fits the vectors that were decoded with it. Tables are compared by the first number that
    differs; smaller is better."""

    lost: float  # share of the places where no subset of the words lies in the layer's directions
    missing: float  # at the other places, share of the layer's directions that the chosen words do not span
    outside: float  # at the other places, mean share of a chosen word's vector outside of the directions
    far: float  # mean distance of the chosen words' vectors from the vectors that were found


def eligible(table_VD: NDArray[np.float32], words: Words) -> NDArray[np.bool_]:
    """Return eligible_V: the words that a vector can be decoded to, all but <pad> and those whose row is zero."""
    return table_VD.any(1) & np.array([name != PAD for name in words.names])


def decoded(
    vectors: list[NDArray[np.float32]],
    table_VD: NDArray[np.float32],
    words: Words,
    layer: FirstLayer,
    lengths_N: Tensor,
) -> tuple[list[Ints], Against]:
    """Decode a vector at each place of each text as the word with the nearest input of the layer (L2).

    If words lie in the layer's directions, only these are chosen, and each of them is assigned to at least one place,
    the nearest first, as long as there are places. <pad> and rows of zeros are excluded: they are near every small
    vector.

    Args:
        vectors: Vectors of each text, shape (length, D).
        table_VD: The table with the vectors of the words.
        words: The vocabulary.
        layer: The first layer.
        lengths_N: Lengths of all texts behind the update.

    Returns:
        The rows of each text, and how badly the table fits.
    """
    rows = np.flatnonzero(eligible(table_VD, words))
    table_RD, found_MD = torch.from_numpy(table_VD[rows]), torch.from_numpy(np.concatenate(vectors))
    places_M = torch.cat([torch.arange(len(text_TD)) for text_TD in vectors])
    kinds_M = places_M if layer.places else torch.zeros_like(places_M)
    kinds = int(kinds_M.max()) + 1
    most_K = [int((lengths_N > place).sum()) for place in range(kinds)] if layer.places else [int(lengths_N.sum())]
    found_KR, shares_KR = layer.within(table_RD, most_K)
    alone_K = ~found_KR.all(1)
    chosen_M, far_M, alone = torch.zeros_like(places_M), torch.zeros(len(places_M)), []
    for kind in range(kinds):
        here_H, there_W = torch.nonzero(kinds_M == kind).flatten(), torch.nonzero(found_KR[kind]).flatten()
        inputs_WD = layer.inputs(table_RD[there_W], kind)
        chosen_H = torch.cat([torch.cdist(part, inputs_WD).argmin(1) for part in found_MD[here_H].split(_CHUNK)])
        if alone_K[kind]:
            _choose_all(chosen_H, torch.cdist(found_MD[here_H], inputs_WD))
            alone.append(inputs_WD[chosen_H])
        chosen_M[here_H] = there_W[chosen_H]
        far_M[here_H] = (found_MD[here_H] - inputs_WD[chosen_H]).norm(dim=1)
    alone_M = alone_K[kinds_M]
    outside = float((shares_KR[kinds_M, chosen_M] * alone_M).sum() / alone_M.sum().clamp_min(1))
    ends = np.cumsum([len(text_TD) for text_TD in vectors])[:-1]
    missing = _missing(layer.basis_SD, torch.cat(alone)) if alone else 0.0
    against = Against(float((~alone_M).float().mean()), missing, outside, float(far_M.mean()))
    return np.split(rows[chosen_M.numpy()], ends), against


def _choose_all(chosen_H: Tensor, far_HW: Tensor) -> None:
    """Assign each word to at least one place, the nearest first, as long as there are places. Changes both tensors."""
    for _ in range(min(far_HW.shape)):
        place, word = divmod(int(far_HW.argmin()), far_HW.shape[1])
        chosen_H[place] = word
        far_HW[place], far_HW[:, word] = torch.inf, torch.inf


def _missing(basis_SD: Tensor, inputs_HD: Tensor) -> float:
    """Compute the share of the directions that these vectors do not span: words that are missing in a table."""
    _, values_H, spanned_HD = torch.linalg.svd(inputs_HD, full_matrices=False)
    spanned_HD = spanned_HD[values_H > 1e-4 * values_H[0]]
    left_SD = basis_SD - basis_SD @ spanned_HD.T @ spanned_HD
    return float(left_SD.square().sum() / len(basis_SD))


def exchangeable(lengths: Sequence[int], longest: int) -> Tensor:
    """Return pairs_P2: all pairs of equal places in two texts of these lengths.

    Places are numbered text by text, ``longest`` for each text.
    """
    places_M = np.concatenate([number * longest + np.arange(length) for number, length in enumerate(lengths)])
    same_MM = places_M[:, None] % longest == places_M % longest
    return torch.from_numpy(places_M[np.argwhere(np.triu(same_MM, 1))])
