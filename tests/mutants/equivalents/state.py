"""Equivalent mutants of ``fedtext/state/``."""

EQUIVALENTS = (
    (
        "state/noise_key",
        "def generator(self, purpose: str, round_: int = 0, client: int = SERVER) -> np.random.Generator:",
        "def generator(self, purpose: str, round_: int = 1, client: int = SERVER) -> np.random.Generator:",
        "the round is left out where it is asked whether the library is installed, and nothing is drawn",
    ),
    (
        "state/segments",
        "while size * TOGETHER <= rounds:",
        "while (size / TOGETHER) <= rounds:",
        "it begins with larger blocks, of which none fits",
    ),
    ("state/segments", "while size > 1:", "while size > 2:", "sizes are powers of 8"),
    (
        "state/seal",
        "starts = range(0, max(1, len(content)), _CHUNK)",
        "starts = range(0, max(2, len(content)), _CHUNK)",
        "of an empty content there is one chunk either way",
    ),
    (
        "state/seal",
        "starts = range(0, max(1, len(sealed)), size)",
        "starts = range(0, max(2, len(sealed)), size)",
        "of an empty file there is one chunk either way",
    ),
)
