"""Secret sharing (Shamir 1979) of 32 bytes in the field of the smallest prime above 2^256."""

import secrets
from collections.abc import Mapping, Sequence

PRIME = 2**256 + 297
SECRET = 32  # bytes
SHARE = 33


def split(secret: bytes, threshold: int, points: Sequence[int]) -> list[bytes]:
    """Divide a secret into shares of which ``threshold`` give it back, and fewer tell nothing.

    Args:
        secret: 32 bytes.
        threshold: Number of shares that are needed.
        points: Distinct points of the field, not 0: one for each share.

    Returns:
        A share of 33 bytes for each point.

    Raises:
        ValueError: The secret has another size, or there are fewer points than the threshold.
    """
    if len(secret) != SECRET or not 1 <= threshold <= len(points):
        raise ValueError(f"{len(secret)} bytes, {threshold} of {len(points)} shares")
    coefficients = [int.from_bytes(secret, "big"), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    shares = []
    for point in points:
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * point + coefficient) % PRIME
        shares.append(value.to_bytes(SHARE, "big"))
    return shares


def combine(shares: Mapping[int, bytes]) -> bytes:
    """Return the secret from as many shares as its threshold, by their points.

    Raises:
        ValueError: They are not shares of 32 bytes.
    """
    points, secret = list(shares), 0
    for point, share in shares.items():
        above, below = 1, 1
        for other in points:
            if other != point:
                above, below = above * other % PRIME, below * (other - point) % PRIME
        secret += int.from_bytes(share, "big") * above * pow(below, -1, PRIME)
    secret %= PRIME
    if secret >> (8 * SECRET):
        raise ValueError("the shares are not of one secret")
    return secret.to_bytes(SECRET, "big")
