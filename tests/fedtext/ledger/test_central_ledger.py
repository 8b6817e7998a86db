"""The privacy ledger of noise of the server: amplification by sampling, and the multiplier for a target."""

import math
import sys

import pytest

from fedtext.accounting import composition
from fedtext.accounting.gaussian import FLOATS, ROUNDED, SNAPPED
from fedtext.config.sections import Privacy
from fedtext.errors import UserError
from fedtext.ledger import CENTRAL, ledger, noise_multiplier, spent
from fedtext.ledger.assumptions import UNSEEN
from fedtext.ledger.together import Trial, together
from tests import tiny
from tests.fedtext.ledger.noisy import ROUNDS, central, epsilons, pair
from tests.loops import nonempty


def test_central_noise_gives_the_figure_of_a_run_that_has_local_noise_too() -> None:
    """A local guarantee that is smaller is another one: towards the server, against any other texts."""
    pytest.importorskip("dp_accounting")
    strong = {"uplink": ["clip", {"gaussian": {"sigma": 500.0}}, "clip"]}
    both = ledger(central(1.0, {"multiplier": 1.0}, **strong), 100, 10, ROUNDS)
    alone = ledger(central(1.0, {"multiplier": 1.0}), 100, 10, ROUNDS)
    assert min(entry.epsilon for entry in both) < spent(both)["epsilon"] == spent(alone)["epsilon"]


def test_central_noise_is_amplified_by_sampling_and_never_worse_than_without() -> None:
    pytest.importorskip("dp_accounting")
    entries = {q: ledger(central(q, {"multiplier": 1.0}), 100, 1000, ROUNDS) for q in (1.0, 0.5, 0.1)}
    assert all(nonempty("Poisson samples of 0.1" in entry.how for entry in entries[0.1]))
    assert not any(nonempty("Poisson" in entry.how for entry in entries[1.0]))
    known = {q: epsilons(entries[q]) for q in entries}
    whole = {q: known[q]["run", 1e-5] or math.inf for q in known}
    assert whole[1.0] == pytest.approx(composition.gaussian(1.0, ROUNDS, 1e-5))
    assert whole[1.0] > whole[0.5] > whole[0.1]
    # 3.89689: the same by privacy loss distributions, which is tight (dp_accounting.pld, 4 s)
    assert 3.8968 < whole[0.1] < 1.25 * 3.8969
    tiny_noise = composition.sampled_gaussian(0.05, 0.1, 50, 1e-5)
    assert tiny_noise <= composition.gaussian(0.05, 50, 1e-5)


@pytest.mark.parametrize(("fraction", "target"), [(1.0, 2.0), (0.1, 1.0), (0.1, 8.0)])
def test_a_target_is_solved_for(fraction: float, target: float) -> None:
    pytest.importorskip("dp_accounting")
    z = noise_multiplier(central(fraction, {"target_epsilon": target, "delta": 1e-6}))
    assert float(f"{z:.4g}") == z
    assert composition.sampled_gaussian(z, fraction, ROUNDS, 1e-6) <= target
    assert composition.sampled_gaussian(0.999 * z, fraction, ROUNDS, 1e-6) > target


def test_a_delta_that_lets_a_client_be_published_is_said() -> None:
    few, many = (ledger(central(1.0, {"multiplier": 1.0, "delta": 0.01}), 100, n, 1) for n in (50, 100))
    assert not any(nonempty("no less than 1 /" in entry.assumptions for entry in few))
    assert all(nonempty("no less than 1 / 100 clients" in entry.assumptions for entry in many))


def test_without_the_library_pure_figures_stay_and_others_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    for cached in (composition.gaussian, composition.sampled_gaussian, composition.multiplier_for):
        cached.cache_clear()
    assert spent(ledger(tiny.experiment(uplink=pair(1.0)), 100, 10, 25))["epsilon"] < 2500
    noisy = ledger(central(0.1, {"multiplier": 1.0}), 100, 10, 25)
    assert spent(noisy) == {}
    assert all(nonempty("pip install 'fedtext[ledger]'" in entry.how for entry in noisy))
    assert {(entry.mechanism, entry.unit) for entry in noisy} == {
        ("server.noise", "client and round"),
        ("server.noise", "run"),
    }
    with pytest.raises(UserError, match="pip install"):
        noise_multiplier(central(0.1, {"target_epsilon": 1.0}))


def test_entries_of_central_noise() -> None:
    pytest.importorskip("dp_accounting")
    each, run = ledger(central(1.0, {"multiplier": 2.0}), 100, 1000, 7)
    assert (each.mechanism, each.unit, run.mechanism, run.unit) == (CENTRAL, "client and round", CENTRAL, "run")
    assert each.epsilon == composition.gaussian(2.0, 1, each.delta)
    assert run.epsilon == composition.gaussian(2.0, 7, run.delta)
    sampled = ledger(central(0.5, {"multiplier": 2.0}), 100, 1000, 7)
    secret = ledger(central(0.5, {"multiplier": 2.0}, privacy={"noise": "secret"}), 100, 1000, 7)
    unknown = "so are each round's clients, who must be unknown for the sample to amplify the guarantee"
    for entry in nonempty(sampled):
        sentences = entry.assumptions.split("; ")
        assert sentences[sentences.index(unknown) - 1].startswith("privacy.noise: secret draws"), "they are simulated"
    assert not any(unknown in entry.assumptions for entry in (each, run, *secret))


@pytest.mark.parametrize("noise", ["secret", "reproducible"])
def test_a_sample_amplifies_only_while_no_one_sees_who_is_in_it(noise: str) -> None:
    """With a model of its own a client's accuracy changes in the rounds that it trains in, and in few others."""
    pytest.importorskip("dp_accounting")
    made = {q: central(q, {"multiplier": 2.0}, privacy={"noise": noise}) for q in (0.5, 1.0)}
    for q, experiment in nonempty(made.items()):
        entries = ledger(experiment, 100, 1000, 7)
        assert all(nonempty((UNSEEN in entry.assumptions) == (q < 1) for entry in entries))
        for trials in ([Trial(experiment, entries)], [Trial(experiment, entries)] * 2):
            ((both, _),) = together(trials)
            assert (UNSEEN in both.assumptions) == (q < 1)


def test_what_is_said_of_floating_point_is_what_the_servers_noise_does() -> None:
    correlated = central(
        0.5, {"multiplier": 2.0, "mechanism": "tree"}, participation={"fraction": 0.5, "sampling": "epochs"}
    )
    adaptive = central(0.5, {"multiplier": 2.0}, uplink=[{"clip": {"norm": 1.0, "adaptive": {"sigma": 5.0}}}])
    independent = central(0.5, {"multiplier": 2.0})
    for experiment, said in nonempty([(independent, SNAPPED), (adaptive, SNAPPED), (correlated, ROUNDED)]):
        for kind, words in (("secret", said), ("reproducible", FLOATS)):
            made = experiment.model_copy(update={"privacy": Privacy(noise=kind)})
            for entry in nonempty(ledger(made, 100, 1000, 7)):
                assert [text for text in (SNAPPED, ROUNDED, FLOATS) if text in entry.assumptions] == [words]
