"""Membership inference by shadow models: the papers' formulas written out, and what they find in real training."""

from collections.abc import Mapping
from dataclasses import replace
from math import log
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch

from fedtext.audits.calibrated import RMIA, Calibrated, LiRA, Reference, halves
from fedtext.audits.confidences import Confidences
from fedtext.client.local_fleet import LocalFleet, population
from fedtext.client.shadows import ShadowPopulation, simulated
from fedtext.client.worker import Worker
from fedtext.config.compatibility import problems
from fedtext.corpora.rows import within
from fedtext.corpora.types import Corpus, TokenSet
from fedtext.evaluation.membership import measures
from fedtext.layout import TABLE, Layout
from fedtext.parameters import initial
from tests import tiny
from tests.leaking import BAG, ONE_STEP, VOCABULARY, corpus, finished
from tests.loops import nonempty

ATTACKS: list[Any] = [{"rmia": {"shadows": 2}}, {"lira": {"shadows": 4}}]
TRAINING: dict[str, Any] = ONE_STEP | {"rounds": 6, "local_epochs": 6, "optimizer": {"name": "adam", "lr": 0.02}}


def drawn(rng: np.random.Generator, *shape: int) -> Confidences:
    right = rng.uniform(0.05, 0.95, shape)
    return Confidences(right, 1 - right)


def each(rng: np.random.Generator, shadows: int, texts: int) -> list[Confidences]:
    return [drawn(rng, texts) for _ in range(shadows)]


@pytest.mark.parametrize(("gamma", "a"), [(1.0, 0.33), (1.3, 0.0), (2.0, 1.0)])
def test_rmia_is_the_share_of_population_texts_that_a_text_dominates(gamma: float, a: float) -> None:
    rng = np.random.default_rng(0)
    target, outside = drawn(rng, 7), each(rng, 3, 7)
    reference = Reference(drawn(rng, 11), each(rng, 3, 11))

    def ratio(theta: Confidences, out: list[Confidences], place: int) -> float:
        mean = sum(shadow.right_N[place] for shadow in out) / len(out)
        inside = a * mean + (1 - a)  # what a member's probability is taken to be
        return float(theta.right_N[place] / ((mean + inside) / 2))

    expected = [
        sum(ratio(target, outside, x) / ratio(reference.target, list(reference.outside), z) >= gamma for z in range(11))
        / 11
        for x in range(7)
    ]
    assert len(set(expected)) > 2
    assert RMIA(gamma=gamma, a=a).scores(target, outside, reference).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("shadows", [6, 64])
def test_lira_is_the_probability_of_a_smaller_logit(shadows: int) -> None:
    """With few shadow models by the mean variance of population texts, with many by each text's own."""
    rng = np.random.default_rng(1)
    target, outside = drawn(rng, 5), each(rng, shadows // 2, 5)
    reference = Reference(drawn(rng, 9), each(rng, shadows // 2, 9))

    def logits(shadows: Any, place: int) -> list[float]:
        return [log(s.right_N[place] / (1 - s.right_N[place])) for s in shadows]

    def variance(values: list[float]) -> float:
        mean = sum(values) / len(values)
        return sum((value - mean) ** 2 for value in values) / (len(values) - 1)

    common = sum(variance(logits(reference.outside, z)) for z in range(9)) / 9
    expected = []
    for x in range(5):
        out = logits(outside, x)
        fitted = NormalDist(sum(out) / len(out), (common if shadows < 64 else variance(out)) ** 0.5)
        expected.append(log(fitted.cdf(*logits([target], x))))
    scores = LiRA(shadows=shadows).scores(target, outside, reference).tolist()
    assert [log(NormalDist().cdf(score)) for score in scores] == pytest.approx(expected)


@pytest.mark.parametrize("shadows", [6, 64])
def test_lira_tells_texts_apart_of_which_it_is_certain(shadows: int) -> None:
    """The more confident the model is, the larger the score, also far beyond what the shadow models say."""
    logits = np.linspace(0, 60, 61)
    target = Confidences(1 / (1 + np.exp(-logits)), 1 / (1 + np.exp(logits)))
    rng = np.random.default_rng(3)
    draws = rng.normal(0, 0.5, (shadows // 2, 1)) + np.zeros(61)
    outside = [Confidences(1 / (1 + np.exp(-row)), 1 / (1 + np.exp(row))) for row in draws]
    found = LiRA(shadows=shadows).scores(target, outside, Reference(target, outside)).astype(np.float32)
    assert (np.diff(found) > 0).all()


@pytest.mark.parametrize("attack", [RMIA(), LiRA(shadows=6)], ids=lambda attack: attack.name)
def test_a_model_that_diverged_has_no_scores(attack: Calibrated) -> None:
    rng = np.random.default_rng(2)
    target, outside = drawn(rng, 5), each(rng, 3, 5)
    reference = Reference(drawn(rng, 9), each(rng, 3, 9))
    assert np.isfinite(attack.scores(target, outside, reference)).all()
    lost = replace(target, right_N=target.right_N.copy(), others_N=target.others_N.copy())
    lost.right_N[1], lost.others_N[1] = np.nan, np.nan
    scores_N = attack.scores(lost, outside, reference)
    assert np.isnan(scores_N).tolist() == [False, True, False, False, False]
    assert measures(-scores_N.astype(np.float32), np.zeros(3, np.float32)) == {}
    shadows = [Confidences(np.full(9, np.nan), np.full(9, np.nan)), *reference.outside[1:]]
    assert np.isnan(attack.scores(target, outside, Reference(reference.target, shadows))).all()


def test_confidences_near_one_are_not_rounded_to_it() -> None:
    found = Confidences(np.array([1.0, 1.0, 0.25, 0.0]), np.array([1e-30, 1e-20, 0.75, 1.0]))
    assert found.losses().tolist() == pytest.approx([1e-30, 1e-20, log(4), 38 * log(10)])
    assert found.logits().tolist() == pytest.approx([30 * log(10), 20 * log(10), -log(3), -38 * log(10)])


def test_halves_are_complements_and_of_equal_size_over_all_clients() -> None:
    found = halves(3, [5, 1, 4, 1, 1], 6)
    assert [inside.shape for inside in found] == [(6, size) for size in (5, 1, 4, 1, 1)]
    for inside in nonempty(found):
        assert (inside[::2] != inside[1::2]).all()
    sizes = np.sum([inside.sum(1) for inside in found], axis=0)
    assert sizes.tolist() == [6] * 6
    assert len({found[0][pair].tobytes() for pair in (0, 2, 4)}) > 1, "each pair has halves of its own"
    assert np.concatenate(halves(3, [5], 6)).tobytes() == found[0].tobytes()
    assert np.concatenate(halves(4, [5], 6)).tobytes() != found[0].tobytes()


def uneven(clients: int, texts: int, seed: int = 0) -> Corpus:
    """Texts of two kinds: one half have their class written in them, the labels of the others are drawn."""
    made = corpus([6] * texts, clients=clients, test=texts, seed=seed)
    rng = np.random.default_rng(seed)

    def split(count: int) -> TokenSet:
        labels_N, easy_N = rng.integers(0, 2, count), np.arange(count) % 2 == 0
        tokens_NT = rng.integers(6, len(VOCABULARY), (count, 6))
        tokens_NT[easy_N, :3] = 2 + labels_N[easy_N, None]
        return TokenSet(tokens_NT.reshape(-1).astype(np.int32), np.arange(0, 6 * count + 1, 6), labels_N)

    rows_R = np.arange(len(VOCABULARY), dtype=np.int32)
    data = [
        replace(client, rows_R=rows_R, train_rows=len(rows_R), train=split(texts), test=split(texts))
        for client in made.clients
    ]
    return replace(made, clients=data, tests=tuple(c.test for c in data), digest=f"uneven-{clients}-{texts}-{seed}")


def figures(texts: Corpus, attack: Any, **changes: Any) -> Mapping[str, float]:
    made = {"model": BAG | {"embedding": {"dim": 16}, "hidden": [16]}, "training": TRAINING} | changes
    return finished(texts, [{"membership": {"attack": attack}}], **made).rows[-1].metrics


def test_calibrated_attacks_find_more_where_texts_differ_in_difficulty() -> None:
    """RMIA on average, LiRA with few false positives: the loss takes easy texts for train texts."""
    texts, training = uneven(2, 60), TRAINING | {"local_epochs": 10, "optimizer": {"name": "adam", "lr": 0.05}}
    attacks: list[Any] = ["loss", {"rmia": {"shadows": 4}}, {"lira": {"shadows": 4}}]
    loss, rmia, lira = (figures(texts, attack, training=training) for attack in attacks)
    assert loss["member_pooled_auc"] > 0.55
    assert rmia["member_pooled_auc"] > loss["member_pooled_auc"] + 0.03
    assert lira["member_pooled_tpr_at_1pct_fpr"] > loss["member_pooled_tpr_at_1pct_fpr"] + 0.02
    assert rmia["Ag"] == lira["Ag"] == loss["Ag"]


@pytest.mark.parametrize("attack", ATTACKS)
def test_of_a_model_that_was_not_trained_they_find_nothing(attack: Any) -> None:
    """240 train and 240 test texts: the deviation of the area is 0.026."""
    training = TRAINING | {"rounds": 1, "optimizer": {"lr": 1e-9, "momentum": 0}}
    found = figures(uneven(clients=4, texts=60), attack, training=training)
    assert found["member_pooled_auc"] == pytest.approx(0.5, abs=0.08)


@pytest.mark.parametrize("attack", ATTACKS)
def test_texts_that_nobody_trained_on_are_not_told_apart(attack: Any) -> None:
    """Of a trained model: train texts are replaced by unseen ones after training."""
    texts = uneven(clients=4, texts=60)
    unseen = uneven(clients=4, texts=60, seed=1)
    model = BAG | {"embedding": {"dim": 16}, "hidden": [16]}
    made = finished(texts, [{"membership": {"attack": attack}}], model=model, training=TRAINING)
    scores = []
    for one, other in zip(texts.clients, unseen.clients, strict=True):
        client = within(replace(one, train=other.train), made.worker.rows, 0)
        (_, (members,)) = made.worker.audits.seen[client.id]
        scores.append(replace(members, data=client).evaluate(made.layout.views(made.flat)).metrics["member_auc"])
    assert np.mean(scores) == pytest.approx(0.5, abs=0.08)


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_that_is_trained_or_drawn_is_changed(attack: Any) -> None:
    texts, changes = corpus([3, 5, 4], clients=3), {"model": BAG, "training": TRAINING | {"rounds": 2}}
    state = torch.get_rng_state()
    with_, without = (finished(texts, audits, **changes) for audits in ([{"membership": {"attack": attack}}], []))
    assert torch.equal(state, torch.get_rng_state())
    assert with_.flat.tobytes() == without.flat.tobytes()
    found = {name for name in with_.rows[-1].metrics if name.startswith("member")}
    assert {"member_auc", "member_pooled_auc", "member_user_auc"} <= found
    assert not found & set(with_.rows[0].metrics), "shadow models are of the last round"
    assert f"Attack: {next(iter(attack))}, calibrated by" in with_.rows[-1].files["membership.md"]


REPEATED: list[Any] = ["loss", {"rmia": {"shadows": 2}}, {"lira": {"shadows": 4}}]


@pytest.mark.parametrize("attack", REPEATED)
def test_test_texts_that_a_client_has_trained_on_are_no_others(attack: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Copies of train texts, of the own client and of another, change nothing but the log."""
    texts = replace(uneven(clients=3, texts=20), digest="the same")
    clients, repeated = [], []
    for place, client in enumerate(texts.clients):
        copied = texts.clients[2 * place % 3].train.take(np.arange(place + 1))
        clients.append(replace(client, test=joined(client.test, copied)))
        repeated.append(np.arange(21 + place) >= 20)
    more = replace(texts, clients=clients, tests=tuple(c.test for c in clients), repeated=tuple(repeated))
    asked: dict[str, Any] = {"model": BAG, "training": TRAINING | {"rounds": 2}}
    audits = [{"membership": {"attack": attack, "texts": 18}}]
    found, expected = (finished(each, audits, **asked).rows[-1] for each in (more, texts))
    names = [name for name in expected.metrics if name.startswith("member")]
    assert {name: found.metrics[name] for name in nonempty(names)} == {name: expected.metrics[name] for name in names}
    assert "Left out: 1 test texts" in found.files["membership.md"]
    assert "Left out" not in expected.files["membership.md"]
    assert [record.message for record in caplog.records if "train split" in record.message] == [
        "6 of 66 test texts are also in a client's train split: audits that need texts that no client has trained on "
        "leave them out (membership)"
    ]


def joined(one: TokenSet, other: TokenSet) -> TokenSet:
    return TokenSet(
        np.concatenate([one.tokens_T, other.tokens_T]),
        np.concatenate([one.offsets, one.offsets[-1] + other.offsets[1:]]),
        np.concatenate([one.labels_N, other.labels_N]),
    )


def test_a_client_all_of_whose_test_texts_were_trained_on_is_not_attacked() -> None:
    texts = corpus([3, 5, 4], clients=3)
    texts = replace(texts, repeated=(np.ones(3, bool), np.zeros(3, bool), np.zeros(3, bool)))
    record = finished(texts, ["membership"], model=BAG, training=ONE_STEP).rows[-1]
    assert ["member_auc" in found for found in record.clients.values()] == [False, True, True]


def test_scores_do_not_depend_on_where_clients_live() -> None:
    texts = corpus([3, 5, 4], clients=3)
    experiment = tiny.experiment(audits=[{"membership": {"attack": "rmia"}}], model=BAG, training=ONE_STEP)
    shared, private = initial(experiment, texts)
    flat = Layout({name: tensor.shape for name, tensor in shared.items()}).pack(shared)
    found = []
    for places in ([[0, 1, 2]], [[2, 0], [1]]):
        read: dict[int, Any] = {}
        for hosted in places:
            worker = Worker(experiment, texts, [texts.clients[c] for c in hosted], private, corpus_clients=3)
            worker.population = population(worker)
            for client in hosted:
                worker.train(flat, 1, [client], range(3))
            read |= {n: r.metrics for n, r in worker.evaluate(flat, 1, hosted, final=False).items()}
        found.append(read)
    assert found[0] == found[1]
    assert len({scores["member_auc"] for scores in found[0].values()}) > 1


def test_a_shadow_model_begins_where_the_run_began_and_is_trained_on_the_chosen_texts_alone() -> None:
    """Words that only other texts have keep their initial vectors; another shadow model has other draws."""
    texts = corpus([3, 5, 4], clients=3, test=24)
    made = finished(texts, [], model=BAG, training=TRAINING)
    population = ShadowPopulation(made.worker, LocalFleet)
    chosen = [np.arange(0, 24, 2), np.zeros(0, np.int64), np.array([5])]
    before = made.layout.views(made.before)[TABLE]
    trained, again, other = (population.trained(shadow, chosen)[TABLE] for shadow in (0, 0, 1))
    moved = np.flatnonzero((trained != before).any(1)) + made.worker.rows.start
    used = [texts.tests[client].take(chosen[client]).tokens_T for client in (0, 2)]
    assert moved.tolist() == np.unique(np.concatenate(used)).tolist()
    assert again.tobytes() == trained.tobytes() != other.tobytes()


def test_a_shadow_model_is_trained_as_the_run_is_without_its_attacks() -> None:
    asked: dict[str, Any] = {
        "uplink": [{"clip": {"norm": 1.0}}],
        "server": {"weights": "uniform", "noise": {"multiplier": 0.5}},
        "wire": {"rows": "all"},
        "adversaries": {"fraction": 0.4, "attack": "sign_flip"},
        "privacy": {"noise": "secret"},
        "audits": [{"membership": {"attack": "rmia"}}],
    }
    experiment = tiny.experiment(**asked)
    made = simulated(experiment, 1)
    changed = {key for key in type(made).model_fields if getattr(made, key) != getattr(experiment, key)}
    assert changed == {"seed", "adversaries", "privacy", "audits", "evaluation"}
    assert not list(problems(made))
    assert made.seed != simulated(experiment, 2).seed
