"""Central differential privacy: the noise, the sampling, and what is refused because it would guarantee nothing."""

import itertools
import math
from typing import Any, Literal

import numpy as np
import pytest

from fedtext.aggregations.mean import Mean
from fedtext.config.compatibility import privacy
from fedtext.config.files import validate
from fedtext.errors import UserError
from fedtext.layout import TABLE, Layout
from fedtext.ledger import noise_multiplier
from fedtext.messages import Update
from fedtext.methods import METHODS, FedAvg
from fedtext.server.noise import add_noise, deviation
from fedtext.state.noise_key import noise_key
from tests import tiny
from tests.fedtext.server.test_optimizers import Mean as EachUpdate
from tests.loops import nonempty
from tune_spaces.cases import cases

CENTRAL: dict[str, Any] = {
    "uplink": [{"clip": {"norm": 2.0}}],
    "server": {"weights": "uniform", "noise": {"multiplier": 1.5}},
    "participation": {"fraction": 0.5, "sampling": "poisson"},
}


class Tenfold(Mean):
    """A mean that multiplies what clip has bounded."""

    name: Literal["tenfold"] = "tenfold"  # type: ignore[assignment]
    secure = "the sum would do if clients scaled their updates"

    def factor(self, update: Update) -> float:
        return 10.0


def central(method: Any = "fedavg", **changes: Any) -> Any:
    return tiny.experiment(method, **(CENTRAL | changes))


def test_the_noise_has_the_deviation_it_says_and_is_drawn_by_round_and_seed() -> None:
    count, clients, layout = 200_003, 10, Layout({"a": (200_000,), "b": (3, 1)})
    expected = 1.5 * 2.0 / (0.5 * clients)
    drawn = {}
    for seed, round_ in itertools.product((0, 1), (1, 2)):
        mean_N, made = np.zeros(layout.size), central(seed=seed)
        add_noise(mean_N, layout, deviation(made, clients), noise_key(made, "content", clients), round_)
        drawn[seed, round_] = mean_N
    again = np.zeros(layout.size)
    add_noise(again, layout, expected, noise_key(central(), "content", clients), 1)
    assert again.tobytes() == drawn[0, 1].tobytes()
    known = noise_key(central(), "content", clients).generator("central", 1).standard_normal(200_000)
    assert np.array_equal(again[:200_000] - expected * known, np.zeros(200_000)), "who knows the key can take it off"
    for noise_N in nonempty(drawn.values()):
        views = layout.views(noise_N)
        noise = np.concatenate([view.ravel() for view in views.values()])
        assert abs(noise.mean()) < 4 * expected / math.sqrt(count)
        assert abs(noise.std() - expected) < 4 * expected / math.sqrt(2 * count)
        assert np.count_nonzero(noise_N) == count, "what lies between tensors stays empty"
    for one, other in nonempty(itertools.combinations(drawn.values(), 2)):
        assert abs(np.corrcoef(one, other)[0, 1]) < 4 / math.sqrt(count)


def test_without_noise_of_the_server_its_deviation_is_zero() -> None:
    assert deviation(central(server={"weights": "uniform"}), 10) == 0


@pytest.mark.parametrize(("dropout", "share"), [(0.0, 0.5), (0.2, 0.4)])
def test_a_round_is_the_sum_over_who_came_divided_by_who_was_expected_plus_noise(dropout: float, share: float) -> None:
    corpus = tiny.corpus(clients=5)
    participation = CENTRAL["participation"] | {"dropout": dropout}
    experiment = central(training=tiny.TRAINING | {"rounds": 1}, participation=participation)
    federation = tiny.federation(experiment, corpus, tiny.Recording)
    fleet = federation.fleet
    start = federation.flat.copy()
    list(federation.run())
    change = np.zeros(len(start))
    for reply in nonempty(fleet.received):
        update: Update = federation.decoder.update(reply.payload, reply.client, start, 1)
        assert update.rows is None
        tensors = federation.layout.pack(dict(update.tensors)).astype(np.float64)
        assert np.linalg.norm(tensors) <= 2.0 * (1 + 1e-6)
        change += tensors
    assert 0 < len(fleet.received) < 5
    change /= share * 5
    add_noise(change, federation.layout, 1.5 * 2.0 / (share * 5), federation.fleet.noise, 1)
    assert np.allclose(federation.flat, start + change, atol=1e-6)


def test_a_sample_in_which_nobody_is_shows_as_noise_like_any_other() -> None:
    corpus = tiny.corpus(clients=3)
    participation = {"fraction": 0.001, "sampling": "poisson"}
    after = tiny.Finished("fedavg", corpus, **(CENTRAL | {"participation": participation}))
    assert [record.metrics["clients_trained"] for record in after.rows] == [0, 0]
    moved = after.layout.views(after.flat - after.before)
    assert all(nonempty((np.abs(tensor) > 0).mean() > 0.99 for tensor in moved.values()))


def test_poisson_takes_each_client_by_itself() -> None:
    corpus = tiny.corpus(clients=20)
    experiment = tiny.experiment(participation={"fraction": 0.3, "sampling": "poisson"})
    federation = tiny.federation(experiment, corpus)
    rounds = 2000
    taken = np.zeros((rounds, 20))
    for round_ in range(rounds):
        cohort = federation._sample(round_).clients
        assert cohort == sorted(set(cohort))
        taken[round_, cohort] = 1
    error = math.sqrt(0.3 * 0.7 / rounds)
    assert np.abs(taken.mean(0) - 0.3).max() < 4 * error
    sizes = taken.sum(1)
    assert abs(sizes.var() - 20 * 0.3 * 0.7) < 4 * 20 * 0.3 * 0.7 * math.sqrt(2 / rounds), "sizes vary as binomials do"
    together = np.corrcoef(taken.T)[np.triu_indices(20, 1)]
    assert np.abs(together).max() < 5 / math.sqrt(rounds)
    assert np.array_equal(taken[7], np.isin(np.arange(20), federation._sample(7).clients))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"uplink": []}, "set clip as the last mechanism of uplink"),
        ({"uplink": ["clip", "gaussian"]}, "set clip as the last mechanism of uplink"),
        ({"uplink": ["clip", "quantize"]}, "set clip as the last mechanism of uplink"),
        ({"server": {"noise": {"multiplier": 1}}}, "set server.weights: uniform"),
        ({"participation": {"fraction": 0.5}}, "set participation.sampling: poisson"),
        ({"wire": {"rows": "own"}}, "set wire.rows: all"),
        ({"server": {"weights": "uniform", "noise": {}}}, "either multiplier or target_epsilon"),
        (
            {"server": {"weights": "uniform", "noise": {"multiplier": 1, "target_epsilon": 1}}},
            "either multiplier or target_epsilon",
        ),
        (
            {"method": {"name": "pooled"}, "uplink": [], "participation": {}},
            "server.noise: method pooled has all data in one place",
        ),
        ({"server": CENTRAL["server"] | {"absent_rows": "holders_only"}}, "holders_only needs wire.rows: own"),
    ],
)
def test_what_would_guarantee_nothing_is_refused(changes: dict[str, Any], words: str) -> None:
    content = central().model_dump(mode="json") | CENTRAL | {"wire": {"rows": "auto"}} | changes
    with pytest.raises(UserError, match=words) as refusal:
        validate(content)
    assert len(str(refusal.value).splitlines()) == 1


def test_an_embedding_that_noise_would_move_is_not_called_frozen() -> None:
    frozen = {"training": tiny.TRAINING | {"optimizer": {"embedding_lr": 0}}}
    for changes in (CENTRAL, {"uplink": ["gaussian"]}, {"uplink": ["quantize", "randomized_response"]}):
        with pytest.raises(ValueError, match="embedding_lr: 0 does not keep a shared embedding"):
            tiny.experiment(**(changes | frozen))
        tiny.experiment("lg_fedavg", **(changes | frozen))
    tiny.experiment(uplink=["clip"], **frozen)


def test_noise_is_refused_where_updates_are_not_summed_and_taken_where_they_are() -> None:
    experiment = central()
    with pytest.raises(ValueError, match="method fedavg does not use one: leave out one of them"):
        type(experiment)._consistent(experiment.model_copy(update={"method": EachUpdate()}))
    type(experiment)._consistent(experiment.model_copy(update={"method": FedAvg()}))
    scaled = experiment.server.model_copy(update={"aggregation": Tenfold()})
    with pytest.raises(ValueError, match="aggregation tenfold scales each at the server: leave out one of them"):
        type(experiment)._consistent(experiment.model_copy(update={"server": scaled}))
    bits = tiny.experiment(
        uplink=["quantize", "randomized_response"], wire={"shuffle": True}, server={"weights": "uniform"}
    )
    assert list(privacy.shuffled(bits)) == []
    tenfold = bits.model_copy(update={"server": bits.server.model_copy(update={"aggregation": Tenfold()})})
    assert "set server.weights: uniform, and an aggregation that is the mean" in next(privacy.shuffled(tenfold))
    everybody = central(participation={"fraction": 1.0}, server=CENTRAL["server"])
    assert not everybody.own_rows


SUMMED = [name for name, m in METHODS.items() if m.shares and not m.pooled and m().aggregation.sums]


@pytest.mark.parametrize("method", SUMMED)
def test_every_method_runs_under_central_noise(method: str) -> None:
    after = tiny.Finished(method, tiny.corpus(clients=3), **CENTRAL)
    assert all(nonempty(np.isfinite(tensor).all() for tensor in after.state.values()))
    moved = after.layout.views(after.flat != after.before)
    if METHODS[method].withholds:  # a third of the words, whose rows nobody sends
        assert not moved[TABLE][after.fleet.withheld].any()
        moved[TABLE] = np.delete(moved[TABLE], after.fleet.withheld, axis=0)
    assert all(nonempty(tensor.mean() > 0.99 for tensor in moved.values()))


def test_a_target_is_met_by_the_least_noise_and_a_sweep_keeps_its_pooled_row() -> None:
    pytest.importorskip("dp_accounting")
    server = {"weights": "uniform", "noise": {"target_epsilon": 4.0, "delta": 1e-5}}
    after = tiny.Finished("fedavg", tiny.corpus(clients=4), **(CENTRAL | {"server": server}))
    assert after.step.noise.deviation == noise_multiplier(after.experiment) * 2.0 / (0.5 * 4)
    spent = [record.metrics["epsilon"] for record in after.rows]
    assert 0 < spent[0] < spent[1] <= 4.0
    assert spent[1] > 3.99
    assert [record.metrics["delta"] for record in after.rows] == [1e-5, 1e-5]
    content = after.experiment.model_dump(mode="json") | {"baselines": [{"name": "pooled"}], "tune": {"metric": "Ap"}}
    pooled, one = cases(content, validate(content), "test")
    assert pooled.experiment.server.noise is None
    assert one.experiment.server.noise is not None
