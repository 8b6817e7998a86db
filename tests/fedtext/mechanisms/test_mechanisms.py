"""Mechanisms, one by one and in a run."""

import math
from typing import Any

import numpy as np
import pytest

from fedtext.config.files import validate
from fedtext.errors import ClientError, UserError
from fedtext.layout import TABLE
from fedtext.ledger import ledger
from fedtext.ledger.report import reveals
from fedtext.mechanisms import MECHANISMS, Clip, Gaussian, Quantize, RandomizedResponse
from fedtext.mechanisms.base import sensitivity, steps
from fedtext.mechanisms.draws import _below
from fedtext.methods import METHODS
from fedtext.parameters import initial
from fedtext.seeding import generator
from tests import tiny
from tests.loops import nonempty

RNG = generator(0, "test")


def test_clip_scales_the_whole_update_to_its_norm() -> None:
    delta = {"a": np.array([3.0, 0.0], np.float32), "b": np.array([[4.0]], np.float32)}  # norm 5
    clipped = Clip(norm=1).apply(delta, {}, RNG)
    assert np.allclose(clipped["a"], [0.6, 0])
    assert np.allclose(clipped["b"], [[0.8]])
    same = Clip(norm=5).apply(delta, {}, RNG)
    assert all(np.array_equal(same[name], delta[name]) for name in delta)
    zero = Clip(norm=1).apply({"a": np.zeros(2, np.float32)}, {}, RNG)
    assert np.array_equal(zero["a"], [0, 0])


def test_an_update_is_taken_for_scaled_unless_it_is_shorter_than_the_norm_by_more_than_rounding() -> None:
    def rescales(length: float) -> bool:
        return Clip(norm=2).rescales({"a": np.array([0.6 * length], np.float32), "b": np.array([0.8 * length], "f4")})

    assert [rescales(length) for length in (1.0, 1.9997, 1.9999, 2.0)] == [False, False, True, True]
    assert Clip(norm=2).rescales(None), "a later mechanism may have changed its length"


def test_only_noise_on_every_row_sends_the_whole_table() -> None:
    uplinks: dict[str, list[Any]] = {
        "none": [],
        "clip": ["clip"],
        "gaussian": ["clip", "gaussian"],
        "quantize": ["quantize"],
        "randomized_response": ["quantize", "randomized_response"],
    }
    assert [name for name, uplink in uplinks.items() if tiny.experiment(uplink=uplink).own_rows] == ["none", "clip"]


def test_gaussian_noise_has_the_mean_and_deviation_it_says() -> None:
    count, sigma = 200_000, 0.3
    noise = Gaussian(sigma=sigma).apply({"a": np.ones(count, np.float32)}, {}, RNG)["a"] - 1
    assert abs(noise.mean()) < 4 * sigma / math.sqrt(count)
    assert abs(noise.std() - sigma) < 4 * sigma / math.sqrt(2 * count)


def test_gaussian_noise_beyond_float32_is_refused_and_the_largest_has_a_guarantee() -> None:
    with pytest.raises(UserError, match=r"gaussian\.sigma: 1e\+300 is beyond float32, in which noise is"):
        validate({"name": "x", "corpus": "demo", "method": "fedavg", "uplink": [{"gaussian": {"sigma": 1e300}}]})
    entries = ledger(tiny.experiment(uplink=["clip", {"gaussian": {"sigma": 3e38}}]), 4, 2, 2)
    assert all(nonempty(entry.epsilon is not None and entry.epsilon >= 0 for entry in entries))


def test_noise_differs_between_clients_and_rounds_and_repeats_with_the_seed() -> None:
    draws = {
        key: Gaussian().apply({"a": np.zeros(4, np.float32)}, {}, generator(key[0], "uplink/0/gaussian", *key[1:]))["a"]
        for key in ((0, 1, 1), (0, 1, 2), (0, 2, 1), (1, 1, 1))
    }
    assert len({draw.tobytes() for draw in draws.values()}) == 4
    again = Gaussian().apply({"a": np.zeros(4, np.float32)}, {}, generator(0, "uplink/0/gaussian", 1, 1))["a"]
    assert np.array_equal(again, draws[0, 1, 1])


@pytest.mark.parametrize("method", ["fedavg", "kteps"])
def test_a_clip_nobody_reaches_changes_nothing(method: str) -> None:
    corpus, finals = tiny.corpus(), []
    for uplink in ([], [{"clip": {"norm": 1e9}}]):
        experiment = tiny.experiment(method, uplink=uplink)
        federation = tiny.federation(experiment, corpus)
        list(federation.run())
        finals.append(federation.flat.tobytes())
    assert finals[0] == finals[1]


Q, DRAWS = 0.001, 400_000
VALUES = {"-q": -Q, "-q/3": -Q / 3, "0": 0.0, "q/2": Q / 2, "q": Q, "3q": 3 * Q}
PAIR: list[Any] = [{"quantize": {"q": Q}}, {"randomized_response": {"epsilon": 1.0}}]


def bits_of(value: float, epsilon: float, together: bool = True) -> np.ndarray:
    """What DRAWS clients who all have ``value`` send."""
    quantize, response = Quantize(q=Q), RandomizedResponse(epsilon=epsilon)
    rng = generator(0, f"{value}/{epsilon}/{together}")
    sent = {"a": np.full(DRAWS, value, np.float32)}
    chain = steps([quantize, response]).values() if together else [quantize.apply, response.apply]
    for step in chain:
        sent = step(sent, {}, rng)
    assert sent["a"].dtype == np.bool_
    return sent["a"]


def is_unbiased(mean: float, value: float, epsilon: float) -> bool:
    """Whether the mean of DRAWS readings lies within four standard errors of what they are readings of."""
    clipped, c = min(value, Q), math.tanh(epsilon / 2)
    return abs(mean - clipped) < 4 * math.sqrt((Q**2 / c**2 - clipped**2) / DRAWS)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("together", [True, False], ids=["one draw", "two draws"])
def test_randomised_response_is_unbiased_with_the_variance_it_says(
    value: float, epsilon: float, together: bool
) -> None:
    sent = {"a": bits_of(value, epsilon, together)}
    read = Quantize(q=Q).restore(RandomizedResponse(epsilon=epsilon).restore(sent, {}), {})["a"]
    assert read.dtype == np.float32
    clipped, c = min(value, Q), math.tanh(epsilon / 2)
    variance = Q**2 / c**2 - clipped**2
    assert sorted(set(read.tolist())) == pytest.approx([-Q / c, Q / c], rel=1e-5)
    assert is_unbiased(read.mean(dtype=np.float64), value, epsilon)
    # of a reading that is one of two values the variance is certain but for that of its mean
    assert read.var(dtype=np.float64) == pytest.approx(
        variance, abs=4 * 2 * abs(clipped) * math.sqrt(variance / DRAWS) + 1e-3 * variance
    )


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_quantisation_alone_is_unbiased_and_certain_at_its_ends(value: float) -> None:
    read = Quantize(q=Q)
    sent = read.apply({"a": np.full(DRAWS, value, np.float32)}, {}, RNG)
    numbers = read.restore(sent, {})["a"]
    clipped = min(value, Q)
    assert abs(numbers.mean(dtype=np.float64) - clipped) <= 4 * math.sqrt((Q**2 - clipped**2) / DRAWS) + 1e-9
    if abs(clipped) == Q:
        assert len(set(numbers.tolist())) == 1


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_the_correction_as_the_paper_prints_it_is_biased(value: float, epsilon: float) -> None:
    """Equation 5 multiplies by c where it has to divide, and so reads c^2 v - (1 - c^2) q: right only at -q."""
    c, clipped = math.tanh(epsilon / 2), min(value, Q)
    bits = bits_of(value, epsilon).mean()
    shift = 1 / (1 + math.exp(epsilon))
    printed, right = ((bits - shift) * factor * 2 * Q - Q for factor in (c, 1 / c))
    assert is_unbiased(right, value, epsilon)
    assert is_unbiased(printed, value, epsilon) == (value == -Q)
    assert printed == pytest.approx(c**2 * clipped - (1 - c**2) * Q, rel=0.02)


@pytest.mark.parametrize(
    ("uplink", "words"),
    [
        (["randomized_response"], "randomized_response must directly follow quantize"),
        (["quantize", "randomized_response", "randomized_response"], "must directly follow quantize"),
        (["quantize", "gaussian"], "gaussian needs numbers, and quantize leaves bits: put it before quantize"),
        (["quantize", "randomized_response", "clip"], "clip needs numbers"),
        (["quantize", "quantize"], "quantize needs numbers"),
        ([{"quantize": {"q": 1e-38}}], r"greater than or equal to 0\.0+1"),
    ],
)
def test_bits_stand_at_the_end_of_an_uplink(uplink: list[str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tiny.experiment(uplink=uplink)
    tiny.experiment(uplink=["clip", "gaussian", "quantize"])


def test_what_randomised_response_guarantees_is_said() -> None:
    assert any("epsilon = 1 for each coordinate" in said for said in reveals(tiny.experiment(uplink=PAIR)))
    for uplink, certain in ((PAIR[:1], True), (PAIR, False)):
        experiment = tiny.experiment(uplink=uplink)
        said = reveals(experiment, ledger(experiment, 100, 10, 25))
        assert any("quantize: no guarantee: a bit may be certain" in sentence for sentence in said) == certain


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if method.shares and not method.pooled])
@pytest.mark.parametrize("model", [{"name": "bag", "embedding": {"dim": 5}}, {"embedding": {"dim": 5}, "hidden": 4}])
def test_every_method_works_with_one_bit_a_number(method: str, model: Any) -> None:
    """In one round: in two the changes of a row could cancel each other."""
    training = tiny.TRAINING | {"rounds": 1}
    corpus, experiment = tiny.corpus(), tiny.experiment(method, uplink=PAIR, model=model, training=training)
    assert not experiment.own_rows
    shared = initial(experiment, corpus)[0]
    federation = tiny.federation(experiment, corpus)
    before = federation.flat.copy()
    rows = list(federation.run())
    twice = 1 + (method == "scaffold")  # as much again beside an update
    numbers = twice * sum(tensor.size for tensor in shared.values())
    if not shared:
        assert rows[-1].metrics["bytes_up"] == 0
        return
    header = 100 * (twice * len(shared) + 2)
    assert rows[-1].metrics["bytes_up"] <= 3 * (numbers / 8 + header)
    change = federation.flat - before
    if TABLE in shared:
        moved_V = np.any(federation.layout.views(change)[TABLE] != 0, axis=1)
        withheld = federation.fleet.withheld
        kept = np.isin(np.arange(len(moved_V)), [] if withheld is None else withheld)
        assert (moved_V != kept).all(), "the rows of all words move, whoever has them, but for those that nobody sends"
    if method == "feddyn":  # h / alpha is taken off beside
        return
    step = getattr(experiment.method, "step", 1)
    assert np.abs(change).max() <= 2 * step * Q / math.tanh(0.5) * (1 + 1e-3)  # in two rounds


def test_an_update_of_bits_takes_a_thirty_second_of_its_size() -> None:
    corpus, sizes = tiny.corpus(vocabulary=2000), {}
    for name, uplink in (("floats", ["gaussian"]), ("bits", PAIR)):
        experiment = tiny.experiment(model={"name": "bag"}, uplink=uplink, training=tiny.TRAINING | {"rounds": 1})
        (record,) = tiny.federation(experiment, corpus).run()
        sizes[name] = record.metrics["bytes_up"]
    assert sizes["floats"] / sizes["bits"] == pytest.approx(32, rel=0.05)


@pytest.mark.parametrize("method", ["fedavg", "fedatt"])
def test_what_is_not_finite_never_leaves_a_client(method: str) -> None:
    noise = [{"gaussian": {"sigma": 3e38}}]  # beyond 3.4e38 a number in float32 is none
    with pytest.raises(ClientError, match=r"client0.*round 1.*would send is not finite"):
        tiny.Finished(method, uplink=noise)
    with pytest.raises(UserError, match=r"round 1: 0 of 2 clients completed it.*client0.*would send is not finite"):
        tiny.Finished(method, uplink=noise, participation={"on_client_error": "skip"})


@pytest.mark.parametrize("number", [0.1, 0.3, 3 - 1e-9, 7.5, 128 - 1e-7])
def test_the_least_level_is_the_largest_float32_that_is_not_above_it(number: float) -> None:
    close = _below(number)
    assert float(close) <= number < float(np.nextafter(close, np.float32(256)))


def test_sensitivity_is_that_behind_the_last_mechanism() -> None:
    assert sensitivity([]) is None
    assert sensitivity([Clip(norm=2.0)]) == 2.0
    assert sensitivity([Clip(norm=1.0), Clip(norm=0.25)]) == 0.25
    assert sensitivity([Clip(norm=1.0), Gaussian(sigma=0.1)]) is None
    assert sensitivity([Gaussian(sigma=0.1), Clip(norm=1.0)]) == 1.0


def test_which_mechanisms_draw_noise_for_every_coordinate() -> None:
    assert {name for name, mechanism in MECHANISMS.items() if mechanism.randomises} == {
        "gaussian",
        "quantize",
        "randomized_response",
    }
