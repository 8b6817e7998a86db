"""A norm that follows a quantile of the norms of updates, and what it costs."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtext.accounting import composition
from fedtext.config.engine import with_engine
from fedtext.errors import UserError
from fedtext.layout import Layout
from fedtext.ledger import ledger, spent
from fedtext.mechanisms.clip import NORM, WITHIN, AdaptiveNorm, Clip
from fedtext.server.clip_norm import ClipNorm
from fedtext.server.noise import ServerNoise, deviation, noise_errors
from fedtext.state.fingerprint import fingerprint, released
from fedtext.state.noise_key import NoiseKey
from fedtext.testing.runs import check_run, final
from tests import tiny
from tests.loops import nonempty

Z, SIGMA = 0.5, 1.5
SHOWN = NoiseKey(bytes(16))
Z_UPDATES = (Z**-2 - (2 * SIGMA) ** -2) ** -0.5


def adaptive(method: Any = "fedavg", rounds: int = 4, noise: Any = None, **changes: Any) -> Any:
    base: dict[str, Any] = {
        "uplink": [{"clip": {"norm": 0.5, "adaptive": {"sigma": SIGMA}}}],
        "server": {"weights": "uniform", "noise": noise or {"multiplier": Z}},
        "participation": {"fraction": 0.75, "sampling": "poisson"},
        "training": tiny.TRAINING | {"rounds": rounds},
    }
    return tiny.experiment(method, **(base | changes))


def test_an_update_is_clipped_to_the_norm_that_was_received_and_says_whether_it_was() -> None:
    clip, rng = Clip(norm=9.0, adaptive=AdaptiveNorm()), np.random.default_rng(0)
    update = {"a": np.array([3.0, 0.0], np.float32), "b": np.array([[4.0]], np.float32)}
    for norm, scale, within in nonempty([(2.5, 0.5, -0.5), (5.0, 1.0, 0.5), (6.0, 1.0, 0.5)]):
        sent = clip.apply(update, {NORM: np.array([norm], np.float32)}, rng)
        assert sent[WITHIN].tolist() == [within]
        assert sent["a"].tolist() == [3 * scale, 0]
        assert sent["b"].tolist() == [[4 * scale]]
        assert clip.rescales(sent) == (within < 0)
    assert clip.rescales(None)
    assert clip.leaves({"a": (2,)}) == {"a": (2,), WITHIN: (1,)}
    assert Clip().leaves({"a": (2,)}) == {"a": (2,)}


def test_the_norm_moves_by_the_formula_of_the_paper() -> None:
    norm = ClipNorm(AdaptiveNorm(quantile=0.7, lr=0.3), 0.5, 0.0, {})
    norm.step(0.4)  # nine clients in ten are within: 0.9 - 1/2
    assert norm.metrics == {"clip_norm": 0.5, "clip_within": pytest.approx(0.9)}
    assert norm.norm == pytest.approx(0.5 * math.exp(-0.3 * (0.9 - 0.7)))
    assert norm.growth == pytest.approx(math.exp(-0.06))
    norm.step(-0.5)  # none is
    assert norm.norm == pytest.approx(0.5 * math.exp(-0.06 + 0.21))
    norm.step(1e9)
    assert norm.norm == pytest.approx(0.5 * math.exp(0.15 - 0.3)), "noise moves it no further than lr"
    for first, within in nonempty([(1e12, -1e9), (1e-12, 1e9)]):
        stuck = ClipNorm(AdaptiveNorm(lr=10), first, 0.0, {})
        stuck.step(within)
        assert stuck.norm == np.float32(first)


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
def test_it_finds_the_quantile_of_the_norms_of_updates(quantile: float) -> None:
    """400 clients, norms exp(N(0, 1)), from far below: within 0.05 of the quantile, by share."""
    rng = np.random.default_rng(1)
    norms_K = np.exp(rng.standard_normal(400))
    norm = ClipNorm(AdaptiveNorm(quantile=quantile), 0.01, 20 / 400, {})
    for _ in range(150):
        norm.step(float((norms_K <= norm.norm).mean() - 0.5 + norm.sigma * rng.standard_normal()))
    assert (norms_K <= norm.norm).mean() == pytest.approx(quantile, abs=0.05)


def test_both_noises_together_are_the_mechanism_that_is_accounted_for() -> None:
    dp = pytest.importorskip("dp_accounting")
    made = adaptive()
    clients = 10
    assert deviation(made, clients) == pytest.approx(Z_UPDATES * 0.5 / (0.75 * clients))
    orders = [2, 3, 8, 32]
    both = dp.rdp.RdpAccountant(orders).compose(dp.GaussianDpEvent(Z_UPDATES))
    both.compose(dp.GaussianDpEvent(SIGMA / 0.5))  # a client changes the number, counted as b - 1/2, by 1/2
    one = dp.rdp.RdpAccountant(orders).compose(dp.GaussianDpEvent(Z))
    assert both.get_epsilon(1e-5) == pytest.approx(one.get_epsilon(1e-5), rel=1e-12)
    plain = adaptive(uplink=[{"clip": {"norm": 0.5}}])
    assert spent(ledger(made, 100, clients, 4)) == spent(ledger(plain, 100, clients, 4))
    assert deviation(plain, clients) < deviation(made, clients)


def test_noise_on_updates_and_on_the_number_has_the_deviations_that_are_stated() -> None:
    layout, clients = Layout({"a": (40_000,), "b": (3, 1), WITHIN: (1,)}), 10
    numbers, previous = [], 0.5
    noise = ServerNoise(adaptive(), clients, layout, SHOWN)
    for round_ in range(1, 301):
        mean_N = np.zeros(layout.size)
        noise.add(mean_N, round_)
        assert noise.metrics["clip_norm"] == pytest.approx(previous)
        if round_ % 100 == 1:
            stated = Z_UPDATES * previous / (0.75 * clients)
            assert mean_N[:40_000].std() == pytest.approx(stated, rel=5 / math.sqrt(80_000))
        assert mean_N[layout.starts[WITHIN]] == 0, "its noise is drawn apart"
        assert noise.norm is not None
        numbers.append(noise.metrics["clip_within"] - 0.5)
        previous = float(noise.norm.norm)
    assert np.std(numbers) == pytest.approx(SIGMA / (0.75 * clients), rel=5 / math.sqrt(600))
    assert abs(np.mean(numbers)) < 5 * SIGMA / (0.75 * clients) / math.sqrt(300)


def test_a_round_by_hand() -> None:
    """Every update is clipped to the norm of its round, and the next norm follows from what clients said."""
    experiment, corpus = adaptive(participation={"fraction": 1.0}), tiny.corpus(clients=5)
    federation = tiny.federation(experiment, corpus, tiny.Recording)
    seen, expected = 0, 0.5
    before = federation.flat.copy()
    for round_, record in nonempty(enumerate(federation.run(), 1)):
        assert record.metrics["clip_norm"] == pytest.approx(expected)
        received = federation.fleet.received
        updates = [federation.decoder.update(r.payload, r.client, before, round_) for r in received]
        said, change = [], np.zeros(federation.layout.size)
        for update in nonempty(updates):
            tensors = {name: tensor for name, tensor in update.tensors.items() if name != WITHIN}
            length = math.sqrt(sum(float(np.square(t, dtype=np.float64).sum()) for t in tensors.values()))
            assert length <= expected * (1 + 1e-5)
            said.append(float(update.tensors[WITHIN][0]))
            assert said[-1] == (0.5 if length < expected * (1 - 1e-5) else -0.5)
            change += federation.layout.pack(tensors)
        change /= 5
        key = federation.fleet.noise
        rng = key.generator("central", round_)
        for tensor in federation.layout.views(change).values():
            tensor += Z_UPDATES * expected / 5 * rng.standard_normal(tensor.shape)
        assert np.allclose(federation.flat, before + change, atol=1e-6)
        before = federation.flat.copy()
        share = np.mean(said) + 0.5 + SIGMA / 5 * key.generator("central/within", round_).standard_normal()
        assert record.metrics["clip_within"] == pytest.approx(share)
        expected = float(np.float32(expected * math.exp(-0.2 * min(max(share - 0.5, -1), 1))))
        seen += 1
    assert seen == 4


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "kteps"])
def test_a_run_goes_on_to_the_same_bits_and_does_not_depend_on_the_place_of_clients(
    method: str, tmp_path: Path
) -> None:
    experiment, corpus = adaptive(method), tiny.corpus(clients=4)
    whole = final(experiment, corpus)
    for rounds in (1, 3):
        final(experiment, corpus, tmp_path, rounds=rounds)
    assert final(experiment, corpus, tmp_path) == whole
    check_run(adaptive(method, 2), corpus)


def test_by_default_the_number_has_a_twentieth_of_the_clients_as_noise() -> None:
    clip: Any = [{"clip": {"norm": 0.5, "adaptive": {}}}]
    made = adaptive(uplink=clip)
    wanted = (Z**-2 - (2 * 0.05 * 750) ** -2) ** -0.5
    assert deviation(made, 1000) == pytest.approx(wanted * 0.5 / 750)
    large = adaptive(uplink=clip, noise={"multiplier": Z, "cohort_size": 3000})
    wanted = (Z**-2 - (2 * 0.05 * 3000) ** -2) ** -0.5
    assert deviation(large, 1000) == pytest.approx(wanted * 0.5 / 3000)
    noise = ServerNoise(large, 1000, Layout({"a": (1,), WITHIN: (1,)}), SHOWN)
    assert noise.norm is not None
    assert noise.norm.sigma == pytest.approx(0.05)
    run = ledger(adaptive(uplink=clip), 100, 1000, 4)[-1]
    assert run.assumptions.startswith("of each round's noise multiplier 0.5 the updates have 0.5")
    assert "has noise of standard deviation 37.5" in run.assumptions
    own, simulated = (entry.assumptions for entry in ledger(large, 100, 1000, 4)[-2:])
    assert own.startswith("of each round's noise multiplier 0.125 the updates have 0.125")  # 0.5 * 750 / 3000
    assert "has noise of standard deviation 37.5; " in own
    assert "not this run; of each round's noise multiplier 0.5 the updates have 0.5" in simulated
    assert "has noise of standard deviation 150; " in simulated
    assert "while clip.norm is that of the first round" in noise_errors(adaptive(uplink=clip), 1000, 100)


def test_noise_that_would_cost_more_than_the_guarantee_allows_is_refused() -> None:
    made = adaptive(uplink=[{"clip": {"norm": 0.5, "adaptive": {}}}])
    with pytest.raises(UserError, match=r"set adaptive.sigma above 0.25, or have more clients in a round"):
        tiny.federation(made, tiny.corpus(clients=4))
    with pytest.raises(UserError, match=r"sigma = 0.15 on the number"):
        ledger(made, 100, 4, 4)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"server": {"weights": "uniform"}}, "set server.noise, or leave adaptive out"),
        (
            {
                "server": {"weights": "uniform", "noise": {"multiplier": 1, "mechanism": "tree"}},
                "participation": {"fraction": 1.0},
            },
            "noise of server.noise.mechanism tree is of one norm",
        ),
        ({"uplink": [{"clip": {"adaptive": {}}}, "clip"]}, "make it the last mechanism"),
        (
            {"adversaries": {"fraction": 0.3, "attack": "little_is_enough"}},
            "adversaries of little_is_enough choose theirs behind it",
        ),
        ({"uplink": [{"clip": {"adaptive": {"quantile": 1.0}}}]}, "quantile"),
    ],
)
def test_what_cannot_carry_it_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        adaptive(**changes)


def test_a_fixed_norm_keeps_its_name_in_digests_and_an_adaptive_one_has_its_own() -> None:
    plain: Any = [{"clip": {"norm": 0.5}}]
    each = [adaptive(uplink=plain), adaptive(), adaptive(uplink=[{"clip": {"norm": 0.5, "adaptive": {"lr": 0.1}}}])]
    assert len({fingerprint(made, "content", 4) for made in each}) == 3
    assert len({released(made, "content", 4) for made in each}) == 3
    # of the first version that draws Poisson samples from the key of the noise
    assert released(with_engine(each[0], "cells"), "content", 4)[:16] == "8bb7b8c6dfab1566"


def test_epsilon_of_a_target_is_met() -> None:
    pytest.importorskip("dp_accounting")
    made = adaptive(noise={"target_epsilon": 8.0})
    assert spent(ledger(made, 100, 100, 4))["epsilon"] == pytest.approx(8.0, rel=1e-3)
    assert composition.available()


def test_with_a_secret_key_the_number_is_rounded_and_its_noise_is_exact() -> None:
    """Numbers that differ by less than the unit release the same, and the noise has the deviation that is stated."""
    layout, clients, released = Layout({"a": (2,), WITHIN: (1,)}), 10, []
    sigma = SIGMA / (0.75 * clients)
    unit = 2.0 ** (math.floor(math.log2(sigma)) - 20)
    for shift in (0.2, -0.3):
        noise = ServerNoise(adaptive(), clients, layout, NoiseKey(bytes(32), secret=True))
        shares = []
        for round_ in range(1, 301):
            mean_N = np.zeros(layout.size)
            mean_N[layout.starts[WITHIN]] = unit * (1000 + shift)
            noise.add(mean_N, round_)
            shares.append(noise.metrics["clip_within"] - 0.5 - 1000 * unit)
        assert all(math.ldexp(share, 60) % math.ldexp(unit, 60) == 0 for share in nonempty(shares))
        released.append(shares)
    assert released[0] == released[1]
    assert np.std(released[0]) == pytest.approx(sigma, rel=5 / math.sqrt(600))
