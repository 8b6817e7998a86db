"""Noise that later rounds take away again: the same bits after an interruption, and the errors that are stated."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

import fedtext
from fedtext.config.noise import strategy_of
from fedtext.layout import Layout
from fedtext.ledger import noise_multiplier
from fedtext.ledger.central import errors, strategy, with_coefficients
from fedtext.matrix_noise import Banded
from fedtext.server.noise import ServerNoise, add_noise, deviation, expected, noise_errors
from fedtext.state.checkpoint import OtherRunError, coefficients
from fedtext.state.fingerprint import fingerprint, fixed_length, released
from fedtext.state.noise_key import NoiseKey
from fedtext.state.versions import VERSIONS
from fedtext.testing.runs import check_run, final
from tests import tiny
from tests.loops import nonempty

pytest.importorskip("scipy")
MECHANISMS: dict[str, Any] = {
    "tree": "tree",
    "banded": {"banded": {"bands": 2}},
    "blt": {"blt": {"buffers": 2}},
    "bisr": {"bisr": {"bands": 3}},
}
EPOCHS = {"fraction": 0.5, "sampling": "epochs"}
SHOWN = NoiseKey(bytes(16))


def correlated(
    mechanism: Any, rounds: int = 5, participation: Any = None, privacy: str = "reproducible", **noise: Any
) -> Any:
    return tiny.experiment(
        privacy={"noise": privacy},
        uplink=[{"clip": {"norm": 2.0}}],
        server={"weights": "uniform", "noise": {"mechanism": mechanism, **(noise or {"multiplier": 1.5})}},
        participation=participation or EPOCHS,
        training=tiny.TRAINING | {"rounds": rounds},
    )


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_run_goes_on_to_the_same_bits_and_does_not_depend_on_the_place_of_clients(name: str, tmp_path: Path) -> None:
    experiment, corpus = correlated(MECHANISMS[name]), tiny.corpus(clients=4)
    whole = final(experiment, corpus)
    for rounds in (2, 4):
        final(experiment, corpus, tmp_path, rounds=rounds)
    assert final(experiment, corpus, tmp_path) == whole
    check_run(correlated(MECHANISMS[name], rounds=2), corpus)


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_noise_has_the_errors_that_are_stated(name: str) -> None:
    rounds, layout = 12, Layout({"a": (20_000,), "b": (3, 1)})
    experiment = correlated(MECHANISMS[name], rounds)
    noise, total, found = ServerNoise(experiment, 10, layout, SHOWN), np.zeros(layout.size), []
    for round_ in range(1, rounds + 1):
        noise.add(total, round_)
        views = layout.views(total)
        found.append(float(np.concatenate([view.ravel() for view in views.values()]).std()))
    made = strategy(experiment)
    assert made is not None
    stated = np.sqrt(made.variances()) * made.sensitivity() * 1.5 * 2.0 / 5
    assert np.abs(np.array(found) / stated - 1).max() < 5 / math.sqrt(2 * 20_003)
    assert errors(experiment).max * 2.0 / 5 == pytest.approx(stated.max())
    assert f"of {np.sqrt(np.mean(stated**2)):.4g} (root mean square over t)" in noise_errors(experiment, 10, 20_003)
    assert np.count_nonzero(total) == 20_003, "what lies between tensors stays empty"


@pytest.mark.parametrize("name", MECHANISMS)
def test_rounds_can_be_asked_for_in_any_order_and_the_first_has_the_draws_of_independent_noise(name: str) -> None:
    layout, experiment = Layout({"a": (5,), "b": (2, 2)}), correlated(MECHANISMS[name])

    def noise_of(noise: ServerNoise, round_: int) -> bytes:
        change_N = np.zeros(layout.size)
        noise.add(change_N, round_)
        return change_N.tobytes()

    straight = ServerNoise(experiment, 4, layout, SHOWN)
    wanted = [noise_of(straight, round_) for round_ in range(1, 6)]
    other = ServerNoise(experiment, 4, layout, SHOWN)
    assert [noise_of(other, round_) for round_ in (3, 5, 2, 2, 1)] == [wanted[i] for i in (2, 4, 1, 1, 0)]
    alone = np.zeros(layout.size)
    add_noise(alone, layout, deviation(experiment, 4), SHOWN, 1)
    assert alone.tobytes() == wanted[0]


def test_noise_for_a_number_of_rounds_is_that_of_no_other_number() -> None:
    made = [correlated("tree", rounds) for rounds in (5, 6)]
    assert "server.noise.mechanism" in fixed_length(made[0])
    assert len({fingerprint(each, "content", 4) for each in made}) == 2
    assert len({released(each, "content", 4) for each in made}) == 2
    kinds = [correlated(mechanism) for mechanism in (*MECHANISMS.values(), "independent", {"bisr": {"bands": 2}})]
    assert len({released(each, "content", 4) for each in kinds}) == len(kinds)
    assert len({fingerprint(each, "content", 4) for each in kinds}) == len(kinds)


def test_other_coefficients_are_another_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a run is not continued where another version of scipy computes others."""
    before = fingerprint(correlated(MECHANISMS["banded"]), "content", 4)
    monkeypatch.setattr(Banded, "coefficients", (1.0, 0.3))
    assert fingerprint(correlated(MECHANISMS["banded"]), "content", 4) != before


def test_independent_noise_keeps_its_name_in_digests() -> None:
    plain = tiny.configured(
        uplink=["clip"], server={"weights": "uniform", "noise": {"multiplier": 1.5}}, wire={"rows": "all"}
    )
    named = plain.model_copy(update={"server": correlated("independent").server})
    assert fingerprint(plain, "content", 4) == fingerprint(named, "content", 4)
    # of the first version that rounds sums with noise towards zero
    assert released(plain, "content", 4)[:16] == "dabafc9187338b75"


@pytest.mark.parametrize(
    ("participation", "wanted"),
    [
        (EPOCHS, 5.0),
        (EPOCHS | {"dropout": 0.2}, 4.0),
        ({"fraction": 0.25, "sampling": "separated", "separation": 3}, 2.0),  # not 2.5
        ({"fraction": 0.25, "sampling": "separated", "separation": 3, "availability": {}, "dropout": 0.5}, 1.0),
        ({}, 10.0),
    ],
)
def test_the_sum_is_divided_by_a_number_that_is_known_before(participation: dict[str, Any], wanted: float) -> None:
    experiment = correlated("tree", participation=participation or {"fraction": 1.0})
    assert expected(experiment, 10) == pytest.approx(wanted)
    made = strategy(experiment)
    assert made is not None
    assert deviation(experiment, 10) == pytest.approx(
        noise_multiplier(experiment) * made.sensitivity() * 2.0 / expected(experiment, 10)
    )


def test_the_noise_of_a_large_cohort_is_simulated_by_a_small_one() -> None:
    alone = correlated("tree")
    large = correlated("tree", multiplier=1.5, cohort_size=500)
    assert expected(large, 10) == expected(alone, 10) == 5
    assert deviation(large, 10) == pytest.approx(deviation(alone, 10) * 5 / 500)
    assert deviation(large, 20) == deviation(large, 10), "however many clients there are"
    draws = [correlated(kind, multiplier=1.5, cohort_size=size) for kind in ("tree", "independent") for size in (5, 6)]
    assert len({released(each, "content", 10) for each in draws}) == 4
    assert len({fingerprint(each, "content", 10) for each in draws}) == 4


def test_all_errors_are_told_at_equal_guarantees() -> None:
    pytest.importorskip("dp_accounting")
    kinds = {name: correlated(mechanism, 64, target_epsilon=4.0) for name, mechanism in MECHANISMS.items()}
    kinds["independent"] = correlated("independent", 64, target_epsilon=4.0)
    found = {name: errors(experiment).max for name, experiment in nonempty(kinds.items())}
    assert found["blt"] < found["bisr"] < found["tree"]
    assert found["independent"] > found["banded"]


def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if another processor found other coefficients."""
    monkeypatch.setattr("fedtext.config.noise.optimal_bands", lambda *_: (1.0, 0.25))
    monkeypatch.setattr("fedtext.config.noise.optimal_buffers", lambda *_: ((0.9, 0.4), (0.3, 0.2)))
    strategy_of.cache_clear()


@pytest.fixture
def _fresh() -> Iterator[None]:
    yield
    strategy_of.cache_clear()


@pytest.mark.usefixtures("_fresh")
@pytest.mark.parametrize("kind", ["banded", "blt"])
def test_a_run_goes_on_with_its_coefficients_where_others_would_be_computed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = correlated(MECHANISMS[kind])
    whole = tiny.federation(experiment)
    list(whole.run())
    begun = tiny.federation(experiment, folder=tmp_path)
    next(begun.run())
    kept = coefficients(tmp_path)
    assert kept == list(strategy(experiment).coefficients)  # type: ignore[union-attr]
    elsewhere(monkeypatch)
    assert strategy(experiment).coefficients != tuple(kept)  # type: ignore[union-attr]
    with pytest.raises(OtherRunError):
        tiny.federation(experiment, folder=tmp_path)
    continued = tiny.federation(with_coefficients(experiment, kept), folder=tmp_path)
    assert len(continued.history) == 1
    list(continued.run())
    assert continued.flat.tobytes() == whole.flat.tobytes()


@pytest.mark.usefixtures("_fresh")
def test_python_continues_a_run_with_its_coefficients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {
        "name": "small",
        "corpus": {"name": "demo", "clients": 4, "train": 24, "test": 15},
        "model": {"embedding": {"dim": 6}, "hidden": 4, "head": {"hidden": 3}},
        "method": "fedavg",
        "uplink": ["clip"],
        "training": {"rounds": 3, "local_epochs": 1, "batch_size": 6},
        "server": {"weights": "uniform", "noise": {"mechanism": {"blt": {"buffers": 2}}, "multiplier": 1.0}},
        "participation": EPOCHS,
        "evaluation": {"personalize": None},
    }

    class StoppedError(Exception):
        pass

    def stop(record: Any) -> None:
        raise StoppedError

    whole = fedtext.run(small)
    with pytest.raises(StoppedError):
        fedtext.run(small, out=tmp_path / "run", on_round=stop)
    elsewhere(monkeypatch)
    again = fedtext.run(small, out=tmp_path / "run", resume=True)
    assert len(again.history) == 3
    for name, tensor in nonempty(whole.state.items()):
        assert tensor.tobytes() == again.state[name].tobytes()
    assert whole.ledger == again.ledger


def test_coefficients_of_an_earlier_run_can_be_given_and_others_are_refused() -> None:
    plain = correlated(MECHANISMS["blt"])
    made = strategy(plain)
    assert made is not None
    given = with_coefficients(plain, made.coefficients)
    assert given.server.noise.mechanism.coefficients == made.coefficients
    assert fingerprint(given, "content", 4) == fingerprint(plain, "content", 4)
    assert released(given, "content", 4) == released(plain, "content", 4)
    assert with_coefficients(plain, [0.5]) == plain, "another number of them is of another experiment"
    assert with_coefficients(given, (0.9, 0.4, 0.3, 0.2)) == given
    other = correlated({"blt": {"buffers": 2, "coefficients": [0.9, 0.4, 0.3, 0.2]}})
    assert fingerprint(other, "content", 4) != fingerprint(plain, "content", 4)
    assert released(other, "content", 4) != released(plain, "content", 4)
    refused = [
        ({"blt": {"buffers": 2, "coefficients": [0.9, 0.4, 0.3]}}, "there are 3, and blt has 4"),
        ({"blt": {"buffers": 2, "coefficients": [1.0, 0.4, 0.3, 0.2]}}, "decays between 0 and 1"),
        ({"blt": {"buffers": 2, "coefficients": [0.9, 0.4, 0.9, 0.2]}}, "whose sum is at most 1"),
        ({"banded": {"bands": 2, "coefficients": [0.9, 0.4]}}, "the first is 1"),
        ({"banded": {"bands": 2, "coefficients": [1.0, -0.1]}}, "none is negative"),
        ({"banded": {"bands": 2, "coefficients": [1.0]}}, "there are 1, and banded has 2"),
    ]
    for mechanism, sentence in nonempty(refused):
        with pytest.raises(ValidationError, match=sentence):
            correlated(mechanism)


@pytest.mark.parametrize("name", MECHANISMS)
def test_with_a_secret_key_a_sum_shows_no_digits_finer_than_those_of_the_noise(name: str) -> None:
    """Two means that differ by less than the unit release the same, and the noise has its deviation."""
    layout, rounds = Layout({"a": (20_000,)}), 6
    experiment = correlated(MECHANISMS[name], rounds, privacy="secret")
    rng, means, found = np.random.default_rng(0), [], []
    unit = 2.0 ** (math.floor(math.log2(deviation(experiment, 10))) - 30)
    whole_N = rng.integers(-(2**20), 2**20, layout.numbers)
    for shift in (0.2, -0.3):
        noise, total = ServerNoise(experiment, 10, layout, NoiseKey(bytes(32), secret=True)), np.zeros(layout.size)
        for round_ in nonempty(range(1, rounds + 1)):
            mean_N = np.zeros(layout.size)
            mean_N[: layout.numbers] = unit * (whole_N + shift)
            noise.add(mean_N, round_)
            units_N = mean_N[: layout.numbers] / unit
            assert (units_N == np.rint(units_N)).all()
            total += mean_N
        means.append(mean_N)
        found.append(float((total[: layout.numbers] - rounds * unit * whole_N).std()))
    assert np.array_equal(*means)
    made = strategy(experiment)
    assert made is not None
    stated = math.sqrt(made.variances()[-1]) * made.sensitivity() * 1.5 * 2.0 / 5
    assert found[0] == pytest.approx(stated, rel=5 / math.sqrt(2 * layout.numbers))


def test_a_run_with_a_secret_key_that_rounded_otherwise_is_not_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round that is repeated would be released with the same draws in another size."""
    for secret in nonempty((True, False)):
        made = correlated("blt", privacy="secret" if secret else "reproducible")
        now = [digest(made, "content", 4) for digest in (fingerprint, released)]
        with monkeypatch.context() as before:
            before.setitem(VERSIONS, "rounding", 1)
            then = [digest(made, "content", 4) for digest in (fingerprint, released)]
        assert all(a != b for a, b in zip(now, then, strict=True)) if secret else now == then
