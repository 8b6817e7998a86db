"""Words read out of what an attack has found: a vector for each place, and where the first layer's update points.

Legend: V vocabulary, N rows that are read by, T places of a text, M those of all texts, H and K places and words of one
kind, D embedding, P pairs.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedtext.audits.base import Words
from fedtext.audits.first_layer import FirstLayer
from fedtext.models.packing import Ints
from fedtext.text.tokens import PAD

_CHUNK = 256  # places that are compared with the table at a time


def decoded(
    vectors: list[NDArray[np.float32]], table_VD: NDArray[np.float32], words: Words, layer: FirstLayer
) -> tuple[list[Ints], tuple[float, float]]:
    """For each place of each text the row of the word that ``layer`` reads most like the vector there, but for <pad>
    and rows of zeros, which are near to whatever is small. And what speaks against this table: at how many places no
    words alone lie in the layer's directions, and how far the nearest are, on average. If some do lie there, it is one
    of these; and each of them is somewhere, first of all where it is nearest, as long as there are places."""
    rows = np.flatnonzero(table_VD.any(1) & np.array([name != PAD for name in words.names]))
    table_ND, found_MD = torch.from_numpy(table_VD[rows]), torch.from_numpy(np.concatenate(vectors))
    places_M = torch.cat([torch.arange(len(text_TD)) for text_TD in vectors])
    chosen_M, far_M, lost = torch.zeros_like(places_M), torch.zeros(len(places_M)), 0
    kinds_M = places_M if layer.places else torch.zeros_like(places_M)
    for kind in kinds_M.unique():
        here_H = torch.nonzero(kinds_M == kind).flatten()
        inputs_ND = layer.inputs(table_ND, int(places_M[here_H[0]]))
        is_there_N = layer.within(inputs_ND, len(here_H))
        there_K, inputs_KD = torch.nonzero(is_there_N).flatten(), inputs_ND[is_there_N]
        chosen_H = torch.cat([torch.cdist(part, inputs_KD).argmin(1) for part in found_MD[here_H].split(_CHUNK)])
        if is_there_N.all():
            lost += len(here_H)
        else:
            far_HK = torch.cdist(found_MD[here_H], inputs_KD)
            for _ in range(min(far_HK.shape)):
                place, word = divmod(int(far_HK.argmin()), len(there_K))
                chosen_H[place] = word
                far_HK[place], far_HK[:, word] = torch.inf, torch.inf
        chosen_M[here_H] = there_K[chosen_H]
        far_M[here_H] = (found_MD[here_H] - inputs_KD[chosen_H]).norm(dim=1)
    ends = np.cumsum([len(text_TD) for text_TD in vectors])[:-1]
    return np.split(rows[chosen_M.numpy()], ends), (lost / len(places_M), float(far_M.mean()))


def exchangeable(found: Sequence[Ints], longest: int) -> Tensor:
    """pairs_P2: the same places of two texts, which have different words there; counted text by text, with ``longest``
    to each."""
    places_M = np.concatenate([number * longest + np.arange(len(text_T)) for number, text_T in enumerate(found)])
    rows_M = np.concatenate(found)
    pairs_MM = (places_M[:, None] % longest == places_M % longest) & (rows_M[:, None] != rows_M)
    return torch.from_numpy(places_M[np.argwhere(np.triu(pairs_MM))])
