"""The privacy ledger of an uplink: values computed by hand, bounds against each other, and runs without a guarantee."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from fedtext.accounting import composition
from fedtext.accounting.entry import Entry
from fedtext.ledger import FILE, ledger, spent
from fedtext.ledger.report import guarantees, reveals
from fedtext.methods import METHODS
from fedtext.parameters import initial, shared_numbers
from tests import tiny
from tests.fedtext.accounting.test_composition import tail
from tests.fedtext.ledger.noisy import DENSE, ROUNDS, epsilons, pair
from tests.loops import nonempty


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
    known = epsilons(entries)
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
    known = epsilons(entries)
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
    known = epsilons(ledger(tiny.experiment(uplink=uplink), 100, 10, 4))
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


@pytest.mark.parametrize("model", [{"name": "bag", "embedding": {"dim": 5}}, {"embedding": {"dim": 5}, "hidden": 4}])
@pytest.mark.parametrize("method", METHODS)
def test_shared_numbers_are_counted_without_their_tables(method: str, model: Any) -> None:
    experiment = tiny.experiment(method, model=model)
    shared, _ = initial(experiment, tiny.TWO)
    counted = shared_numbers(experiment, tiny.TWO.classes, len(tiny.TWO.clients), len(tiny.TWO.vocabulary))
    assert counted == (1 + (method == "scaffold")) * sum(tensor.size for tensor in shared.values())


def test_the_delta_beside_an_epsilon_is_that_of_the_same_guarantee() -> None:
    pure, approximate = Entry("pure", "run", 1.0, 0.0, "basic"), Entry("gaussian", "run", 2.0, 1e-5, "gaussian")
    assert spent([approximate, pure]) == {"epsilon": 1.0, "delta": 0.0}
    assert spent([replace(pure, epsilon=3.0), approximate]) == {"epsilon": 2.0, "delta": 1e-5}
    assert spent([replace(approximate, epsilon=1.0), pure]) == {"epsilon": 1.0, "delta": 0.0}
    assert spent([replace(pure, epsilon=None)]) == {}


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


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"wire": {"rows": "all"}}, True),
        (
            {"wire": {"rows": "all"}, "training": tiny.TRAINING | {"dp_sgd": {"clip_norm": 1.0, "multiplier": 1.0}}},
            False,
        ),
        ({"uplink": ["clip", {"gaussian": {"sigma": 1.0}}]}, False),
        ({"wire": {"rows": "own"}}, False),
    ],
)
def test_rows_that_changed_are_told_to_name_words_unless_noise_moves_all(changes: Any, told: bool) -> None:
    said = reveals(tiny.experiment("fedavg", **changes))
    assert any("the rows that changed still name the words" in sentence for sentence in said) == told
