"""Which clients take part in a round: how many, that rounds differ, and that nobody is preferred."""

import itertools
import math
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from fedtext.canaries.central import CentralCanaries
from fedtext.messages import Reply
from fedtext.server.sampling import sampled
from fedtext.state.noise_key import NoiseKey, noise_key
from tests import tiny
from tests.loops import nonempty

SHOWN, SECRET = NoiseKey(bytes(16)), NoiseKey(bytes(range(32)), secret=True)


def cohorts(clients: int, rounds: int, seed: int = 0, noise: NoiseKey = SHOWN, **participation: Any) -> np.ndarray:
    """Rounds x clients: who trains."""
    experiment = tiny.experiment(participation=participation, seed=seed)
    made = [sampled(experiment, range(clients), round_, noise) for round_ in range(1, rounds + 1)]
    assert all(nonempty(cohort == sorted(set(cohort)) for cohort in made))
    return np.array([np.isin(np.arange(clients), cohort) for cohort in made])


@pytest.mark.parametrize(
    ("fraction", "clients", "size"),
    [(0.7, 4, 3), (0.3, 4, 1), (0.26, 10, 3), (0.24, 10, 2), (0.01, 4, 1), (0.99, 4, 4), (1.0, 7, 7)],
)
def test_a_cohort_is_the_share_of_the_clients_rounded_to_the_nearest_and_never_empty(
    fraction: float, clients: int, size: int
) -> None:
    assert cohorts(clients, 20, fraction=fraction).sum(1).tolist() == [size] * 20


def test_every_round_draws_another_cohort_and_every_client_is_as_likely() -> None:
    """3 of 10: each client's rounds are binomial, and so are those in which a pair of clients meets (3/10 of 2/9)."""
    rounds = 3000
    taken = cohorts(10, rounds, fraction=0.3)
    together = taken.T.astype(int) @ taken
    for found, chance in ((np.diag(together), 0.3), (together[np.triu_indices(10, 1)], 0.3 * 2 / 9)):
        assert np.abs(found / rounds - chance).max() < 4.5 * math.sqrt(chance * (1 - chance) / rounds)
    repeated = (taken[1:] == taken[:-1]).all(1).mean()  # one of 120 cohorts
    assert abs(repeated - 1 / 120) < 4.5 * math.sqrt(1 / 120 / rounds)
    assert (cohorts(10, 50, seed=1, fraction=0.3) != taken[:50]).any()


POISSON = {"fraction": 0.5, "sampling": "poisson"}


@pytest.mark.parametrize(
    ("participation", "noise"), [({}, SHOWN), ({"fraction": 0.5}, SHOWN), (POISSON, SHOWN), (POISSON, SECRET)]
)
def test_absence_strikes_each_client_and_each_round_by_itself(participation: dict[str, Any], noise: NoiseKey) -> None:
    if noise.secret:
        pytest.importorskip("randomgen")
    rounds, clients = 3000, 8
    present = cohorts(clients, rounds, dropout=0.3, noise=noise, **participation)
    chance = participation.get("fraction", 1.0) * 0.7
    error = math.sqrt(chance * (1 - chance) / rounds)
    assert np.abs(present.mean(0) - chance).max() < 4 * error
    one_after_the_other = (present[1:] & present[:-1]).mean(0)
    assert np.abs(one_after_the_other - chance**2).max() < 5 * math.sqrt(chance**2 / rounds)
    if not participation:  # who is absent is binomial: nobody's absence goes with another's
        assert abs(present.sum(1).var() - clients * 0.21) < 4 * clients * 0.21 * math.sqrt(2 / rounds)


class Noting(tiny.Recording):
    """A fleet that keeps every round's cohort."""

    def train(self, handle: Any, round_: int, cohort: Sequence[int]) -> Iterator[Reply]:
        self.cohorts = [*getattr(self, "cohorts", []), list(cohort)]
        yield from super().train(handle, round_, cohort)


def test_a_federation_asks_the_cohort_of_its_round() -> None:
    corpus = tiny.corpus(clients=6, texts=2)
    experiment = tiny.experiment(
        participation={"fraction": 0.5}, training=tiny.TRAINING | {"rounds": 6}, evaluation={"personalize": None}
    )
    federation = tiny.federation(experiment, corpus, Noting)
    fleet = federation.fleet
    rows = list(federation.run())
    assert fleet.cohorts == [sampled(experiment, range(6), round_, fleet.noise) for round_ in range(1, 7)]
    assert len({tuple(cohort) for cohort in fleet.cohorts}) > 1
    assert [record.metrics["clients_trained"] for record in rows] == [3] * 6


NOISY = {"weights": "uniform", "noise": {"multiplier": 1.0}}


@pytest.mark.parametrize("noise", ["reproducible", "secret"])
def test_trials_with_noise_of_the_server_draw_samples_that_are_independent(noise: str) -> None:
    """What they guarantee together is amplified only if a client is not in a round of all of them or of none."""
    if noise == "secret":
        pytest.importorskip("randomgen")
    changes = [{"training": tiny.TRAINING | {"optimizer": {"lr": lr}}} for lr in (0.1, 0.2)]
    changes += [{"uplink": [{"clip": {"norm": norm}}]} for norm in (0.1, 0.2)]
    changes += [{"method": {"name": "fedprox", "mu": 0.0}}, {"server": NOISY | {"noise": {"multiplier": 2.0}}}]
    base = {"uplink": ["clip"], "server": NOISY, "participation": POISSON, "privacy": {"noise": noise}}
    clients, rounds = 50, 40
    drawn, canaries = [], []
    for changed in changes:
        made = tiny.experiment(**(base | changed))
        key = noise_key(made, "content", clients)
        samples = [sampled(made, range(clients), round_, key) for round_ in range(1, rounds + 1)]
        drawn.append(np.array([np.isin(np.arange(clients), sample) for sample in samples]))
        there = SimpleNamespace(apart=None, noise=key, experiment=made, plan=range(clients))
        rows = [CentralCanaries._there(cast(Any, there), round_, 1) for round_ in range(1, rounds + 1)]
        canaries.append(np.array(rows))
    for one, other in nonempty([*itertools.combinations(drawn, 2), *itertools.combinations(canaries, 2)]):
        assert abs((one == other).mean() - 0.5) < 4.5 * 0.5 / math.sqrt(one.size)


def test_trials_without_noise_of_the_server_have_the_same_samples() -> None:
    made = [tiny.experiment(participation=POISSON, training=tiny.TRAINING | {"local_epochs": e}) for e in (1, 2)]
    keys = [noise_key(each, "content", 20) for each in made]
    assert keys[0] != keys[1]
    one, other = ([sampled(e, range(20), r, key) for r in range(1, 9)] for e, key in zip(made, keys, strict=True))
    assert one == other
