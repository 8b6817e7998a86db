"""Canary clients: what they measure under every guarantee, that they find mistakes, and what they leave unchanged."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtext.canaries.central import likelihood_weights
from fedtext.canaries.measure import FILE
from fedtext.canaries.pairs import of_pairs, run
from fedtext.config.noise import BandedNoise, BisrNoise, BltNoise, Correlated, TreeNoise
from fedtext.errors import UserError
from fedtext.ledger import read
from fedtext.ledger.together import Trial
from fedtext.testing.runs import check_run, final
from tests import tiny
from tests.fedtext.canaries import small
from tests.fedtext.matrix_noise.dense import matrix
from tests.loops import nonempty

EPSILON = {"target_epsilon": 4.0}
RESPONSE: list[Any] = ["quantize", {"randomized_response": {"epsilon": 0.02}}]
KINDS = {
    "every round": small.central(EPSILON, rounds=2),
    "poisson": small.central(EPSILON, rounds=8, participation=small.POISSON),
    "apart": small.central(EPSILON, rounds=5, participation=small.APART),
    **{
        f"{mechanism}": small.central(EPSILON | {"mechanism": mechanism}, rounds=6, participation=small.APART)
        for mechanism in ("tree", "blt")
    },
    **{
        f"{mechanism} of clients": small.central(
            EPSILON,
            rounds=2,
            participation={"min_clients": 4},
            server={
                "weights": "uniform",
                "noise": EPSILON | {"mechanism": mechanism},
                "secure_aggregation": {"masks": False},
            },
        )
        for mechanism in ("discrete_gaussian", "skellam")
    },
    "masks": small.central(EPSILON, server={"weights": "uniform", "noise": EPSILON, "secure_aggregation": {}}),
    "momentum": small.central(
        EPSILON,
        rounds=3,
        server={"weights": "uniform", "noise": EPSILON, "optimizer": {"name": "sgd", "lr": 0.5, "momentum": 0.5}},
    ),
    "local gaussian": small.made(1, 0, 1000, uplink=[{"clip": {"norm": 1.0}}, {"gaussian": {"sigma": 2.2}}]),
    "randomised response": small.made(1, 0, 1000, dim=1, uplink=RESPONSE),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_lies_below_the_ledger_and_not_at_zero(kind: str) -> None:
    record = small.last(KINDS[kind])
    claimed, found = record.metrics["epsilon"], record.metrics["epsilon_lower"]
    assert 0.3 < found <= claimed
    (entry,) = [entry for entry in read(record.files["ledger.json"]) if entry.measured]
    assert entry.epsilon == claimed
    assert entry.measured is not None
    assert entry.measured.epsilon == found
    assert record.metrics["epsilon_lower_confidence"] == entry.measured.confidence == 0.95
    assert entry.measured.canaries == 1000
    assert entry.measured.right <= entry.measured.guesses == 125
    assert (entry.measured.gaussian is None) == (kind == "randomised response")
    if entry.measured.gaussian is not None:
        assert found < entry.measured.gaussian <= claimed + 0.5
        assert entry.measured.estimate is not None


def test_without_canaries_nothing_is_measured() -> None:
    record = small.last(small.central(EPSILON, canaries=0))
    assert FILE not in record.files
    assert "epsilon_lower" not in record.metrics
    assert "measured" not in record.files["ledger.json"]


def test_canaries_of_local_mechanisms_change_no_result() -> None:
    for uplink in nonempty([RESPONSE, ["clip", {"gaussian": {"sigma": 0.1}}]]):
        *plain, metrics = final(small.made(2, 0, 0, dim=1, uplink=uplink), small.CORPUS)
        *audited, measured = final(small.made(2, 0, 60, dim=1, uplink=uplink), small.CORPUS)
        assert audited == plain
        for with_canaries, without in nonempty(zip(measured, metrics, strict=True)):
            assert with_canaries.items() >= without.items()
            assert {name.partition("_")[0] for name in with_canaries.keys() - without.keys()} <= {"epsilon"}


@pytest.mark.parametrize("kind", ["poisson", "blt", "randomised response"])
def test_a_run_that_is_resumed_measures_the_same(kind: str, tmp_path: Path) -> None:
    experiment = KINDS[kind]
    if experiment.training.rounds == 1:
        training = experiment.training.model_copy(update={"rounds": 2})
        experiment = experiment.model_copy(update={"training": training})
    whole = small.last(experiment)
    federation = tiny.federation(experiment, small.CORPUS, folder=tmp_path)
    next(federation.run())
    again = list(tiny.federation(experiment, small.CORPUS, folder=tmp_path).run())[-1]
    assert again.files[FILE] == whole.files[FILE]
    assert again.metrics["epsilon_lower"] == whole.metrics["epsilon_lower"]


def test_masks_change_no_measurement() -> None:
    server = {"weights": "uniform", "noise": EPSILON, "secure_aggregation": {"masks": False}}
    plain = small.last(small.central(EPSILON, server=server))
    assert small.last(KINDS["masks"]).files[FILE] == plain.files[FILE]


def test_runs_with_canaries_have_the_properties_of_every_run() -> None:
    check_run(small.central(EPSILON, rounds=2, canaries=60, participation=small.POISSON), small.CORPUS)


@pytest.mark.parametrize("method", ["kteps", "scaffold", "fedevocab", "fedper"])
def test_canaries_send_what_a_method_shares(method: str) -> None:
    """With tensors beside updates, private ones, and a shared embedding or none."""
    model = {"embedding": {"dim": 12}, "hidden": 24, "head": {"hidden": 3}}
    made = tiny.experiment(
        method,
        model=model,
        training=tiny.TRAINING | {"rounds": 1, "local_epochs": 1},
        uplink=[{"clip": {"norm": 1.0}}],
        server={"weights": "uniform", "noise": {"target_epsilon": 4.0}},
        privacy={"canaries": {"clients": 200}},
    )
    record = small.last(made)
    assert 0 <= record.metrics["epsilon_lower"] <= record.metrics["epsilon"]
    assert record.metrics["epsilon_estimate"] > 1


def test_a_direction_is_the_same_when_some_tensors_are_not_sent() -> None:
    """LG-FedAvg shares all layers in its first rounds, and fewer later."""
    made = small.central(EPSILON, rounds=3, canaries=60, method={"name": "lg_fedavg", "pretrain": 1})
    federation = tiny.federation(made, small.CORPUS)
    canaries = federation.step.canaries.canaries
    assert canaries is not None
    directions = canaries.plan.direction(0, federation.state)
    sizes = []
    for round_ in (1, 2):
        sent = canaries._sent(0, 1.0, federation.flat, round_)
        sizes.append(len(sent.tensors))
        for name, tensor in nonempty(list(sent.tensors.items())):
            np.testing.assert_array_equal(np.sign(tensor), directions[name], err_msg=name)
    assert sizes[1] < sizes[0]


MECHANISMS: list[Correlated] = [TreeNoise(), BandedNoise(bands=3), BltNoise(), BisrNoise(bands=4)]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: mechanism.name)
def test_weights_are_those_of_the_likelihood_ratio(mechanism: Correlated) -> None:
    """C^T C u, wherever C is square and the noise C^-1 z: then no linear score tells more."""
    made = mechanism.strategy(12, 3)
    weights = likelihood_weights(made)
    inside = (np.arange(12) % 3 == 0).astype(float)
    assert np.abs(weights).max() == 1
    if isinstance(mechanism, TreeNoise):
        return
    square = matrix(made)
    expected = square.T @ square @ inside
    np.testing.assert_allclose(weights, expected / np.abs(expected).max(), atol=1e-9)


def test_one_run_makes_no_pair() -> None:
    trial = small.central(EPSILON, canaries=60)
    assert of_pairs([]) == []
    assert of_pairs([run(Trial(trial), small.last(trial).files[FILE])]) == []
    other = small.central(EPSILON, canaries=60, seed=1)
    assert of_pairs([run(Trial(made), small.last(made).files[FILE]) for made in (trial, other)]) == [], "other clients"


def test_trials_that_were_compared_with_no_other_are_not_counted() -> None:
    """Two of seed 0, one of seed 1, one of other canaries, and one with noise of clients."""
    pair = [small.central(EPSILON, canaries=60, rounds=rounds) for rounds in (1, 2)]
    others = [
        small.central(EPSILON, canaries=60, seed=1),
        small.central(EPSILON, canaries=100),
        small.made(1, 0, 60, uplink=[{"clip": {"norm": 1.0}}, {"gaussian": {"sigma": 2.2}}]),
    ]
    finished = [(made, small.last(made).files) for made in (*pair, *others)]
    (said,) = of_pairs([run(Trial(made, read(files["ledger.json"])), files[FILE]) for made, files in finished])
    assert said.startswith("canaries of 2 trials, each compared with the one of the same seed before it: ")


def test_scores_are_kept_with_who_was_in_the_run() -> None:
    record = small.last(small.central(EPSILON, canaries=100))
    header, *rows = record.files[FILE].splitlines()
    assert header == "canary,inside,score"
    assert len(rows) == 100
    inside = {row.split(",")[1] for row in rows}
    assert inside == {"0", "1"}
    assert json.loads(record.files["ledger.json"])[-1]["measured"]["canaries"] == 100


def test_too_many_canaries_for_a_model_are_refused() -> None:
    with pytest.raises(UserError, match=r"privacy.canaries.clients: 5000 directions in .* coordinates hide each other"):
        small.last(small.central(EPSILON, canaries=5000))
