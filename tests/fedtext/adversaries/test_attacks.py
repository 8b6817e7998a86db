"""Attacks against definitions written out, and what honest clients notice of them: nothing."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedtext
from fedtext.adversaries import ATTACKS
from fedtext.adversaries.backdoor import Backdoor, inserted
from fedtext.adversaries.label_flip import LabelFlip
from fedtext.adversaries.noise import Noise
from fedtext.adversaries.scaled import Scaled
from fedtext.adversaries.sign_flip import SignFlip
from fedtext.client.adversaries import tokens_of, with_entries
from fedtext.client.local_fleet import LocalFleet
from fedtext.corpora.types import Corpus, TokenSet
from fedtext.errors import UserError
from fedtext.layout import TABLE
from fedtext.server.sampling import adversaries
from fedtext.testing import check_attack
from fedtext.testing.runs import federated, final
from tests import tiny
from tests.loops import nonempty
from tests.sampled import slow_but
from tune_spaces.cases import cases

CORPUS = tiny.corpus(clients=5)
EMPTY = np.zeros(0, np.int32)
DELTA = {TABLE: np.arange(6, dtype=np.float32).reshape(3, 2), "w": np.array([-1, 2.5], np.float32)}


def draws(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def words(texts: TokenSet) -> list[list[int]]:
    return [part.tolist() for part in np.split(texts.tokens_T, texts.offsets[1:-1])]


@pytest.mark.parametrize("name", slow_but(ATTACKS, "backdoor", "little_is_enough"))
def test_attacks_keep_what_is_promised_of_every_attack(name: str) -> None:
    check_attack(ATTACKS[name]())


def test_updates_are_turned_and_scaled() -> None:
    for attack, factor in ((SignFlip(), -1), (SignFlip(factor=3), -3), (Scaled(), 10), (LabelFlip(boost=2), 2)):
        sent = attack.send(DELTA, draws())
        assert all(nonempty(np.array_equal(sent[name], np.float32(factor) * DELTA[name]) for name in DELTA))
    assert Backdoor(boost=4).send(DELTA, draws())["w"].tolist() == [-4, 10]


def test_noise_has_the_length_asked_for_and_nothing_of_the_update() -> None:
    delta = {TABLE: np.full((400, 20), 0.5, np.float32), "w": np.zeros(100, np.float32)}
    sent = Noise(scale=3).send(delta, draws())
    lengths = [math.sqrt(sum(float((part**2).sum()) for part in parts.values())) for parts in (sent, delta)]
    assert lengths[0] == pytest.approx(3 * lengths[1], rel=0.03)
    assert abs(float(sent[TABLE].mean())) < 0.1
    assert sent["w"].std() == pytest.approx(sent[TABLE].std(), rel=0.2)  # coordinates that did not move are hit too


def test_labels_are_turned_round() -> None:
    texts = TokenSet(np.arange(4, dtype=np.int32), np.arange(5), np.array([0, 1, 2, 3]))
    four = Corpus("four", 4, CORPUS.vocabulary, [], [], "", None)
    assert LabelFlip().texts(texts, EMPTY, four, draws()).labels_N.tolist() == [3, 2, 1, 0]


@given(
    st.lists(st.lists(st.integers(10, 20), min_size=1, max_size=8), min_size=1, max_size=6),
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    st.integers(0, 99),
)
@settings(deadline=None, max_examples=100)
def test_a_trigger_is_inserted_in_one_piece_and_the_ends_of_a_text_stay(
    texts: list[list[int]], trigger: list[int], seed: int
) -> None:
    offsets = np.concatenate([[0], np.cumsum([len(text) for text in texts])]).astype(np.int64)
    flat = np.array([token for text in texts for token in text], np.int32)
    given = TokenSet(flat, offsets, np.arange(len(texts)), values_T=np.arange(len(flat), dtype=np.float32) + 2)
    chosen = draws(seed).random(len(texts)) < 0.5
    made = inserted(given, np.array(trigger, np.int32), chosen, draws(seed))
    longest = max(max(map(len, texts)), len(trigger) + 2)
    for before, after, values, changed in nonempty(zip(texts, words(made), _values(made), chosen, strict=True)):
        if not changed:
            assert after == before
            continue
        places = [i for i, token in enumerate(after) if token < 10]
        assert [after[i] for i in places] == trigger
        assert places == list(range(places[0], places[0] + len(trigger)))
        assert places[0] >= 1
        assert len(after) <= longest
        assert all(values[i] == 1 for i in nonempty(places))
        rest = [token for token in after if token >= 10]
        assert rest[0] == before[0]
        assert rest[-1] == before[-1]
        kept = before if len(before) + len(trigger) <= longest else [*before[: len(rest) - 1], before[-1]]
        assert rest == kept


def _values(texts: TokenSet) -> list[list[float]]:
    assert texts.values_T is not None
    return [part.tolist() for part in np.split(texts.values_T, texts.offsets[1:-1])]


def test_a_backdoor_changes_a_share_of_the_train_texts_and_the_labels_of_these() -> None:
    client = CORPUS.clients[0]
    attack = Backdoor(words=("w3",), target=1, share=0.25)
    whole = with_entries(client, attack.trigger(CORPUS), train=True)
    made = attack.texts(whole.train, tokens_of(whole, (3,)), CORPUS, draws())
    marked = [tokens_of(whole, (3,))[0] in text for text in words(made)]
    changed = [before != after for before, after in zip(words(whole.train), words(made), strict=True)]
    assert sum(changed) == 3  # of 12
    poisoned = np.flatnonzero(changed)
    assert made.labels_N[poisoned].tolist() == [1, 1, 1]
    assert [marked[number] for number in poisoned] == [True, True, True]
    kept = [number for number, was in enumerate(changed) if not was]
    assert made.labels_N[kept].tolist() == whole.train.labels_N[kept].tolist()
    others = attack.triggered(whole.test, tokens_of(whole, (3,)), CORPUS, draws())
    assert len(others) == int((whole.test.labels_N == 0).sum())
    assert set(others.labels_N) == {1}


@pytest.mark.parametrize("train", [True, False])
def test_a_client_with_more_entries_has_the_same_texts(train: bool) -> None:
    client = CORPUS.clients[1]
    held, rest = client.rows_R[: client.train_rows], client.rows_R[client.train_rows :]
    absent = next(entry for entry in range(1, 40) if entry not in client.rows_R)
    entries = (int(held[2]), int(rest[1]), absent)
    made = with_entries(client, entries, train)
    for split in ("train", "validation", "test"):
        before, after = getattr(client, split), getattr(made, split)
        assert client.rows_R[before.tokens_T].tolist() == made.rows_R[after.tokens_T].tolist()
    assert made.train_rows == client.train_rows + (2 if train else 0)
    assert made.rows_R[: client.train_rows].tolist() == held.tolist()
    assert len(set(made.rows_R.tolist())) == len(made.rows_R) == len(client.rows_R) + 1
    assert made.rows_R[tokens_of(made, entries)].tolist() == list(entries)


def attacked(attack: Any, fraction: float = 0.4, **changes: Any) -> Any:
    return tiny.experiment(adversaries={"fraction": fraction, "attack": attack}, **changes)


def test_adversaries_of_a_smaller_share_are_among_those_of_a_larger_one() -> None:
    chosen = [adversaries(attacked("scaled", share), 20) for share in (0, 0.1, 0.2, 0.4)]
    assert [len(ids) for ids in chosen] == [0, 2, 4, 8]
    assert chosen[0] <= chosen[1] <= chosen[2] <= chosen[3]
    assert adversaries(tiny.experiment(), 20) == frozenset()
    assert adversaries(attacked("scaled", 0.4, seed=1), 20) != chosen[3]


@pytest.mark.parametrize("attack", ["sign_flip", {"backdoor": {"words": ["w3"]}}])
def test_without_adversaries_an_attack_changes_no_bit(attack: Any) -> None:
    assert final(attacked(attack, 0), CORPUS)[0] == final(tiny.experiment(), CORPUS)[0]


def test_honest_clients_send_what_they_would_have_sent() -> None:
    made = attacked({"backdoor": {"boost": 3}}, training=tiny.TRAINING | {"rounds": 1})
    sent: list[dict[int, bytes]] = []
    for experiment in (made, made.model_copy(update={"adversaries": None})):
        federation = federated(experiment, CORPUS, tiny.Recording)
        list(federation.run())
        sent.append({reply.client: reply.payload.tobytes() for reply in federation.fleet.received})
    bad = adversaries(made, 5)
    assert len(bad) == 2
    assert {client for client in range(5) if sent[0][client] != sent[1][client]} == bad


def test_metrics_count_adversaries_and_are_of_honest_clients_where_models_are_their_own() -> None:
    (*_, last) = federated(attacked("label_flip"), CORPUS, LocalFleet).run()
    bad = {f"client{client}" for client in adversaries(attacked("label_flip"), 5)}
    assert last.metrics["adversaries"] == 2
    assert {name for name, metrics in last.clients.items() if "Ag" in metrics} == {f"client{n}" for n in range(5)}
    assert {name for name, metrics in last.clients.items() if "Ap" in metrics}.isdisjoint(bad)
    assert last.metrics["Ap"] == pytest.approx(np.mean([m["Ap"] for m in last.clients.values() if "Ap" in m]))
    (*_, last) = federated(attacked("label_flip", method="lg_fedavg"), CORPUS, LocalFleet).run()
    assert {name for name, metrics in last.clients.items() if "Ap_0" in metrics}.isdisjoint(bad)


def test_a_backdoor_is_learnt_from_adversaries_and_not_without_them() -> None:
    content: dict[str, Any] = {"name": "door", "corpus": "demo", "method": "fedavg", "model": "bag"}
    content |= {"training": {"rounds": 4, "optimizer": {"lr": 0.05}}, "evaluation": {"personalize": None}}
    found = []
    for fraction in (0.0, 0.4):
        attack = {"backdoor": {"target": "negative", "boost": 3}}
        result = fedtext.run(content | {"adversaries": {"fraction": fraction, "attack": attack}})
        found.append(result.metrics["backdoor_success"])
    assert found[1] > 0.9 > found[0]


def test_krum_never_chooses_an_update_far_from_all_others() -> None:
    """One client with an update of a thousand times its size is never chosen."""
    made = attacked({"scaled": {"factor": 1000}}, 0.2, server={"aggregation": "krum"})
    (bad,) = adversaries(made, 5)
    best = [record.metrics["krum_client"] for record in federated(made, CORPUS, LocalFleet).run()]
    assert best
    assert bad not in best


@pytest.mark.parametrize(
    ("z", "aggregation", "why"),
    [
        (1e6, "auto", "changed .* by .*, too much for an exact sum"),
        (1e300, "krum", "sent .* numbers that are not finite"),
    ],
)
def test_chosen_updates_that_the_server_refuses_end_the_run_with_their_attack(
    z: float, aggregation: str, why: str
) -> None:
    made = attacked({"little_is_enough": {"z": z}}, 0.4, server={"aggregation": aggregation})
    with pytest.raises(UserError, match=rf"adversaries.attack: the server refuses the update .* \(it {why}"):
        next(federated(made, CORPUS, LocalFleet).run())


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "nothing sent": ({"method": "local_only"}, "adversaries: method local_only sends no updates"),
    "pooled": ({"method": "pooled"}, "adversaries: method pooled has all data in one place"),
    "together": ({"attack": "little_is_enough", "uplink": [{"clip": {"norm": 1}}]}, "which passes by clip: leave out"),
    "everybody": ({"fraction": 1}, "adversaries.fraction"),
    "unknown": ({"attack": "signflip"}, "adversaries.attack"),
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=list(REFUSED))
def test_what_does_not_go_together_is_refused(changes: dict[str, Any], message: str) -> None:
    keys = {"fraction": 0.4, "attack": "sign_flip"}
    given = keys | {key: value for key, value in changes.items() if key in keys}
    with pytest.raises(ValueError, match=message):
        tiny.experiment(adversaries=given, **{key: value for key, value in changes.items() if key not in keys})


def test_labels_are_not_turned_round_in_sentences() -> None:
    with pytest.raises(ValueError, match="backdoor is for classifiers, and gru_lm predicts words"):
        tiny.language_model(adversaries={"fraction": 0.4, "attack": "backdoor"})


@pytest.mark.parametrize(
    ("attack", "fraction", "message"),
    [
        ("sign_flip", 0.05, "adversaries.fraction: 0.05 of 5 clients is less than half a client: raise it to 0.2"),
        ({"backdoor": {"target": 2}}, 0.4, "corpus tiny has no class 2: name a number from 0 to 1"),
        ({"backdoor": {"target": "good"}}, 0.4, "corpus tiny has no class good"),
        ({"backdoor": {"words": ["cf"]}}, 0.4, "'cf' is not in the vocabulary of corpus tiny: .* such as 'w39'"),
        ({"backdoor": {"words": ["<pad>"]}}, 0.4, "'<pad>' is padding: choose a word .* such as 'w39'"),
    ],
)
def test_what_does_not_fit_the_corpus_is_refused(attack: Any, fraction: float, message: str) -> None:
    with pytest.raises(UserError, match=message):
        federated(attacked(attack, fraction), CORPUS, LocalFleet)


def test_baselines_that_send_nothing_have_no_adversaries() -> None:
    content = {
        "name": "a",
        "corpus": {"name": "demo", "validation": 0.1},
        "method": "fedavg",
        "baselines": ["local_only", "pooled", "fedprox"],
    }
    content |= {"adversaries": {"fraction": 0.2, "attack": "noise"}}
    found = {
        case.experiment.method.name: case.experiment.adversaries for case in cases(content, fedtext.load(content), "a")
    }
    assert found["local_only"] is None
    assert found["pooled"] is None
    assert found["fedprox"] == found["fedavg"]
    assert found["fedavg"] is not None
