"""The privacy ledger: figures worked out by hand, bounds against each other, and what it says where there is none."""

import json
import math
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedtext.accounting import composition
from fedtext.errors import UserError
from fedtext.ledger import FILE, ledger, noise_multiplier, spent
from fedtext.ledger.report import guarantees, reveals
from fedtext.mechanisms import Clip, Gaussian, Mechanism, Project, Quantize, RandomizedResponse
from fedtext.methods import METHODS
from fedtext.parameters import initial, shared_numbers
from tests import tiny
from tests.fedtext.accounting.test_composition import tail
from tests.loops import nonempty

DENSE, ROUNDS = 506_451, 25  # numbers of the RR-LDP paper's dense network, and its rounds


def pair(epsilon: float, q: float = 0.001) -> list[Any]:
    return [{"quantize": {"q": q}}, {"randomized_response": {"epsilon": epsilon}}]


def figures(entries: list[Any]) -> dict[tuple[str, float], float | None]:
    return {(entry.unit, entry.delta): entry.epsilon for entry in entries}


@pytest.mark.parametrize(
    ("epsilon", "numbers", "update", "run", "closed"),
    [
        (1.0, 5_001, 5_001, 125_025, None),
        (1.0, DENSE, 506_451, 12_661_275, 5.87e6),
        (0.1, DENSE, 50_645.1, 1_266_127.5, 65_000),
        (10.0, DENSE, 5_064_510, 126_612_750, None),
    ],
)
def test_one_bit_a_number_adds_up_over_numbers_and_rounds(
    epsilon: float, numbers: int, update: float, run: float, closed: float | None
) -> None:
    entries = ledger(tiny.experiment(uplink=pair(epsilon)), numbers, 100, ROUNDS)
    known = figures(entries)
    assert known["coordinate and round", 0] == epsilon
    assert known["client and round", 0] == pytest.approx(update)
    assert known["run", 0] == pytest.approx(run)
    best = known["run", 1e-5]
    count = numbers * ROUNDS
    formula = count * epsilon * math.tanh(epsilon / 2) + epsilon * math.sqrt(2 * count * math.log(1e5))
    assert best is not None
    assert count * epsilon * math.tanh(epsilon / 2) < best < min(run, formula), "below the bounds, above the mean"
    assert closed is None or best == pytest.approx(closed, rel=0.005)
    assert spent(entries) == {"epsilon": best, "delta": 1e-5}


def test_the_dense_network_at_epsilon_1_shows_its_true_figure_beside_that_of_a_bit() -> None:
    experiment = tiny.experiment(uplink=pair(1.0), training=tiny.TRAINING | {"rounds": ROUNDS})
    said = [s for s in reveals(experiment, ledger(experiment, DENSE, 100, ROUNDS)) if s.startswith("ledger: random")]
    assert len(said) == 1
    assert "epsilon = 1 for each coordinate and round" in said[0]
    assert "epsilon = 506,451 for each client and round" in said[0]
    assert "epsilon = 12,661,275 for the whole run" in said[0]
    assert "epsilon = 5,864,447 at delta = 1e-05 for the whole run" in said[0]


def test_clipped_noise_of_a_client_hides_updates_that_are_two_norms_apart() -> None:
    pytest.importorskip("dp_accounting")
    uplink = [{"clip": {"norm": 0.5}}, {"gaussian": {"sigma": 3.0}}, {"gaussian": {"sigma": 4.0}}]  # 5 together
    entries = ledger(tiny.experiment(uplink=uplink), 100, 10, 25)
    known = figures(entries)
    assert known["client and round", 1e-5] == pytest.approx(composition.gaussian(5.0, 1, 1e-5))
    assert known["run", 1e-5] == pytest.approx(composition.gaussian(1.0, 1, 1e-5))
    assert all(nonempty("rho = 0.02 a round" in entry.assumptions for entry in entries))  # 2 C^2 / sigma^2
    one_bit = ledger(tiny.experiment(uplink=[*uplink, *pair(1.0)]), 100, 10, 25)
    assert {entry.mechanism for entry in one_bit} == {"gaussian", "randomized_response"}
    assert spent(one_bit)["epsilon"] == known["run", 1e-5], "the smaller of both"


@pytest.mark.parametrize(
    ("chain", "multiplier"),
    [
        ("gaussian 3 clip 0.5 gaussian 4", 4.0),
        ("clip 1 gaussian 3 clip 0.5 gaussian 4", 4.0),
        ("clip 0.5 gaussian 3 clip 1 gaussian 4", 3.0),
        ("clip 4 clip 0.5 gaussian 2", 2.0),
    ],
)
def test_noise_before_a_clip_does_not_add_to_that_behind_it(chain: str, multiplier: float) -> None:
    """Noise behind a clip hides a distance of 2 norm. What came before the clip has been scaled down with the update,
    nobody knows how far: it counts by what it hid itself, or not at all."""
    pytest.importorskip("dp_accounting")
    words = chain.split()
    keys = {"clip": "norm", "gaussian": "sigma"}
    uplink = [{n: {keys[n]: float(value)}} for n, value in zip(words[::2], words[1::2], strict=True)]
    known = figures(ledger(tiny.experiment(uplink=uplink), 100, 10, 4))
    for unit, rounds in (("client and round", 1), ("run", 4)):
        epsilon = known[unit, 1e-5]
        assert epsilon is not None
        assert tail(epsilon, multiplier / math.sqrt(rounds)) == pytest.approx(1e-5, rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"uplink": ["gaussian"]}, "no guarantee: no clip before it"),
        ({"uplink": ["gaussian", "clip"]}, "no guarantee: no clip before it"),
        ({"uplink": ["clip", {"project": {"d1": 1, "d2": 5}}, "gaussian"]}, "no guarantee: behind project"),
        ({"uplink": ["clip", "gaussian"], "wire": {"rows": "own"}}, "no guarantee: wire.rows: own"),
        ({"uplink": ["quantize"]}, "no guarantee: a bit may be certain"),
        ({"uplink": pair(1.0), "wire": {"rows": "own"}}, "no guarantee: wire.rows: own"),
    ],
)
def test_where_nothing_is_guaranteed_it_says_so(changes: dict[str, Any], words: str) -> None:
    entries = ledger(tiny.experiment(**changes), 100, 10, 25)
    assert spent(entries) == {}
    assert {entry.delta for entry in entries if entry.how.startswith("no guarantee")} == {0.0}
    assert any(words in sentence for sentence in guarantees(entries))


@pytest.mark.parametrize("method", ["fedavg", "lg_fedavg"])
@pytest.mark.parametrize("texts", ["train", "full"])
def test_vectors_trained_on_clients_texts_leave_no_guarantee_of_the_run(method: str, texts: str) -> None:
    def entries(corpus: str) -> list[Any]:
        model = {"embedding": {"dim": 5, "init": {"word2vec": {"corpus": corpus}}}, "hidden": 4}
        return ledger(tiny.experiment(method, uplink=pair(1.0), model=model), 100, 10, 25)

    assert spent(entries("unlabeled"))["epsilon"] > 0
    pooled = entries(texts)
    assert spent(pooled) == {}
    assert [entry.how for entry in pooled if entry.unit == "run"] == [
        "no guarantee: word vectors were trained on all clients' texts"
    ]
    rounds = [[replace(entry, assumptions="") for entry in found[:2]] for found in (entries("unlabeled"), pooled)]
    assert rounds[0] == rounds[1], "what a round's update guarantees stays"
    (none,) = ledger(tiny.experiment(model={"embedding": {"init": {"word2vec": {"corpus": texts}}}}), 100, 10, 25)
    assert (none.mechanism, none.epsilon, none.assumptions) == ("word2vec", None, "")


SCALED = {"name": "movielens", "text": {"hash": {"buckets": 50}}, "features": "all"}


@pytest.mark.parametrize(
    "changes",
    [{"uplink": pair(1.0)}, {"uplink": ["clip"], "server": {"weights": "uniform", "noise": {"multiplier": 1.0}}}],
)
def test_a_guarantee_says_that_it_is_simulated_and_what_is_outside_of_it(changes: dict[str, Any]) -> None:
    listed = [
        *("the number of its texts", "its training losses", "each text's score and label", "its word counts"),
        *("how many clients take part in a round", "other runs on the same texts"),
    ]
    for entry in nonempty(ledger(tiny.experiment(**changes), 100, 10, 25)):
        assert all(said in entry.assumptions for said in listed)
        assert "simulated: the noise is drawn from the seed" in entry.assumptions
    for entry in nonempty(ledger(tiny.experiment(**changes, privacy={"noise": "secret"}), 100, 10, 25)):
        assert "simulated" not in entry.assumptions
        assert "noise.key" in entry.assumptions
    sampled = changes | {"participation": {"fraction": 0.5, "sampling": "poisson"}}
    for noise, said in (("reproducible", "server" in changes), ("secret", False)):
        for entry in nonempty(ledger(tiny.experiment(**sampled, privacy={"noise": noise}), 100, 10, 25)):
            assert ("must be unknown for the sample to amplify" in entry.assumptions) == said
    model = {"name": "bag", "embedding": {"dim": 5}}
    scaled = ledger(tiny.experiment(corpus={"name": "movielens"}, model=model, **changes), 100, 10, 25)
    assert all(nonempty("the minimum and maximum of its features" in entry.assumptions for entry in scaled))


@pytest.mark.parametrize(
    "changes",
    [
        {"uplink": pair(1.0)},
        {"uplink": ["clip", "gaussian"]},
        {"uplink": ["clip"], "server": {"weights": "uniform", "noise": {"multiplier": 1.0}}},
    ],
)
def test_a_round_chosen_by_what_clients_report_is_outside_of_a_guarantee(changes: dict[str, Any]) -> None:
    corpus, selecting = {"name": "demo", "validation": 0.2}, {"personalize": None, "select": "Ag_val"}
    for evaluation in (selecting, {}):
        rests = [
            e.assumptions for e in ledger(tiny.experiment(corpus=corpus, evaluation=evaluation, **changes), 9, 9, 25)
        ]
        assert rests
        assert all(nonempty("its accuracies in evaluations" in said for said in rests))
        assert all(nonempty(("the choice of the round" in said) == bool(evaluation) for said in rests))


@pytest.mark.parametrize("last", [{"project": {"d1": 1, "d2": 5}}, "quantize"])
def test_what_follows_hidden_updates_takes_nothing_away_and_is_not_said_to(last: Any) -> None:
    pytest.importorskip("dp_accounting")
    for front, kept in ((["clip", "gaussian"], True), (["gaussian"], False)):
        experiment = tiny.experiment(uplink=[*front, last])
        entries = ledger(experiment, 100, 10, 25)
        assert bool(spent(entries)) == kept
        assert any("no guarantee" in said or "no (eps" in said for said in reveals(experiment, entries)) != kept
    twice = tiny.experiment(uplink=["gaussian", "clip", "gaussian"])
    assert not any(nonempty("no guarantee" in said for said in reveals(twice, ledger(twice, 100, 10, 25))))


def test_central_noise_gives_the_figure_of_a_run_that_has_local_noise_too() -> None:
    """A local guarantee that is smaller is another one: towards the server, against any other texts."""
    pytest.importorskip("dp_accounting")
    strong = {"uplink": ["clip", {"gaussian": {"sigma": 500.0}}, "clip"]}
    both = ledger(central(1.0, {"multiplier": 1.0}, **strong), 100, 10, ROUNDS)
    alone = ledger(central(1.0, {"multiplier": 1.0}), 100, 10, ROUNDS)
    assert min(entry.epsilon for entry in both) < spent(both)["epsilon"] == spent(alone)["epsilon"]


@pytest.mark.parametrize(
    ("method", "uplink", "words"),
    [
        ("pooled", [], "no guarantee: all texts lie in one place"),
        ("local_only", pair(1.0), "none is sent"),
        ("fedavg", [], "no guarantee: updates are sent as they are"),
        ("fedavg", ["clip"], "no guarantee: no mechanism of the uplink states one"),
    ],
)
def test_a_ledger_always_says_something(method: str, uplink: list[Any], words: str) -> None:
    (only,) = ledger(tiny.experiment(method, uplink=uplink), 100, 10, 25)
    assert words in only.how
    assert spent([only]) == {}


def central(fraction: float, noise: dict[str, float], **changes: Any) -> Any:
    settings = {
        "uplink": ["clip"],
        "server": {"weights": "uniform", "noise": noise},
        "participation": {"fraction": fraction, "sampling": "poisson"},
        "training": tiny.TRAINING | {"rounds": ROUNDS},
    }
    return tiny.experiment(**(settings | changes))


def test_central_noise_is_amplified_by_sampling_and_never_worse_than_without() -> None:
    pytest.importorskip("dp_accounting")
    entries = {q: ledger(central(q, {"multiplier": 1.0}), 100, 1000, ROUNDS) for q in (1.0, 0.5, 0.1)}
    assert all(nonempty("Poisson samples of 0.1" in entry.how for entry in entries[0.1]))
    assert not any(nonempty("Poisson" in entry.how for entry in entries[1.0]))
    known = {q: figures(entries[q]) for q in entries}
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


@pytest.mark.parametrize("model", [{"name": "bag", "embedding": {"dim": 5}}, {"embedding": {"dim": 5}, "hidden": 4}])
@pytest.mark.parametrize("method", METHODS)
def test_shared_numbers_are_counted_without_their_tables(method: str, model: Any) -> None:
    experiment = tiny.experiment(method, model=model)
    shared, _ = initial(experiment, tiny.TWO)
    counted = shared_numbers(experiment, tiny.TWO.classes, len(tiny.TWO.clients), len(tiny.TWO.vocabulary))
    assert counted == (1 + (method == "scaffold")) * sum(tensor.size for tensor in shared.values())


def test_a_run_says_what_it_has_spent_so_far_and_leaves_its_ledger() -> None:
    after = tiny.Finished("fedavg", uplink=pair(1.0))
    first, second = (record.metrics for record in after.rows)
    numbers = sum(tensor.size for tensor in after.state.values())
    assert first["epsilon"] == pytest.approx(composition.optimal(1.0, numbers, 1e-5))
    assert second["epsilon"] == pytest.approx(composition.optimal(1.0, 2 * numbers, 1e-5))
    assert first["delta"] == 1e-5
    assert [bool(record.files) for record in after.rows] == [True, False], "a trial that is stopped has one as well"
    kept = json.loads(after.rows[0].files[FILE])
    assert kept[0]["epsilon"] == 1.0
    assert kept[2]["epsilon"] == 2 * numbers
    plain = tiny.Finished("fedavg", uplink=["gaussian"])
    assert "epsilon" not in plain.rows[-1].metrics
    assert "no guarantee" in plain.rows[0].files[FILE]
    (none,) = json.loads(tiny.Finished("fedavg").rows[0].files[FILE])
    assert none["epsilon"] is None


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
