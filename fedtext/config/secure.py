"""The keys of secure aggregation."""

import math

from pydantic import Field

from fedtext.schema import Strict

BITS = 24  # of a coordinate at most, unless asked for: as many as float32 has
RING = 32  # bits of a sum


def room(clients: int) -> int:
    """Return how many bits of a coordinate the sum of this number of clients leaves."""
    return RING - math.ceil(math.log2(max(1, clients)))


def levels(bits: int) -> int:
    """Return the largest absolute value of a coordinate with this number of bits, as an integer."""
    return int(2 ** (bits - 1)) - 1


class SecureAggregation(Strict):
    """Secure aggregation (SecAgg+): the server learns the sum of the updates and no single one (fedtext/secure).

    Updates become integers: a coordinate, times the client's weight over the largest one, is cut off at +-range and
    rounded to a multiple of range / (2^(bits - 1) - 1). Sums are taken modulo 2^32.
    """

    threshold: float = Field(
        0.6,
        gt=0.5,
        le=1,
        description="share of a client's neighbours that have to answer so that its masks can be removed; above one "
        "half no server has both secrets of a client, unless neighbours show it theirs",
    )
    neighbors: int | None = Field(
        None,
        ge=2,
        description="clients of a round with which each shares its keys; null: as few as keep the chance of a round "
        "that cannot be opened below 2^-20, and that of more being seen than the sum below 2^-40",
    )
    colluding: float = Field(
        0.1,
        ge=0,
        lt=1,
        description="largest share of a round's clients that show the server all they have, for these chances",
    )
    dropping: float = Field(
        0.1,
        ge=0,
        lt=1,
        description="largest share of a round's clients that do not answer, for these chances, beside "
        "those that participation.over_selection leaves",
    )
    range: float = Field(1.0, gt=0, description="bound of a coordinate of an update; larger ones are cut off")
    bits: int | None = Field(
        None,
        ge=2,
        le=31,
        description="bits of a coordinate; null: 24, or as many as leave room for a round's sum in 32",
    )
    masks: bool = Field(
        True,
        description="false: the same integers without masks and without messages, for comparison: the same results, "
        "unless a round cannot be opened with masks, and is repeated",
    )
