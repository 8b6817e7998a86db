"""Equivalent mutants of ``fedtext/wire/``."""

EQUIVALENTS = (
    (
        "wire/uplink",
        "return np.zeros(0, np.uint8), {}",
        "return np.ones(0, np.uint8), {}",
        "an array without elements",
    ),
)
