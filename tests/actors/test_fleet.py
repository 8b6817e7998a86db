"""The same numbers from every fleet, however clients are packed."""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray.exceptions import RayActorError

from actors.cluster import nodes
from actors.fleet import RayFleet
from actors.placement import Plan, plan
from actors.shipment import ship
from fedtext.client.local_fleet import LocalFleet
from fedtext.config.engine import stack_size
from fedtext.config.experiment import Experiment
from fedtext.config.sections import Privacy, Resources
from fedtext.corpora.types import Corpus
from fedtext.errors import UserError
from fedtext.runtime.devices import no_cuda
from fedtext.server.start import start
from fedtext.state.noise_key import NoiseKey
from tests import tiny
from tests.actors.fleets import CORPUS, FEW, THREE, in_actors, local
from tests.checkpoints import SCRATCH
from tests.fedtext.aggregations.test_aggregations import CONFIGURED
from tests.loops import nonempty
from tests.outcomes import final, seen

SELECTING = {"personalize": None, "select": "perplexity_val"}


def with_key(fleet: Any, key: NoiseKey) -> Any:
    """The same fleet, whatever key the run would draw for it."""
    return lambda *words, **given: fleet(*words, **given | {"noise": key})


@pytest.mark.ray
@pytest.mark.usefixtures("started")
def test_any_number_of_actors_gives_the_weights_of_one_process() -> None:
    """Sixteen clients in two actors, and in four, each on a quarter of a logical GPU: there are no more quarters. What
    is sent has gone through numpy's linear algebra, which may have fewer threads in an actor than here."""
    uplink = [{"clip": {"norm": 0.5}}, {"project": {"d1": 2, "d2": 5}}, {"gaussian": {"sigma": 0.01}}]
    audits = [{"word_relations": {"words": ["w3", "w9", "w20"], "top": 4}}]
    experiment = tiny.experiment("kteps", uplink=uplink, audits=audits)
    expected = final(local(experiment))
    assert _by_quarters().actors == 4
    for made in (Plan(2, 1, 0, 1), _by_quarters()):
        federation = in_actors(experiment, plan=made)
        fleet = federation.fleet
        assert len(fleet.actors) == made.actors
        reason = no_cuda() if made.gpus else ""
        reserved = "4 of 4 client actors reserved 0.25 GPUs each and cannot use that: "
        assert fleet.unused_gpus == (f"{reserved}{reason}: their clients train on the CPU" if reason else "")
        assert final(federation) == expected
        fleet.close(keep=True)
    pytest.importorskip("randomgen")
    hidden, key = experiment.model_copy(update={"privacy": Privacy(noise="secret")}), NoiseKey(b"k" * 32, secret=True)
    secret = final(tiny.federation(hidden, CORPUS, with_key(LocalFleet, key)))
    federation = start(
        hidden, CORPUS, with_key(partial(RayFleet, hidden, ship(hidden, CORPUS), plan=_by_quarters()), key)
    )
    assert final(federation) == secret
    assert secret[0] != expected[0]
    federation.fleet.close(keep=True)


def _by_quarters() -> Plan:
    """A plan of four actors for sixteen clients."""
    return plan(Resources(gpus_per_actor=0.25, cpus_per_actor=0.1), len(CORPUS.clients), nodes())


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.usefixtures("started")
def test_stacks_sums_in_the_actors_and_moved_clients_leave_no_trace() -> None:
    """Blocks of four clients on four and two actors; in the second round an actor of many clients sends one sum. The
    pooled client, and those that only evaluate, may be apart too, in actors that another trial has left."""
    experiment = tiny.experiment("kteps", training=tiny.TRAINING | {"stack": 4, "rounds": 3})
    assert stack_size(experiment, len(CORPUS.clients))[0] == 4
    expected = final(local(experiment))
    for made in (_by_quarters(), Plan(2, 1, 0, 1)):
        actors = made.actors
        federation = in_actors(experiment, plan=made)
        fleet, accuracies = federation.fleet, []
        for record in nonempty(federation.run()):
            accuracies.append(seen(record))
            assert fleet.folding == (list(range(actors)) if record.round > 1 else [])
            hosted = dict(fleet.home)
            fleet.seconds = {c: 0.01 if fleet.home[c] == 0 else 0.001 for c in range(16)}
            fleet.balance()
            assert hosted == fleet.home, "a move costs more than it gains"
            fleet.seconds = {c: 1.0 if fleet.home[c] == 0 else 0.1 for c in range(16)}  # as if one were slow
            fleet.balance()
            assert (hosted != fleet.home) == (actors == 2)
        assert (federation.flat.tobytes(), accuracies, fleet.private_states()) == expected[:3]
        fleet.close(keep=True)
    left = fleet.actors
    stateful = tiny.experiment("scaffold", training=tiny.TRAINING | {"rounds": 3})
    federation = in_actors(stateful)
    fleet = federation.fleet
    assert final(federation) == final(local(stateful))
    assert fleet.folding == [0, 1], "what is sent beside an update is added up with it"
    fleet.close(keep=True)
    pooled = tiny.experiment("asp_mtl", training=tiny.TRAINING | {"rounds": 1})  # a task for each of the corpus's
    federation = in_actors(pooled, FEW)
    assert federation.fleet.actors == left
    expected = final(local(pooled, FEW))
    assert final(federation) == expected
    federation.fleet.close(keep=True)
    ray.kill(left[0])
    with suppress(RayActorError):  # it may answer a few times more
        while True:
            ray.get(left[0].__ray_ready__.remote())
    federation = in_actors(pooled, FEW)
    assert final(federation) == expected
    federation.fleet.close(keep=True)


@pytest.mark.ray
@pytest.mark.usefixtures("started")
def test_clients_have_word_vectors_that_the_server_does_not_send() -> None:
    """Private tables, and one that never changes."""
    drawn_VD = np.random.default_rng(0).standard_normal((len(FEW.vocabulary), 8), np.float32)
    given = replace(FEW, table_VD=drawn_VD, table_digest="drawn")
    for made in (
        tiny.experiment("lg_fedavg", model={"name": "bigru", "hidden": 4, "embedding": {"dim": 8}}),
        tiny.experiment(model=SCRATCH | {"adapter": {"lora": {"rank": 2}}}),
    ):
        expected, federation = final(local(made, given)), in_actors(made, given)
        assert final(federation) == expected
        federation.fleet.close(keep=True)


NOISED: dict[str, Any] = {
    "server": {"weights": "uniform", "noise": {"mechanism": "skellam", "multiplier": 1.0}},
    "uplink": ["clip"],
    "participation": {"dropout": 0.1, "min_clients": 8},
}


@pytest.mark.ray
@pytest.mark.usefixtures("started")
@pytest.mark.parametrize("sections", [{"participation": {"dropout": 0.1}}, NOISED], ids=["plain", "noised"])
def test_masked_sums_are_those_without_masks_wherever_clients_live(sections: dict[str, Any]) -> None:
    """In the second round an actor of many clients sends one sum of masked updates, and clients have moved; some drop
    out in each. Also if clients add noise."""
    made = []
    for secure in ({"masks": False}, {"dropping": 0.3}):
        server = sections.get("server", {}) | {"secure_aggregation": secure}
        made.append(tiny.experiment(training=THREE, **(sections | {"server": server})))
    flat, records, states, _ = final(local(made[0]))
    federation = in_actors(made[1])
    fleet, accuracies = federation.fleet, []
    for record in nonempty(federation.run()):
        accuracies.append(seen(record)[:2])  # the ledger tells the runs apart
        assert record.metrics["secure_bytes_up"] > 16 * 64
        assert ("partials" in fleet.measured.calls) == bool(fleet.folding), "no time of what was not asked"
        fleet.seconds = {c: 1.0 if fleet.home[c] == 0 else 0.1 for c in range(16)}  # as if one were slow
    assert fleet.folding == [0, 1]
    each = {"exchange keys", "exchange shares", "partials"}
    assert fleet.measured.calls.keys() >= each, "of each step by itself: shares take many times what keys take"
    expected = flat, [record[:2] for record in records], states
    assert (federation.flat.tobytes(), accuracies, fleet.private_states()) == expected
    fleet.close(keep=True)


@pytest.mark.ray
@pytest.mark.usefixtures("started")
def test_a_first_attempt_that_cannot_begin_is_repeated_in_actors_too() -> None:
    """Too few clients for the threshold: nobody is asked to train, and no actor has a sum."""
    corpus = tiny.corpus(clients=6)
    for seed in range(50):
        made = tiny.experiment(
            seed=seed,
            training=tiny.TRAINING | {"rounds": 1},
            server={"secure_aggregation": {"threshold": 0.51}},
            participation={"dropout": 0.4},
        )
        with suppress(UserError):  # three attempts are not enough
            alone = local(made, corpus)
            expected = final(alone)
            if alone.history[0].metrics.get("round_attempts", 1) > 1:
                break
    federation = in_actors(made, corpus)
    assert final(federation) == expected
    assert federation.history[0].metrics["round_attempts"] > 1
    federation.fleet.close(keep=True)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.usefixtures("started")
def test_a_method_of_two_stages_is_added_up_in_the_actors_in_both() -> None:
    """Two rounds of FedAvg, then the head alone: an actor decides by the round before whether it sends one sum."""
    experiment = tiny.experiment({"name": "lg_fedavg", "pretrain": 2}, training=tiny.TRAINING | {"rounds": 4})
    federation = in_actors(experiment)
    fleet, folded, accuracies = federation.fleet, [], []
    for row in nonempty(federation.run()):
        accuracies.append(seen(row))
        folded.append(fleet.folding)
    assert (federation.flat.tobytes(), accuracies, fleet.private_states()) == final(local(experiment))[:3]
    assert folded == [[], [0, 1], [0, 1], []]
    fleet.close(keep=True)


@pytest.mark.ray
@pytest.mark.usefixtures("started")
@pytest.mark.parametrize(
    ("experiment", "corpus"),
    [
        (tiny.experiment("fedatt", training=THREE | {"stack": 2}), FEW),
        (tiny.experiment({"name": "fedatt", "norm": "spectral"}, training=THREE | {"stack": 2}), FEW),
        (tiny.language_model("fedatt", training=THREE, evaluation=SELECTING), tiny.language_corpus(clients=4)),
    ],
    ids=["frobenius", "spectral", "language model"],
)
def test_a_server_that_wants_every_update_gets_them_from_any_actors_in_one_order(
    experiment: Experiment, corpus: Corpus, tmp_path: Path
) -> None:
    """Also where a language model's best round counts, and after an interruption."""
    weights, rows, states, _ = expected = final(local(experiment, corpus))
    for _, figures, _ in nonempty(rows):
        assert len([name for name in figures if name.startswith("attention_clients/")]) > 5
    assert ("selected_round" in rows[-1][1]) == experiment.language
    whole = in_actors(experiment, corpus)
    assert final(whole) == expected
    whole.fleet.close(keep=True)
    interrupted = in_actors(experiment, corpus, folder=tmp_path)
    rounds = interrupted.run()
    next(rounds), next(rounds)
    interrupted.fleet.close(keep=True)
    continued = in_actors(experiment, corpus, folder=tmp_path)
    fleet = continued.fleet
    assert [seen(row) for row in continued.run()] == rows[2:]
    assert (continued.flat.tobytes(), fleet.private_states()) == (weights, states)
    assert fleet.private_states([2, 0]) == {client: states.get(client, b"") for client in (2, 0)}
    fleet.close(keep=True)


@pytest.mark.ray
@pytest.mark.usefixtures("started")
def test_clients_that_begin_by_the_simulated_clock_are_the_same_in_actors() -> None:
    """Asynchronous training with clients that are away by night: updates of several versions in a step."""
    participation = {"fraction": 0.5, "pace": {"spread": {"pareto": 1.1}}, "availability": {"day": 4, "hour_s": 0.2}}
    made = tiny.experiment(participation=participation, server={"buffer": {"size": 3}}, training=THREE)
    expected, federation = local(made), in_actors(made)
    assert final(federation) == final(expected)
    for name in nonempty(("simulated_seconds_total", "staleness_mean", "bytes_total")):
        assert federation.history[-1].metrics[name] == expected.history[-1].metrics[name]
    federation.fleet.close(keep=True)


@pytest.mark.ray
@pytest.mark.usefixtures("started")
def test_an_aggregation_gives_the_bits_of_one_process_and_is_added_up_in_the_actors_if_sums_are_enough() -> None:
    """One that takes sums, the same with adversaries who collude, one that compares updates, one that keeps something
    over rounds, and one of updates of unequal ranks; the others read the same updates in the same order."""
    colluding = {"adversaries": {"fraction": 0.3, "attack": "little_is_enough"}}
    unequal = {"model": SCRATCH | {"adapter": {"lora": {"ranks": {1: 0.4, 2: 0.4, 4: 0.2}}}}}
    configured = CONFIGURED | {"lora": {"lora": {"factors": "svd"}}}
    plain = (("norm_bounded", {}), ("multi-krum", {}), ("centered_clipping", {}))
    for name, more in (*plain, ("norm_bounded", colluding), ("lora", unequal)):
        experiment = tiny.experiment(training=THREE, server={"aggregation": configured[name]}, **more)
        federation = in_actors(experiment)
        fleet, rounds, folded = federation.fleet, [], []
        for record in nonempty(federation.run()):
            rounds.append(seen(record))
            folded.append(fleet.folding)
            fleet.seconds = dict.fromkeys(range(16), 1.0)  # so that no client moves, whatever has been measured
        assert (federation.flat.tobytes(), rounds) == final(local(experiment))[:2], name
        assert folded == ([[], [0, 1], [0, 1]] if experiment.sums else [[], [], []]), name
        fleet.close(keep=True)
