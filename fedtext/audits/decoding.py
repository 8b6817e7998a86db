"""Words decoded from what an attack has found: a vector for each place, and where the first layer's update points.

Legend: V vocabulary, R rows that are read by, N texts of the client, B texts that were looked for, M their places, H
and W places and words of one kind, D embedding, P pairs.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtext.audits.base import Words
from fedtext.audits.first_layer import FirstLayer
from fedtext.models.packing import Ints
from fedtext.text.tokens import PAD

_CHUNK = 256  # places that are compared with the table at a time


class Against(NamedTuple):
    """The misfit of a table by which vectors are decoded; the smaller the first number, the better it fits."""

    lost: float  # share of the places where no words alone lie in the layer's directions
    missing: float  # share of the layer's directions that the words which were chosen there do not span
    outside: float  # how much of the words that were chosen at the other places lies outside, on average
    far: float  # how far the chosen are from what was found, on average


def eligible(table_VD: NDArray[np.float32], words: Words) -> NDArray[np.bool_]:
    """eligible_V: which words a vector may be read as: all but <pad> and those whose row is zero."""
    return table_VD.any(1) & np.array([name != PAD for name in words.names])


def decoded(
    vectors: list[NDArray[np.float32]],
    table_VD: NDArray[np.float32],
    words: Words,
    layer: FirstLayer,
    lengths_N: Tensor,
) -> tuple[list[Ints], Against]:
    """For each place of each text the row of the word that ``layer`` reads most like the vector there, but for <pad>
    and rows of zeros, which are near to whatever is small. If words lie in the layer's directions, it is one of these;
    and each of them is somewhere, first of all where it is nearest, as long as there are places. ``lengths_N``: of all
    texts behind the update."""
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
            far_HW = torch.cdist(found_MD[here_H], inputs_WD)
            for _ in range(min(far_HW.shape)):
                place, word = divmod(int(far_HW.argmin()), len(there_W))
                chosen_H[place] = word
                far_HW[place], far_HW[:, word] = torch.inf, torch.inf
            alone.append(inputs_WD[chosen_H])
        chosen_M[here_H] = there_W[chosen_H]
        far_M[here_H] = (found_MD[here_H] - inputs_WD[chosen_H]).norm(dim=1)
    alone_M = alone_K[kinds_M]
    outside = float((shares_KR[kinds_M, chosen_M] * alone_M).sum() / alone_M.sum().clamp_min(1))
    ends = np.cumsum([len(text_TD) for text_TD in vectors])[:-1]
    missing = _missing(layer.basis_SD, torch.cat(alone)) if alone else 0.0
    against = Against(float((~alone_M).float().mean()), missing, outside, float(far_M.mean()))
    return np.split(rows[chosen_M.numpy()], ends), against


def _missing(basis_SD: Tensor, inputs_HD: Tensor) -> float:
    """The share of the directions that these vectors do not span: that of words which a table has no vectors for."""
    _, values_H, spanned_HD = torch.linalg.svd(inputs_HD, full_matrices=False)
    spanned_HD = spanned_HD[values_H > 1e-4 * values_H[0]]
    left_SD = basis_SD - basis_SD @ spanned_HD.T @ spanned_HD
    return float(left_SD.square().sum() / len(basis_SD))


def exchangeable(lengths: Sequence[int], longest: int) -> Tensor:
    """pairs_P2: the same places of two texts of these lengths; counted text by text, with ``longest`` to each."""
    places_M = np.concatenate([number * longest + np.arange(length) for number, length in enumerate(lengths)])
    same_MM = places_M[:, None] % longest == places_M % longest
    return torch.from_numpy(places_M[np.argwhere(np.triu(same_MM, 1))])
