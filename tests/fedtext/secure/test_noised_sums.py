"""Noise that clients add before the masks: what is in the sums, and what the ledger says of it."""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from fedtext.accounting import composition
from fedtext.accounting.distributed import rounded_norm
from fedtext.client.local_fleet import LocalFleet
from fedtext.errors import UserError
from fedtext.layout import Layout
from fedtext.ledger import ledger, spent
from fedtext.ledger.distributed import grid
from fedtext.ledger.report import reveals
from fedtext.messages import Update
from fedtext.secure import integer_noise, records
from fedtext.secure.ring import Ring, RingSum, in_integers, noised
from fedtext.server.noise import deviation, noise_errors
from fedtext.state.fingerprint import fingerprint, released
from tests import tiny
from tests.fedtext.secure.test_protocol import ALL, CORPUS, TWO, Watched
from tests.fedtext.secure.test_secure_clients import clients
from tests.loops import nonempty

pytest.importorskip("dp_accounting")
KINDS = ["discrete_gaussian", "skellam"]
WEIGHTS = {"weights": "uniform"}


def noisy(kind: str = "skellam", secure: Any = None, noise: Any = None, uplink: Any = None, **sections: Any) -> Any:
    asked = {"mechanism": kind, **(noise or {"multiplier": 1.5})}
    given = {"participation": {"min_clients": 7, "dropout": 0.1}, "training": TWO, **sections}
    server = WEIGHTS | {"secure_aggregation": ALL if secure is None else secure, "noise": asked}
    return tiny.experiment("fedavg", server=server, uplink=uplink or [{"clip": {"norm": 0.5}}], **given)


def finished(experiment: Any, folder: Path | None = None, fleet: Any = LocalFleet) -> Any:
    federation = tiny.federation(experiment, CORPUS, fleet, folder)
    federation.records = list(federation.run())
    return federation


@pytest.mark.parametrize("kind", KINDS)
def test_masks_change_no_bit_of_a_noised_sum(kind: str) -> None:
    masked, plain = finished(noisy(kind)), finished(noisy(kind, {"masks": False}))
    assert masked.flat.tobytes() == plain.flat.tobytes()
    assert sum(record.metrics["secure_removed"] for record in masked.records) > 0
    assert masked.step.noise.deviation == 0, "the server adds none"


@pytest.mark.parametrize("kind", KINDS)
def test_the_sum_has_the_noise_of_all_its_clients_and_no_other(kind: str) -> None:
    """With a step as small as 24 bits give, what a sum differs by from that without noise is the noise alone."""
    everyone = {"participation": {"min_clients": 9}, "training": tiny.TRAINING | {"rounds": 1}}
    made = finished(noisy(kind, **everyone))
    still = finished(noisy(kind, **everyone).model_copy(update={"server": tiny.experiment("fedavg").server}))
    size = made.coordinates
    noise = made.flat.astype(np.float64) - still.flat
    noise = np.concatenate([part.reshape(-1) for part in made.layout.views(noise).values()])
    planned = grid(made.experiment, 12, size)
    assert planned is not None
    assert planned.noise.count == 9 - 2, "of 12 clients two may show the server their noise"
    expected = planned.error(12)
    assert expected == pytest.approx(1.5 * 0.5 * math.sqrt(12 / 7) / 12, rel=1e-3)
    assert len(noise) == size
    assert noise.std() == pytest.approx(expected, rel=5 / math.sqrt(size))
    assert abs(noise.mean()) < 5 * expected / math.sqrt(size)
    said = noise_errors(made.experiment, 12, size)
    assert f"at most {expected:.4g}" in said
    assert said.startswith(f"server.noise: {kind}: ")
    assert deviation(made.experiment, 12) == 0


def test_each_client_and_round_has_its_own_noise_and_a_run_the_same_again(tmp_path: Path) -> None:
    first, again = finished(noisy(), fleet=Watched), finished(noisy(), fleet=Watched)
    assert first.flat.tobytes() == again.flat.tobytes()
    other = finished(noisy(noise={"multiplier": 1.6}))
    assert not np.allclose(first.flat, other.flat, atol=1e-4)
    half = tiny.federation(noisy(), CORPUS, LocalFleet, tmp_path)
    next(half.run())
    second = tiny.federation(noisy(), CORPUS, LocalFleet, tmp_path)
    list(second.run())
    assert second.flat.tobytes() == first.flat.tobytes()
    draws = {
        (round_, client): first.fleet.noise.generator("distributed", round_, client).bytes(8)
        for round_ in (1, 2)
        for client in range(12)
    }
    assert len(set(draws.values())) == 24


def test_secret_noise_is_another_in_each_run(tmp_path: Path) -> None:
    pytest.importorskip("randomgen")
    secret = noisy(privacy={"noise": "secret"})
    one, two = finished(secret), finished(secret)
    assert not np.allclose(one.flat, two.flat, atol=1e-4)
    entry = next(entry for entry in one.ledger(2) if entry.unit == "run")
    assert "drawn from the operating system's entropy" in entry.assumptions


def update(client: int, size: int, norm: float) -> Update:
    values = np.random.default_rng(client).standard_normal(size).astype(np.float32)
    return Update(client, 5, {"a": values * np.float32(norm / np.linalg.norm(values))})


@pytest.mark.parametrize("kind", KINDS)
def test_coarse_integers_are_unbiased_and_within_the_norm(kind: str) -> None:
    """Of 6 bits; the mean of many roundings of one update is the update, and none is longer than the ledger says."""
    experiment = noisy(kind, {"bits": 6, "masks": False}, {"multiplier": 4.0}, [{"clip": {"norm": 1.0}}])
    size, layout = 300, Layout({"a": (300,)})
    made = Ring(experiment, [5] * 12, size)
    assert made.grid is not None
    given, total = update(0, size, 1.0), RingSum(layout, made, 12.0)
    for draw in range(3000):
        total.add(in_integers(given, made.integers(given, np.random.default_rng(draw))[0]))
    mean = layout.views(total.mean())["a"]
    error = made.step * math.sqrt((made.grid.noise.variance + 0.25) / 3000)
    assert np.abs(mean - given.tensors["a"]).max() < 5 * error
    assert made.grid.noise.sensitivity == rounded_norm(31.0, size)
    assert made.grid.norm == pytest.approx(31.0)


def test_an_update_that_is_longer_than_its_bound_by_rounding_is_shortened() -> None:
    experiment = noisy(secure={"masks": False}, uplink=[{"clip": {"norm": 1.0}}])
    made = Ring(experiment, [5] * 12, 300)
    assert made.grid is not None
    quiet = made.integers(update(0, 300, 1.5), np.random.default_rng(1))[0].view(np.int32).astype(float)
    noise = math.sqrt(300 * made.grid.noise.variance)
    assert np.linalg.norm(quiet) < made.grid.norm + 2 * noise
    direction = update(0, 300, 1.0).tensors["a"].astype(float)
    assert quiet @ direction * made.step == pytest.approx(1.0, abs=6 * math.sqrt(made.grid.noise.variance) * made.step)


def test_an_update_is_rounded_again_while_its_norm_has_grown_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without noise, and with a bound that half of all roundings exceed: none of 200 does."""
    monkeypatch.setattr(integer_noise, "skellam", lambda rng, variance, count: np.zeros(count, np.int64))
    planned = grid(noisy(secure={"bits": 6, "masks": False}, uplink=[{"clip": {"norm": 1.0}}]), 12, 300)
    assert planned is not None
    given = update(0, 300, 31.0).tensors["a"].astype(np.float64)
    lower, rng = np.floor(given), np.random.default_rng(2)
    lengths = [float(np.linalg.norm(lower + (rng.random(300) < given - lower))) for _ in range(400)]
    middle = float(np.median(lengths))
    tight = replace(planned, noise=replace(planned.noise, sensitivity=middle))
    for draw in nonempty(range(200)):
        rounded = noised(tight, given.copy(), np.random.default_rng(draw)).view(np.int32)
        assert np.linalg.norm(rounded) <= middle
        assert np.abs(rounded - given).max() < 1


def test_fewer_clients_than_counted_on_end_the_run() -> None:
    with pytest.raises(
        UserError, match=r"round \d: \d+ of \d+ clients completed it, fewer than the 12 of participation"
    ):
        finished(noisy(participation={"min_clients": 12, "dropout": 0.3}))


def test_no_client_opens_a_sum_with_less_noise_than_the_ledger_counts_on() -> None:
    made = clients(4)
    experiment = noisy(secure={"colluding": 0.0}, participation={"min_clients": 4})
    made.ring = Ring(experiment, [5] * 4, 10)
    with pytest.raises(ValueError, match="asked to open a sum with the noise of 3 clients, which is too little"):
        made.answer("open", {0: records.pack_ids([0, 1, 2])})


@pytest.mark.parametrize("kind", KINDS)
def test_the_ledger_states_what_the_noise_guarantees(kind: str) -> None:
    experiment = noisy(kind)
    each, run = ledger(experiment, 1000, 12, 2)
    assert each.mechanism == run.mechanism == "server.noise"
    assert (each.unit, run.unit) == ("client and round", "run")
    gaussian = composition.gaussian(1.5, 2, 1e-5)
    assert gaussian <= run.epsilon <= 1.15 * gaussian
    assert each.epsilon < run.epsilon
    name = kind.replace("_", " ")
    assert f"distributed {name}, noise multiplier 1.5, sensitivity 0.5 of updates of norm 0.5 rounded to" in run.how
    assert run.how.endswith("the noise of 5 clients, 2 rounds")
    for said in nonempty(("with zeros in their place", "the noise of 10% of a round's clients", "the server is among")):
        assert said in run.assumptions
    assert spent(ledger(experiment, 1000, 12, 1))["epsilon"] == each.epsilon
    report = " ".join(reveals(experiment, [run]))
    assert "each client adds its share of the noise before the masks" in report
    bare = ledger(noisy(kind, {"masks": False}), 1000, 12, 2)[1]
    assert bare.epsilon == run.epsilon
    assert "without them (masks: false) the server sees each update by itself" in bare.assumptions


def test_more_clients_who_show_their_noise_ask_for_more_of_it() -> None:
    few, many = (grid(noisy(secure={"colluding": share}), 12, 1000) for share in (0.0, 0.5))
    assert few is not None
    assert many is not None
    assert (few.noise.count, many.noise.count) == (7, 1)
    assert many.noise.variance == pytest.approx(7 * few.noise.variance)


def test_participations_that_are_apart_are_counted() -> None:
    apart = {"fraction": 0.5, "sampling": "epochs", "min_clients": 4}
    longer = {"participation": apart, "training": tiny.TRAINING | {"rounds": 10}}
    whole, half = ledger(noisy(**longer), 1000, 12, 10)[1], ledger(noisy(), 1000, 12, 5)[1]
    assert whole.epsilon == pytest.approx(half.epsilon, rel=1e-6)
    assert whole.how.endswith("5 of 10 rounds")
    fixed = {"participation": {"fraction": 0.5, "min_clients": 4}, "training": tiny.TRAINING | {"rounds": 10}}
    assert ledger(noisy(**fixed), 1000, 12, 10)[1].epsilon > whole.epsilon, "a sample by chance amplifies nothing"


@pytest.mark.parametrize("kind", KINDS)
def test_a_target_is_met(kind: str) -> None:
    experiment = noisy(kind, {"bits": 8}, {"target_epsilon": 3.0})
    assert 2.99 < spent(ledger(experiment, 1000, 12, 2))["epsilon"] <= 3.0


def test_bits_leave_room_for_the_noise() -> None:
    fine, loud = grid(noisy(), 12, 1000), grid(noisy(noise={"multiplier": 3000.0}), 12, 1000)
    assert fine is not None
    assert loud is not None
    assert fine.bits == 24
    assert loud.bits < 20
    total = 12 * (2 ** (loud.bits - 1) - 1) + 10 * math.sqrt(12 * loud.noise.variance)
    assert total < 2**31 <= 2.1 * total
    with pytest.raises(
        UserError, match=r"bits: the sum of 12 updates of 24 bits and their noise may need more than 32"
    ):
        grid(noisy(secure={"bits": 24}, noise={"multiplier": 3000.0}), 12, 1000)


def test_too_little_noise_is_refused() -> None:
    with pytest.raises(UserError, match=r"a client's noise has a standard deviation of 0\.\d+ steps, and nothing is"):
        grid(noisy("discrete_gaussian", {"bits": 3}, {"multiplier": 0.1}), 12, 100)
    assert grid(noisy("skellam", {"bits": 3}, {"multiplier": 0.1}), 12, 100) is not None
    with pytest.raises(UserError, match=r"may have no noise but that of 2 clients who show the server theirs"):
        grid(noisy(participation={}), 12, 100)


REFUSED = [
    ({"server": WEIGHTS | {"noise": {"mechanism": "skellam", "multiplier": 1}}}, "set server.secure_aggregation"),
    ({"participation": {"sampling": "poisson", "fraction": 0.5}}, "set participation.sampling: fixed"),
    ({"noise": {"multiplier": 1.0, "cohort_size": 100}}, "cohort_size scales noise that the server adds"),
    ({"uplink": [{"quantize": {"q": 0.1}}]}, "set clip as the last mechanism"),
    ({"uplink": [{"clip": {"norm": 1.0}}, {"gaussian": {"sigma": 1.0}}]}, "set clip as the last mechanism"),
]


@pytest.mark.parametrize(("changes", "sentence"), REFUSED)
def test_what_would_guarantee_nothing_is_refused(changes: dict[str, Any], sentence: str) -> None:
    made = partial(tiny.experiment, "fedavg", uplink=["clip"]) if "server" in changes else noisy
    with pytest.raises(ValidationError, match=sentence):
        made(**changes)


def test_noise_depends_on_all_that_its_size_follows_from() -> None:
    plain = noisy()
    others = [
        noisy("discrete_gaussian"),
        noisy(noise={"multiplier": 1.6}),
        noisy(secure=ALL | {"colluding": 0.2}),
        noisy(secure=ALL | {"bits": 12}),
        noisy(participation={"min_clients": 6, "dropout": 0.1}),
    ]
    assert len({released(each, "content", 12) for each in [plain, *others]}) == 6
    same = [noisy(secure={"masks": False}), noisy(training=TWO | {"rounds": 7})]
    assert {released(each, "content", 12) for each in same} == {released(plain, "content", 12)}
    longer = [noisy(noise={"target_epsilon": 3.0}, training=TWO | {"rounds": rounds}) for rounds in (2, 7)]
    assert released(longer[0], "content", 12) != released(longer[1], "content", 12)
    assert fingerprint(plain, "content", 12) != fingerprint(others[0], "content", 12)
