"""Equivalent mutants of ``fedtext/state/``."""

EQUIVALENTS = (
    (
        "state/noise_key",
        "def generator(self, purpose: str, round_: int = 0, client: int = SERVER) -> np.random.Generator:",
        "def generator(self, purpose: str, round_: int = 1, client: int = SERVER) -> np.random.Generator:",
        "the round is left out where it is asked whether the library is installed, and nothing is drawn",
    ),
)
