"""The keys of canary clients."""

from pydantic import Field

from fedtext.schema import Strict

LEAST = 50  # canaries: the guesses about fewer bound nothing


class Canaries(Strict):
    """Canary clients, by which a lower bound on the epsilon of this very run is measured.

    A canary has no texts. Its update is a random direction far longer than ``clip`` allows, and goes through the
    uplink as every update does. Each canary is in the run with probability 1/2. From what is released it is guessed
    which ones were, and from the number of right guesses follows a lower bound on epsilon (Andrew et al. 2023; Steinke
    et al. 2023).
    """

    clients: int = Field(
        1000,
        ge=LEAST,
        le=1_000_000,
        description="number of canaries, half of which are in the run; far fewer than parameters",
    )
    guesses: float = Field(
        0.125, gt=0, le=1, description="share of the canaries of which it is guessed whether they were in the run"
    )
    confidence: float = Field(0.95, gt=0.5, lt=1, description="probability with which the lower bound holds at least")
