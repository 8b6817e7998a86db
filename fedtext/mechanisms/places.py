"""Places of coordinates in payloads, for mechanisms that send some coordinates of a tensor only.

All tensors of a payload are float32, which has every whole number up to 2^24 only. A place is sent as the float32
number with its bits: exact, and finite below 2,139,095,040.
"""

import numpy as np
from numpy.typing import NDArray

MOST = 0x7F800000  # places from here on have the bits of infinity and NaN, which no payload may have


def encode_places(places: NDArray[np.integer]) -> NDArray[np.float32]:
    """Return places as float32 numbers with their bits. ``decode_places`` reverses it; nothing may compute with them.

    Args:
        places: Whole numbers of any type, from 0 to 2,139,095,039, of any shape.

    Raises:
        ValueError: They are no whole numbers, or one is outside of this range.
    """
    if places.dtype.kind not in "iu":
        raise ValueError(f"places are whole numbers, not {places.dtype}")
    if places.size and not (int(places.min()) >= 0 and int(places.max()) < MOST):
        raise ValueError(f"places of a tensor go from 0 to {MOST - 1:,}, not {places.min():,} to {places.max():,}")
    return places.astype(np.int32).view(np.float32)


def decode_places(sent: NDArray[np.float32], size: int) -> NDArray[np.int64]:
    """Return the places that ``encode_places`` was given.

    Args:
        sent: Its result, as a client has sent it.
        size: Number of coordinates of the tensor.

    Raises:
        ValueError: One of them is not a place of this tensor.
    """
    places = np.ascontiguousarray(sent, np.float32).view(np.int32).astype(np.int64)
    if places.size and not (places.min() >= 0 and places.max() < size):
        raise ValueError(f"it sent places of a tensor of {size:,} coordinates that it does not have")
    return places
