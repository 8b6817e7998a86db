"""The ledger's entries themselves: their words and units, and what counts where several mechanisms state something."""

import json
import math
from typing import Any

import pytest

from fedtext.accounting import composition
from fedtext.accounting.entry import DELTA, Bound, Entry, Sent
from fedtext.accounting.gaussian import gaussian_entry
from fedtext.ledger import hidden, ledger, spent, text
from fedtext.mechanisms import Clip, Gaussian, Mechanism, Project, Quantize, RandomizedResponse
from fedtext.mechanisms.base import bounds
from fedtext.metrics.wording import format_epsilon
from tests import tiny
from tests.fedtext.ledger.noisy import pair
from tests.loops import nonempty


def test_entries_of_gaussian_noise_say_how_often_and_of_whom() -> None:
    pytest.importorskip("dp_accounting")
    one = gaussian_entry("noise", "client and round", 1.23456, 1.0, 1, 1e-5, "rests")
    assert one.how == "gaussian, noise multiplier 1.235"
    assert (one.mechanism, one.unit, one.delta, one.assumptions) == ("noise", "client and round", 1e-5, "rests")
    assert one.epsilon == composition.gaussian(1.23456, 1, 1e-5)
    run = gaussian_entry("noise", "run", 1.0, 0.25, 12, 1e-6, "rests")
    assert run.how == "gaussian, noise multiplier 1, Poisson samples of 0.25, 12 rounds"
    assert run.epsilon == composition.sampled_gaussian(1.0, 0.25, 12, 1e-6)


def test_the_stronger_of_two_statements_under_one_name_counts() -> None:
    """Noise of 1 behind a clip of 1 hides less than noise of 5 behind a clip of 0.5, in whichever order they stand. The
    entries of a client's round are smaller than those of the run and do not decide."""
    pytest.importorskip("dp_accounting")
    weak, strong = (
        [{"clip": {"norm": 1.0}}, {"gaussian": {"sigma": 1.0}}],
        [
            {"clip": {"norm": 0.5}},
            {"gaussian": {"sigma": 5.0}},
        ],
    )
    for uplink in ([*weak, *strong], [*strong, *weak]):
        entries = ledger(tiny.experiment(uplink=uplink), 100, 10, 25)
        run = next(entry for entry in entries if entry.unit == "run")
        assert run.epsilon == pytest.approx(composition.gaussian(5.0, 25, 1e-5))
        assert len(entries) == 2
    weak_bits, strong_bits = pair(8.0), pair(0.5)
    alone = ledger(tiny.experiment(uplink=strong_bits), 100, 10, 25)
    assert spent(alone)["epsilon"] < spent(ledger(tiny.experiment(uplink=weak_bits), 100, 10, 25))["epsilon"]


class Odd(Mechanism):
    """A mechanism whose run has a smaller epsilon the larger that of a round is."""

    name: str = "odd"
    run: float

    def apply(self, delta: Any, received: Any, rng: Any) -> Any:
        return delta

    def guarantee(self, before: Bound, sent: Sent) -> list[Entry]:
        entries = [
            Entry(self.name, "client and round", 9 - self.run, 0.0, ""),
            Entry(self.name, "run", self.run, 0.0, ""),
        ]
        return [*entries, Entry(self.name, "run", None, 0.0, "")]


@pytest.mark.parametrize("runs", [(1.0, 2.0), (2.0, 1.0)])
def test_of_two_statements_the_figures_of_the_run_decide(runs: tuple[float, float]) -> None:
    made = tiny.experiment(wire={"rows": "all"})
    made = made.model_copy(update={"uplink": tuple(Odd(run=run) for run in runs)})
    kept = [entry.epsilon for entry in ledger(made, 3, 10, 2)]
    assert kept == [8.0, 1.0, None]


@pytest.mark.parametrize(
    ("front", "rows", "expected"),
    [
        ([], "all", False),
        (["clip"], "all", False),
        (["gaussian"], "all", False),  # which states that it guarantees nothing
        (["clip", "gaussian"], "all", True),
        (["clip", "gaussian"], "own", False),
        (["clip", "gaussian", "clip"], "all", True),
        (["gaussian", "quantize", "randomized_response"], "all", True),
        (["quantize", "randomized_response"], "own", False),
    ],
)
def test_what_stands_behind_a_guarantee_is_hidden(front: list[Any], rows: str, expected: bool) -> None:
    experiment = tiny.experiment(uplink=front, wire={"rows": rows})
    assert hidden(experiment, len(front)) == expected
    assert not hidden(experiment, 0), "nothing stands in front of the first"


def test_bounds_of_an_update_along_an_uplink() -> None:
    """Clips bound it, noise adds its variance, and a clip behind noise counts by itself."""
    uplink = [
        Gaussian(sigma=3.0),
        Clip(norm=2.0),
        Clip(norm=5.0),
        Gaussian(sigma=3.0),
        Gaussian(sigma=4.0),
        Clip(norm=9.0),
    ]
    found = bounds(uplink)
    assert [(bound.norm, bound.variance) for bound in found] == [
        *((None, 0.0), (None, 0.0), (2.0, 0.0), (2.0, 0.0), (2.0, 9.0), (2.0, 25.0), (9.0, 0.0))
    ]
    assert bounds([]) == [Bound()]


def test_randomised_response_adds_up_over_coordinates_and_rounds() -> None:
    entries = RandomizedResponse(epsilon=0.5).guarantee(Bound(), Sent(1200, 10, 1e-6))
    assert [(e.unit, e.epsilon, e.delta) for e in entries[:3]] == [
        ("coordinate and round", 0.5, 0.0),
        ("client and round", 600.0, 0.0),
        ("run", 6000.0, 0.0),
    ]
    assert (entries[3].unit, entries[3].delta) == ("run", 1e-6)
    assert entries[3].epsilon == composition.optimal(0.5, 12_000, 1e-6)
    assert [entry.how for entry in entries] == [
        "randomised response",
        "sum over 1,200 coordinates",
        "sum over 1,200 coordinates and 10 rounds",
        "optimal composition",
    ]
    assert all(nonempty(entry.mechanism == "randomized_response" and entry.holds for entry in entries))
    assert RandomizedResponse(epsilon=1.0).joins(Quantize())
    assert not RandomizedResponse(epsilon=1.0).joins(Clip())


def test_only_what_follows_is_one_step_with_what_it_follows() -> None:
    chain = [Clip(), Gaussian(), Quantize(), RandomizedResponse()]
    joined = [(one.name, other.name) for one in chain for other in chain if other.joins(one)]
    assert joined == [("quantize", "randomized_response")]
    assert Quantize().rescales(None), "how far numbers reach beyond q is not told"
    assert not Gaussian().rescales(None)


class Coded(Mechanism):
    """A mechanism whose output is no numbers."""

    name: str = "coded"
    last = True

    def apply(self, delta: Any, received: Any, rng: Any) -> Any:
        return delta


def test_what_cannot_stand_behind_what_is_said_by_the_last_one_that_leaves_another_form() -> None:
    clip, noise, bits, project = Clip(), Gaussian(), Quantize(), Project(d1=1, d2=2)
    assert clip.order_problem([]) == clip.order_problem([noise]) == ""
    assert clip.order_problem([noise, bits]) == "clip needs numbers, and quantize leaves bits: put it before quantize"
    assert clip.order_problem([project, noise]) == (
        "clip needs the change of the embedding, and project leaves the embedding itself: put it before project"
    )
    for other in (bits, project):
        assert other.order_problem([project]).endswith("leaves the embedding itself: leave out one of them")
    assert noise.order_problem([project]) == ""
    assert noise.order_problem([clip, Coded()]) == (
        "coded stands last, since nothing can compute with what it leaves: put gaussian before it"
    )
    assert Coded().order_problem([clip, noise]) == ""
    assert RandomizedResponse().order_problem([noise, bits]) == ""
    for before in ([], [bits, noise]):
        assert RandomizedResponse().order_problem(before) == "randomized_response must directly follow quantize"


def test_gaussian_noise_hides_two_norms() -> None:
    pytest.importorskip("dp_accounting")
    one, run = Gaussian(sigma=3.0).guarantee(Bound(0.5, 16.0), Sent(7, 9, 1e-6))  # deviation 5, distance 1
    assert one.epsilon == pytest.approx(composition.gaussian(5.0, 1, 1e-6))
    assert run.epsilon == pytest.approx(composition.gaussian(5.0, 9, 1e-6))
    assert (one.unit, run.unit, one.delta, run.delta) == ("client and round", "run", 1e-6, 1e-6)
    assert "rho = 0.02 a round" in one.assumptions
    (none,) = Gaussian(sigma=3.0).guarantee(Bound(why="nothing"), Sent(7, 9, 1e-6))
    assert none == Entry("gaussian", "run", None, 0.0, "no guarantee: nothing")
    assert not none.holds


def test_what_is_spent_is_the_smallest_figure_of_the_run_with_its_delta() -> None:
    entries = [
        Entry("a", "client and round", 0.1, 0.0, ""),
        Entry("a", "run", 5.0, 1e-5, ""),
        Entry("b", "run", 3.0, 0.0, ""),
        Entry("c", "run", None, 0.5, ""),
    ]
    assert spent(entries) == {"epsilon": 3.0, "delta": 0.0}
    assert spent([*entries, Entry("server.noise", "run", 4.0, 1e-7, "")]) == {"epsilon": 4.0, "delta": 1e-7}
    assert spent([Entry("server.noise", "run", None, 0.0, ""), *entries]) == {}
    assert spent(entries[:1]) == {}


def test_figures_as_a_person_reads_them_and_as_a_file() -> None:
    assert [format_epsilon(value) for value in (9.99812, 999.94, 1000.0, 5_864_446.9)] == [
        "9.998",
        "999.9",
        "1,000",
        "5,864,447",
    ]
    (entry,) = json.loads(text([Entry("a", "run", None, 0.0, "how", "rests")]))
    assert entry == {
        **{"mechanism": "a", "unit": "run", "epsilon": None, "delta": 0.0},
        **{"how": "how", "assumptions": "rests"},
    }


def test_steps_that_may_not_fail_compose_to_their_sum() -> None:
    """With delta = 0 nothing may be left out."""
    for epsilon, count in ((0.5, 1), (1.0, 7), (0.1, 40)):
        assert composition.optimal(epsilon, count, 0.0) == pytest.approx(epsilon * count)
        assert composition.basic(epsilon, count) == pytest.approx(epsilon * count)
    assert composition.optimal(1.0, 3, 1.0) == 0.0
    assert DELTA == 1e-5
    assert math.isclose(composition.optimal(1.0, 1, 1e-5), 1 + math.log(1 - 1e-5 * (1 + math.exp(-1))))


@pytest.mark.parametrize(
    ("method", "changes", "name", "how"),
    [
        ("pooled", {}, "pooled", "no guarantee: all texts lie in one place"),
        ("local_only", {}, "local_only", "no guarantee is needed for updates: none is sent"),
        ("fedavg", {}, "uplink", "no guarantee: updates are sent as they are"),
        ("fedavg", {"uplink": ["clip"]}, "uplink", "no guarantee: no mechanism of the uplink states one"),
        ("fedavg", {"uplink": ["gaussian"]}, "gaussian", "no guarantee: no clip before it bounds an update"),
        (
            "fedavg",
            {"uplink": pair(1.0), "wire": {"rows": "own"}, "training": tiny.TRAINING},
            None,
            "no guarantee: wire.rows: own lets the rows name the client's words",
        ),
        (
            "fedavg",
            {"model": {"embedding": {"init": {"word2vec": {"corpus": "train"}}}}},
            "word2vec",
            "no guarantee: word vectors were trained on all clients' texts",
        ),
    ],
)
def test_what_guarantees_nothing_says_so_at_delta_0(method: str, changes: Any, name: str | None, how: str) -> None:
    entries = ledger(tiny.experiment(method, **changes), 100, 10, 25)
    without = [entry for entry in entries if not entry.holds]
    assert without == [Entry(name or "randomized_response", "run", None, 0.0, how)]
    assert (without == entries) == (name is not None), "the bits of a round are hidden, and the run is not"
    assert spent(entries) == {}


def test_a_mechanism_that_the_next_one_joins_states_nothing_of_its_own() -> None:
    entries = ledger(tiny.experiment(uplink=[{"clip": {"norm": 1.0}}, *pair(1.0)]), 100, 10, 25)
    assert {entry.mechanism for entry in entries} == {"randomized_response"}


class Twofold(Odd):
    """It states its run twice, by a smaller and by a larger epsilon."""

    larger: float

    def guarantee(self, before: Bound, sent: Sent) -> list[Entry]:
        return [Entry(self.name, "run", epsilon, 0.0, "") for epsilon in (self.larger, self.run)]


@pytest.mark.parametrize("order", [1, -1])
def test_of_several_statements_of_a_run_the_smallest_is_compared(order: int) -> None:
    chain = (Twofold(run=1.0, larger=9.0), Twofold(run=2.0, larger=3.0))[::order]
    made = tiny.experiment(wire={"rows": "all"}).model_copy(update={"uplink": chain})
    assert [entry.epsilon for entry in ledger(made, 3, 10, 2)] == [9.0, 1.0]


def test_one_source_of_pooled_vectors_among_several_leaves_no_guarantee() -> None:
    init = {"each": {"sources": [{"random": {"std": 1.0}}, {"word2vec": {"corpus": "train"}}]}}
    model = {"embedding": {"dim": 5, "init": init}, "hidden": 4}
    method = {"name": "lg_fedavg", "shared": "encoder"}
    entries = ledger(tiny.experiment(method, uplink=pair(1.0), model=model), 100, 10, 25)
    assert spent(entries) == {}
