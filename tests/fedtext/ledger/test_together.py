"""The guarantee of all trials of a sweep together."""

from dataclasses import replace
from typing import Any

import pytest

from fedtext.accounting import composition
from fedtext.accounting.entry import Entry
from fedtext.ledger import ledger, read, text
from fedtext.ledger.assumptions import OWN_SAMPLES
from fedtext.ledger.report import of_trials
from fedtext.ledger.together import Trial, together
from tests import tiny
from tests.fedtext.ledger.noisy import ROUNDS, central
from tests.fedtext.ledger.test_correlated_ledger import APART
from tests.fedtext.secure.test_noised_sums import KINDS, noisy
from tests.loops import nonempty

dp = pytest.importorskip("dp_accounting")


def adding(kind: str) -> Trial:
    """A run whose clients add the noise."""
    made = noisy(kind)
    return Trial(made, ledger(made, 1000, 12, 2))


def trial(noise: dict[str, Any], participation: Any = APART, **changes: Any) -> Trial:
    return Trial(central(0.1, noise, participation=participation, **changes))


def test_trials_without_amplification_are_one_gaussian_mechanism() -> None:
    """4 rounds of a client at z = 3, and two correlated runs at z = 1 and 2: 4 / 9 + 1 + 1 / 4."""
    made = [trial({"multiplier": 3.0}), *(trial({"multiplier": z, "mechanism": "tree"}) for z in (1.0, 2.0))]
    ((entry, group),) = together(made)
    assert list(group) == made
    assert entry.epsilon == pytest.approx(composition.gaussian((4 / 9 + 1 + 1 / 4) ** -0.5, 1, 1e-5))
    ((alone, _),) = together(made[:1])
    assert alone.epsilon == pytest.approx(composition.gaussian(3.0, 4, 1e-5))
    assert entry.assumptions.startswith("with a client's updates or with zeros")


def test_poisson_samples_are_composed_no_worse_than_by_renyi_divergence() -> None:
    poisson = {"fraction": 0.1, "sampling": "poisson"}
    made = [trial({"multiplier": z}, poisson) for z in (1.0, 1.5)] + [trial({"multiplier": 20.0}, {"fraction": 1.0})]
    ((entry, _),) = together(made)
    accountant = dp.rdp.RdpAccountant(composition._ORDERS)
    for z in (1.0, 1.5):
        accountant.compose(dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(z)), ROUNDS))
    accountant.compose(dp.SelfComposedDpEvent(dp.GaussianDpEvent(20.0), ROUNDS))
    losses = dp.pld.PLDAccountant()
    for z in (1.0, 1.5):
        losses.compose(dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(z)), ROUNDS))
    losses.compose(dp.SelfComposedDpEvent(dp.GaussianDpEvent(20.0), ROUNDS))
    assert entry.epsilon is not None
    assert entry.epsilon == pytest.approx(losses.get_epsilon(1e-5), rel=5e-3)
    assert entry.epsilon < accountant.get_epsilon(1e-5)
    ((one, _),) = together(made[:1])
    assert entry.epsilon > one.epsilon
    assert "each run draws samples of clients of its own" in entry.assumptions
    assert "samples of clients of its own" not in one.assumptions, "it is a single run"
    ((apart, _),) = together([trial({"multiplier": z}) for z in (1.0, 2.0)])
    assert "samples of clients of its own" not in apart.assumptions, "nothing is amplified"
    assert composition.several(((0.05, 0.1, 50),), 1e-5) <= composition.gaussian(0.05, 50, 1e-5)


def test_runs_whose_records_do_not_say_that_samples_are_their_own_are_not_amplified_together() -> None:
    poisson = {"fraction": 0.1, "sampling": "poisson"}
    said = ledger(trial({"multiplier": 1.0}, poisson).experiment, 100, 10, ROUNDS)
    assert all(OWN_SAMPLES in entry.assumptions for entry in nonempty(said))
    silent = [replace(entry, assumptions=entry.assumptions.replace(OWN_SAMPLES, "")) for entry in said]

    def earlier(z: float, entries: list[Entry] = silent, **changes: Any) -> Trial:
        return replace(trial({"multiplier": z}, poisson, **changes), ledger=entries)

    ((entry, _),) = together([earlier(1.0), earlier(2.0)])
    assert entry.epsilon == pytest.approx(composition.gaussian((ROUNDS + ROUNDS / 4) ** -0.5, 1, 1e-5))
    assert "2 runs are composed without amplification" in entry.assumptions
    assert "samples of clients of its own" not in entry.assumptions
    ((entry, _),) = together([earlier(1.0), earlier(2.0), earlier(4.0, said)])
    assert entry.epsilon == pytest.approx(composition.several(((1.0, 1, 25), (2.0, 1, 25), (4.0, 0.1, 25)), 1e-5))
    assert "of the others each run draws samples of clients of its own" in entry.assumptions
    secret = {"privacy": {"noise": "secret"}}
    users = {"corpus": SHOPS}
    for made in nonempty(
        [
            [earlier(1.0), earlier(2.0, said)],  # one alone shares its samples with none
            [earlier(1.0, **secret), earlier(2.0, **secret)],  # drawn from a secret key in earlier versions too
            [earlier(1.0, **users), earlier(2.0, **users, seed=1)],  # drawn from another seed
            [earlier(1.0, []), earlier(2.0, [])],  # not begun yet
        ]
    ):
        ((entry, _),) = together(made)
        assert entry.epsilon == composition.several(((1.0, 0.1, ROUNDS), (2.0, 0.1, ROUNDS)), 1e-5)
        assert "each run draws samples of clients of its own" in entry.assumptions


def test_what_cannot_be_added_up_has_no_number() -> None:
    simulated = [trial({"multiplier": 1.0}), trial({"multiplier": 1.0, "cohort_size": 9})]
    vectors = {"model": {"embedding": {"dim": 4, "init": {"name": "word2vec", "corpus": "train"}}, "hidden": 3}}
    pooled = [trial({"multiplier": 1.0}, **vectors)]
    for made, words in (
        (simulated, "simulates"),
        (pooled, "word vectors were trained"),
    ):
        ((entry, _),) = together(made)
        assert entry.epsilon is None
        assert words in entry.how
        assert not entry.holds


TABLE = {"name": "table", "path": "reviews.csv"}
SHOPS = TABLE | {"client": "shop"}
LANGUAGE = {"model": {"name": "gru_lm", "embedding": {"dim": 4}, "hidden": 4}, "evaluation": {"personalize": None}}


@pytest.mark.parametrize(
    ("corpora", "groups"),
    [
        ([SHOPS] * 2, [2]),
        ([SHOPS, TABLE | {"client": "shop", "max_length": 20}], [2]),
        ([SHOPS, TABLE | {"client": "city"}], [1, 1]),
        ([SHOPS, TABLE | {"client": "shop", "path": "others.csv"}], [1, 1]),
        ([SHOPS, TABLE | {"client": "shop", "path": "./data/reviews.csv"}], [2]),
        ([SHOPS | {"path": "others.csv"}, SHOPS, SHOPS | {"path": ["reviews.csv", "others.csv"]}], [3]),
        ([TABLE] * 2, [1, 1]),
        ([{"name": "agnews"}] * 2, [1, 1]),
        ([{"name": "ptb"}, {"name": "ptb"}], [1, 1]),
        ([{"name": "demo"}] * 2, [1, 1]),
        ([{"name": "fdu"}] * 2, [2]),
        ([{"name": "stackoverflow", "path": "so.sqlite"}] * 2, [2]),
    ],
)
def test_seeds_have_the_same_clients_unless_texts_are_split_by_them(
    corpora: list[dict[str, Any]], groups: list[int]
) -> None:
    words = [one["name"] in ("ptb", "stackoverflow") for one in corpora]
    made = [
        trial({"multiplier": 1.0}, corpus=corpus, seed=seed, **(LANGUAGE if language else {}))
        for seed, (corpus, language) in enumerate(zip(corpora, words, strict=True))
    ]
    found = list(together(made))
    assert [len(group) for _, group in found] == groups
    ((alone, _),) = together(made[:1])
    assert all((entry.epsilon > alone.epsilon) == (len(group) > 1) for entry, group in nonempty(found))


@pytest.mark.parametrize(
    ("corpora", "groups"),
    [
        ([{"name": "agnews"}, {"name": "agnews", "max_length": 9}, {"name": "agnews", "vocabulary": 99}], [3]),
        ([{"name": "agnews"}, {"name": "agnews", "share": 0.5}, {"name": "agnews", "drop_leaked": "own"}], [3]),
        ([{"name": "agnews", "clients": 4}, {"name": "agnews", "clients": 9}], [1, 1]),
        ([{"name": "agnews"}, {"name": "agnews", "partition": {"dirichlet": {"alpha": 0.5}}}], [1, 1]),
        ([{"name": "demo", "clients": 4}, {"name": "demo", "clients": 9}], [2]),  # the first four are the same
        ([TABLE, TABLE | {"path": "./data/reviews.csv", "min_count": 2}], [2]),
        ([TABLE, TABLE | {"path": "others.csv"}], [1, 1]),
        ([TABLE, TABLE | {"client": "shop"}], [1, 1]),
    ],
)
def test_runs_of_a_seed_have_the_same_clients_unless_texts_are_split_otherwise(
    corpora: list[dict[str, Any]], groups: list[int]
) -> None:
    found = list(together([trial({"multiplier": 1.0}, corpus=corpus) for corpus in corpora]))
    assert [len(group) for _, group in found] == groups


def test_each_vocabulary_that_was_released_counts_once() -> None:
    corpus = TABLE | {"client": "shop", "vocabulary": {"private": {"name": "noisy_sums", "epsilon": 0.5}}}
    first, again, other = (trial({"multiplier": z}, corpus=corpus, seed=s) for z, s in ((1.0, 0), (2.0, 0), (2.0, 1)))
    ((both, _),) = together([first, again])
    ((seeds, _),) = together([first, other])
    assert seeds.epsilon == pytest.approx(both.epsilon + 0.5)
    assert both.how.endswith("and their vocabulary")
    assert seeds.how.endswith("and their 2 vocabularies")


def test_noise_of_clients_is_composed_by_renyi_divergence() -> None:
    """Two runs of two rounds are four rounds, and Gaussian noise is no worse than the integers that stand for it."""
    one, other = (adding(kind) for kind in KINDS)
    ((twice, group),) = together([one, one])
    assert len(group) == 2
    longer = noisy(KINDS[0], training=tiny.TRAINING | {"rounds": 4})
    assert twice.epsilon == ledger(longer, 1000, 12, 4)[1].epsilon
    ((both, _),) = together([one, other])
    assert max(one.ledger[1].epsilon, other.ledger[1].epsilon) < both.epsilon
    assert "the noise of 10% of a round's clients; the server is among them" in both.assumptions
    apart = {"participation": {"fraction": 0.5, "sampling": "epochs"}, "training": tiny.TRAINING | {"rounds": 4}}
    ((mixed, _),) = together([one, Trial(central(0.5, {"multiplier": 1.5}, **apart))])
    assert one.ledger[1].epsilon < mixed.epsilon <= twice.epsilon
    assert mixed.assumptions.count("(zero-out)") == 1
    ((read_again, _),) = together([one, Trial(other.experiment, read(text(other.ledger)))])
    assert read_again == both, "ledger.json has all of it"
    ((unknown, _),) = together([Trial(one.experiment), one])
    assert unknown.epsilon is None
    assert "once each of these runs has completed a round" in unknown.how
    ((sampled, _),) = together([one, Trial(central(0.5, {"multiplier": 1.5}))])
    assert sampled.epsilon > one.ledger[1].epsilon
    assert "; runs that are private with or without a client are so with zeros" in sampled.assumptions


def test_runs_with_other_neighbours_are_composed_for_zeros_in_place_of_updates() -> None:
    poisson = {"fraction": 0.1, "sampling": "poisson"}
    apart, sampled = ([trial({"multiplier": z}, how) for z in (1.0, 2.0)] for how in (APART, poisson))
    ((entry, group),) = together([apart[0], *sampled, apart[1]])
    assert len(group) == 4
    assert entry.epsilon is not None
    losses = dp.pld.PLDAccountant()
    for z in (1.0, 2.0):
        losses.compose(dp.SelfComposedDpEvent(dp.GaussianDpEvent(z), 4))
        losses.compose(dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(z)), ROUNDS))
    assert entry.epsilon == pytest.approx(losses.get_epsilon(1e-5), rel=5e-3)
    assert entry.assumptions.startswith("with a client's updates or with zeros")
    assert "with or without a client are so with zeros" in entry.assumptions
    for each in nonempty((apart, sampled)):
        ((alone, _),) = together(each)
        assert "with or without a client are so with zeros" not in alone.assumptions
    (sentence,) = of_trials([*apart, *sampled])
    assert sentence.startswith("trials with server.noise on the same clients: the 4 of seed 0 together: epsilon = ")


def test_other_seeds_have_other_clients_and_runs_without_noise_are_not_counted() -> None:
    made = [trial({"multiplier": z}, seed=seed) for seed in (0, 1) for z in (1.0, 2.0)]
    found = list(together([*made, Trial(tiny.experiment("local_only")), Trial(tiny.experiment())]))
    assert [list(group) for _, group in found] == [made[:2], made[2:]]
    assert found[0][0] == found[1][0]
    (said,) = of_trials([*made, Trial(tiny.experiment())])
    assert ": the 2 of seed 0 together, and the 2 of seed 1 together: epsilon = " in said
    assert of_trials(made[:1]) == []
    assert list(together([Trial(tiny.experiment())])) == []
