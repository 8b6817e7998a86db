"""What an update says of its client beside the task, and that what an attacker simulates is what clients do."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedtext.audits import attribute_inference
from fedtext.audits.attribute_inference import FILE, AttributeInference, containing, cross_validated, drawn, ridge
from fedtext.audits.gradients import texts_behind
from fedtext.audits.shadows import LocalSimulation, Sketch
from fedtext.corpora.types import Corpus
from fedtext.errors import UserError
from fedtext.evaluation.classes import Scored, area
from fedtext.layout import TABLE
from fedtext.text.vocabulary import bears_digit
from tests import tiny
from tests.checkpoints import SCRATCH
from tests.leaking import MODEL, ONE_STEP, VOCABULARY, corpus, finished
from tests.loops import nonempty

WORD = 7
AUDIT: dict[str, Any] = {"words": [VOCABULARY[WORD]], "shadows": 64}


def texts(have: list[bool], test: int = 200) -> Corpus:
    """Clients with and without the word in each of their eight train texts. Half of the test texts have it."""
    made = corpus([6] * 8, clients=len(have), test=test)
    clients = []
    for client, has in zip(made.clients, have, strict=True):
        train, held = (replace(one, tokens_T=client.rows_R[one.tokens_T]) for one in (client.train, client.test))
        for tokens, chosen in ((train, slice(None) if has else slice(0)), (held, slice(None, None, 2))):
            tokens.tokens_T[tokens.tokens_T == WORD] = WORD + 1
            tokens.tokens_T[tokens.offsets[:-1][chosen]] = WORD
        own = np.unique(train.tokens_T)
        rows_R = np.concatenate([[0], own, np.setdiff1d(held.tokens_T, own)]).astype(np.int32)
        place = np.zeros(len(VOCABULARY), np.int32)
        place[rows_R] = np.arange(len(rows_R))
        train, held = (replace(one, tokens_T=place[one.tokens_T]) for one in (train, held))
        clients.append(replace(client, rows_R=rows_R, train_rows=len(own) + 1, train=train, test=held))
    tests = tuple(replace(client.test, tokens_T=client.rows_R[client.test.tokens_T]) for client in clients)
    return replace(made, clients=clients, tests=tests)


def found(have: list[bool], **changes: Any) -> dict[str, float]:
    metrics = finished(texts(have), [{"attribute_inference": AUDIT}], **changes).rows[-1].metrics
    return {name.removeprefix("attribute_"): value for name, value in metrics.items() if name.startswith("attribute_")}


HALF = [True, False, True, False, False, True, False, False]


WIDE = {"model": MODEL | {"embedding": {"dim": 8, "init": {"random": {"std": 1.0}}}}}


@pytest.mark.parametrize("method", ["fedavg", "kteps"])
def test_words_of_a_client_are_inferred_from_a_shared_table(method: str) -> None:
    """Five of eight clients lack the word."""
    told = found(HALF, method=method, **WIDE)
    assert told["auc"] > 0.9
    assert told["shadow_auc"] > 0.9
    assert told["accuracy"] > told["majority"] == 5 / 8
    assert told["present"] == 3 / 8
    assert told["shadows"] == 64


def test_without_its_table_less_is_said_of_a_client() -> None:
    hidden = found(HALF, method="fedevocab", **WIDE)
    assert 0.5 < hidden["shadow_auc"] < 0.9


def test_noise_hides_an_attribute() -> None:
    quiet, loud = (
        found(HALF, uplink=[{"clip": {"norm": 1.0}}, {"gaussian": {"sigma": sigma}}], **WIDE)["shadow_auc"]
        for sigma in (1e-5, 100.0)
    )
    assert quiet > 0.9
    assert loud == pytest.approx(0.5, abs=0.1)


def test_of_clients_that_are_all_alike_there_is_no_area() -> None:
    alike = found([True, True])
    assert "auc" not in alike
    assert alike["majority"] == 1


def test_where_test_texts_are_all_alike_it_is_said_that_nothing_can_be_learned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = texts([True, False])
    plain = [replace(client, test=client.test.take(np.array([1, 3, 5]))) for client in given.clients]
    record = finished(replace(given, clients=plain), [{"attribute_inference": AUDIT}]).rows[-1]
    assert record.metrics["attribute_shadows"] == 0
    assert "attribute_score" not in record.metrics
    assert "None of its 3 test texts have the words" in record.files[FILE]
    assert "audits: there are no metrics of attribute_inference after the last round" in caplog.text
    with pytest.raises(UserError, match="none of elsewhere is in the corpus's vocabulary"):
        finished(given, [{"attribute_inference": {"words": ["elsewhere"]}}])


NOISE = {"clip_norm": 0.05, "multiplier": 1e-9}


UPDATES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "sgd": ({"name": "sgd", "lr": 0.1, "momentum": 0.9}, {}),
    "adam": ({"name": "adam", "lr": 0.01}, {}),
    "rate of the table": ({"name": "sgd", "lr": 0.1, "momentum": 0.9, "embedding_lr": 0.03}, {}),
    "rate of a factor": (
        {"name": "sgd", "lr": 0.1},
        {"model": SCRATCH | {"dropout": 0.0, "adapter": {"lora": {"lr_ratio": 8}}}},
    ),
    "schedule": ({"name": "sgd", "lr": 0.1, "momentum": 0.9, "schedule": "linear"}, {}),
    "clip": ({"name": "sgd", "lr": 0.1, "clip_norm": 0.05}, {}),
    "texts": ({"name": "sgd", "lr": 0.1, "momentum": 0.9}, {"training": {"dp_sgd": NOISE}}),
    "texts, adam": ({"name": "adam", "lr": 0.01}, {"training": {"dp_sgd": NOISE}}),
    "digits": ({"name": "sgd", "lr": 0.1}, {"method": {"name": "fedrecon", "reconstruction_lr": 1e-9}}),
}


# With noise on the gradients of texts all rows move.
TABLES = [name for name, (_, changes) in UPDATES.items() if "model" not in changes]  # adapters leave the table as it is
EACH = [*((name, "all") for name in TABLES), *((name, "own") for name in TABLES if "texts" not in name)]
EACH.append(("rate of a factor", "auto"))


@pytest.mark.parametrize(("update", "rows"), EACH)
def test_a_simulated_update_is_the_clients(update: str, rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two steps, each on all of its texts, behind a clip."""
    optimizer, changes = UPDATES[update]
    kept: list[Any] = []
    monkeypatch.setattr(AttributeInference, "observe", lambda self, local, words: kept.append(local))
    steps = ONE_STEP | {"local_epochs": 2, "optimizer": optimizer} | changes.get("training", {})
    parts = {"uplink": [{"clip": {"norm": 0.01}}], "wire": {"rows": rows}} | changes | {"training": steps}
    digits_V = np.array([bears_digit(word) for word in VOCABULARY])
    finished(replace(texts([True]), digits_V=digits_V), [{"attribute_inference": AUDIT}], **parts)
    (local,) = kept
    own_rows = local.update.rows is not None
    assert own_rows == (rows == "own" and "model" not in changes)
    read = local.known.read(local.data, "train")
    names = frozenset(local.update.tensors)
    simulation = LocalSimulation(local.known, local.received, local.data, read, names, own_rows, 9, digits_V)
    found, sent = simulation.update(texts_behind(local), np.random.default_rng(0))
    assert set(found) == set(local.update.tensors)
    for name, tensor in nonempty(found.items()):
        whole = tensor
        given = local.update.tensors[name]
        if name == TABLE and own_rows:
            whole, wide = np.zeros((2, len(VOCABULARY), tensor.shape[1]), np.float32)
            whole[sent], wide[local.update.rows] = tensor, given
            given = wide
        np.testing.assert_allclose(whole, given, atol=2e-6)
    again, _ = simulation.update(texts_behind(local), np.random.default_rng(0))
    assert all(np.array_equal(again[name], found[name]) for name in nonempty(found)), "nothing is left of the first"
    fewer, _ = replace(simulation, most=1).update(texts_behind(local), np.random.default_rng(0))
    assert any(np.abs(fewer[name] - found[name]).max() > 1e-5 for name in found)


CAUSAL = {"name": "causal", "embedding": {"dim": 8}, "layers": 1, "heads": 2, "positions": 12, "dropout": 0.0}
SPEAKING: dict[str, dict[str, Any]] = {
    "tied": {},
    "tied, causal": {"model": CAUSAL, "corpus": {"name": "ptb", "max_length": 12}},
    "decay": {"tied": False, "optimizer": {"name": "adamw", "lr": 0.01, "weight_decay": 0.5}},
}


@pytest.mark.parametrize("prompts", [False, True])
@pytest.mark.parametrize("speaking", SPEAKING)
def test_a_simulated_update_of_a_language_model_is_the_clients(
    speaking: str, prompts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its loss is of responses alone, and the softmax, or the decay of weights, moves the rows of all words."""
    kept: list[Any] = []
    monkeypatch.setattr(AttributeInference, "observe", lambda self, local, words: kept.append(local))
    made = tiny.language_corpus(clients=1)
    (client,) = made.clients
    asked_N = np.maximum(np.diff(client.train.offsets) - 3, 0) if prompts else client.train.labels_N
    made = replace(made, clients=[replace(client, train=replace(client.train, labels_N=asked_N))])
    changes = dict(SPEAKING[speaking])
    steps = ONE_STEP | {"local_epochs": 2, "batch_size": 99} | {"optimizer": changes.pop("optimizer", {"lr": 0.1})}
    asked = tiny.language_model(training=steps, audits=[{"attribute_inference": {"words": ["w1"]}}], **changes)
    for _ in tiny.federation(asked, made).run():
        pass
    (local,) = kept
    read, names = local.known.read(local.data, "train"), frozenset(local.update.tensors)
    digits_V = np.zeros(len(made.vocabulary), bool)
    simulation = LocalSimulation(local.known, local.received, local.data, read, names, False, 9, digits_V)
    found, _ = simulation.update(texts_behind(local), np.random.default_rng(0))
    assert set(found) == names
    for name, tensor in nonempty(found.items()):
        np.testing.assert_allclose(tensor, local.update.tensors[name], atol=2e-6, err_msg=name)


def test_texts_behind_simulated_updates_are_not_matched_by_the_lengths_of_prompts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: list[Any] = []
    monkeypatch.setattr(attribute_inference, "drawn", lambda *given: kept.append(given[1]) or drawn(*given))
    made = tiny.language_corpus(clients=1)
    (client,) = made.clients
    test = replace(client.test, labels_N=np.ones(len(client.test), np.int64))
    made = replace(made, clients=[replace(client, test=test)])
    word = made.vocabulary[client.test.tokens_T[1]]
    audit = {"attribute_inference": {"words": [word], "shadows": 8}}
    *_, record = tiny.federation(tiny.language_model(training=ONE_STEP, audits=[audit]), made).run()
    assert record.metrics["attribute_shadows"] == 8
    assert not any(labels_N.any() for labels_N in nonempty(kept))


def test_noise_on_the_gradients_of_texts_hides_an_attribute_from_shadow_updates_too() -> None:
    training = ONE_STEP | {"dp_sgd": {"clip_norm": 0.1, "multiplier": 2.0}}
    assert found(HALF[:3], training=training, **WIDE)["shadow_auc"] == pytest.approx(0.5, abs=0.1)


def test_shadow_clients_have_the_attribute_or_not() -> None:
    with_N, rng = np.array([False, True, False, False]), np.random.default_rng(0)
    labels_N = np.array([0, 0, 1, 1])
    draws = [[drawn(with_N, labels_N, has, 3, rng) for has in (True, False)] for _ in range(200)]
    for number in (0, 1):  # labels are as often drawn with the attribute as without it
        assert np.mean([labels_N[both[number][1:]].mean() for both in draws]) == pytest.approx(0.5, abs=0.1)
    assert all(with_N[present].any() for present, _ in draws)
    assert not any(with_N[absent].any() for _, absent in draws)
    assert {len(chosen) for both in draws for chosen in both} == {3}
    assert containing(texts([True]).clients[0], "test", np.array([WORD])).tolist() == [True, False] * 100


def test_features_do_not_depend_on_an_updates_length_and_count_rows() -> None:
    rng = np.random.default_rng(0)
    update = {"a": rng.standard_normal((40, 5)), "b": rng.standard_normal(3), TABLE: rng.standard_normal((2, 4))}
    sketch, rows = Sketch(3, np.array([9, 8, 4])), np.array([4, 9], np.int32)
    features_F = sketch.features(update, rows)
    assert len(features_F) == 64 + 3 + 3
    scaled_F = sketch.features({name: 7 * tensor for name, tensor in update.items()}, rows)
    np.testing.assert_allclose(features_F, scaled_F)
    length = np.sqrt(np.square(update["a"]).sum() + np.square(update["b"]).sum())
    np.testing.assert_allclose(features_F[64:67], update["b"] / length)
    norms = np.linalg.norm(update[TABLE], axis=1)
    np.testing.assert_allclose(features_F[67:], np.array([norms[1], 0, norms[0]]) / np.sqrt((norms**2).mean()))
    assert (Sketch(4, sketch.words).features(update, rows)[:64] != features_F[:64]).any()
    assert np.square(features_F[:64]).sum() == pytest.approx(np.square(update["a"]).sum() / length**2, rel=0.5)


def test_a_score_is_that_of_ridge_regression_on_weighted_features() -> None:
    """With a constant feature, and one of the client that no shadow update has."""
    rng = np.random.default_rng(0)
    features_SF, labels_S = rng.standard_normal((12, 5)), np.arange(12) % 2 == 1
    features_SF[:, 4] = 3
    client_F = np.array([0.3, -0.2, 99.0, 0.1, 0.0])
    cut_F = client_F.copy()
    cut_F[2] = features_SF[:, 2].max()
    some_SF, some_F = features_SF[:, :4], cut_F[:4]
    within_F = np.sqrt((some_SF[labels_S].var(0) + some_SF[~labels_S].var(0)) / 2)
    apart_F = np.abs(some_SF[labels_S].mean(0) - some_SF[~labels_S].mean(0)) / within_F
    some_SF, some_F = ((each - some_SF.mean(0)) / some_SF.std(0) * apart_F for each in (some_SF, some_F))
    targets_S, penalty = np.where(labels_S, 1, -1), np.square(some_SF).sum() / 12
    weights_F = np.linalg.solve(some_SF.T @ some_SF + penalty * np.eye(4), some_SF.T @ targets_S)
    assert ridge(features_SF, labels_S, client_F) == pytest.approx(some_F @ weights_F)


def test_shadow_updates_are_scored_without_themselves() -> None:
    """Of noise nothing is learned, of one feature that tells everything."""
    rng = np.random.default_rng(0)
    labels_S = np.arange(40) % 2 == 1
    areas = []
    for _ in range(12):
        noise_SF = rng.standard_normal((40, 200))
        areas.append(area([Scored(cross_validated(noise_SF, labels_S).astype(np.float32), labels_S)]))
        noise_SF[:, 17] = labels_S + 0.1 * noise_SF[:, 17]
        assert area([Scored(cross_validated(noise_SF, labels_S).astype(np.float32), labels_S)]) == 1
    assert np.mean(areas) == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("name", ["bag", "logistic", "transformer"])
def test_every_model_is_simulated(name: str) -> None:
    sizes: dict[str, dict[str, Any]] = {
        "bag": {"embedding": {"dim": 8}, "hidden": [8]},
        "transformer": {"embedding": {"dim": 8}, "layers": 1, "heads": 2, "intermediate": 8, "positions": 12},
    }
    assert found(HALF[:3], model={"name": name} | sizes.get(name, {}))["shadow_auc"] > 0.6


def test_a_method_that_changes_gradients_is_refused() -> None:
    with pytest.raises(ValueError, match="attribute_inference treats an update as the gradient of a loss"):
        tiny.experiment("scaffold", audits=[{"attribute_inference": AUDIT}], model=MODEL)


def test_no_client_is_simulated_with_a_text_that_a_client_has_trained_on() -> None:
    made = texts([True, False], test=40)
    kept = np.arange(20)
    clients = [replace(client, test=client.test.take(kept)) for client in made.clients]
    fewer = replace(made, clients=clients, tests=tuple(tests.take(kept) for tests in made.tests))
    marked = replace(made, repeated=(np.arange(40) >= 20,) * 2)
    asked = [{"attribute_inference": AUDIT | {"shadows": 8}}]
    found, expected = (finished(each, asked).rows[-1].clients for each in (marked, fewer))
    named = {
        client: {name: value for name, value in metrics.items() if name.startswith("attribute")}
        for client, metrics in expected.items()
    }
    assert all(named.values())
    assert {client: {name: found[client][name] for name in metrics} for client, metrics in named.items()} == named
