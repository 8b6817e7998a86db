"""A mechanism that states nothing claims nothing, and leaves no claim to what follows it."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtext.accounting import composition
from fedtext.ledger import ledger, spent
from fedtext.mechanisms import Clip, Gaussian, Mechanism, Project, Quantize, RandomizedResponse
from tests import tiny


class Unknown(Mechanism):
    """A mechanism from somewhere else, which states nothing."""

    name: str = "unknown"
    randomises = True

    def apply(self, delta: Any, received: Any, rng: Any) -> Any:
        return delta


KNOWN: list[Mechanism] = [
    *(Clip(norm=0.5), Clip(norm=2.0), Gaussian(sigma=1.0), Gaussian(sigma=3.0), Project(d1=1, d2=2)),
    *(Quantize(q=0.1), RandomizedResponse(epsilon=2.0), Unknown()),
]


@given(st.lists(st.sampled_from(KNOWN), min_size=1, max_size=6))
def test_whatever_stands_in_an_uplink_no_unknown_part_lets_it_claim_more(uplink: list[Mechanism]) -> None:
    """The claim of an uplink, by the definition: each randomised response is pure; Gaussian noise hides what the last
    clip before it left, as long as nothing else stood between. Nothing else claims anything."""
    pytest.importorskip("dp_accounting")
    best, norm, variance = math.inf, None, 0.0
    for mechanism in uplink:
        if isinstance(mechanism, Clip):
            norm = min(mechanism.norm, norm) if norm is not None and not variance else mechanism.norm
            variance = 0.0
        elif isinstance(mechanism, Gaussian):
            variance += mechanism.sigma**2
            if norm is not None:
                best = min(best, composition.gaussian(math.sqrt(variance) / (2 * norm), 2, 1e-5))
        else:
            norm, variance = None, 0.0
        if isinstance(mechanism, RandomizedResponse):
            best = min(best, composition.optimal(2.0, 6, 1e-5))
    made = tiny.experiment(wire={"rows": "all"}).model_copy(update={"uplink": tuple(uplink)})
    assert spent(ledger(made, 3, 10, 2)).get("epsilon", math.inf) == pytest.approx(best)


def test_an_unknown_mechanism_between_clip_and_noise_leaves_no_claim() -> None:
    uplink = (Clip(), Unknown(), Gaussian())
    made = tiny.experiment(wire={"rows": "all"}).model_copy(update={"uplink": uplink})
    (entry,) = ledger(made, 3, 10, 2)
    assert entry.how == "no guarantee: unknown does not state how large an update it leaves"
    (alone,) = ledger(made.model_copy(update={"uplink": (Unknown(),)}), 3, 10, 2)
    assert alone.how == "no guarantee: no mechanism of the uplink states one"
