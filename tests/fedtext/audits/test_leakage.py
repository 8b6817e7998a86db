"""What audits of leakage find: everything where it is there to be found, chance where it is not."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fedtext.audits.embedding_rows import Noise, above_gap, known_noise, stands_out
from fedtext.audits.label_leakage import stretch
from fedtext.client.worker import Worker
from fedtext.config import files
from fedtext.evaluation.membership import measures
from fedtext.layout import TABLE, Layout
from fedtext.models.batch import Batch
from fedtext.parameters import initial
from fedtext.training.batches import part
from tests import tiny
from tests.leaking import BAG, MODEL, ONE_STEP, VOCABULARY, corpus, figures, finished
from tests.loops import nonempty
from tune_spaces.cases import cases

ALL: list[Any] = [{"gradient_inversion": {"steps": 3}}, "embedding_rows", "label_leakage", "membership"]


@pytest.mark.parametrize("model", [MODEL, BAG], ids=["bigru", "bag"])
@pytest.mark.parametrize("uplink", [[], [{"clip": {"norm": 0.01}}]], ids=["none", "clip"])
@pytest.mark.parametrize("rows", ["own", "all"])
def test_rows_name_all_words_and_no_other_without_noise(rows: str, uplink: Any, model: Any) -> None:
    """Whose first layer is linear in the words tells them exactly, without anything to optimise."""
    found = figures(corpus([6, 9], clients=2), ["embedding_rows"], wire={"rows": rows}, uplink=uplink, model=model)
    names = ("precision", "recall", "f1", "ptlr")
    assert {name: found[f"rows_{name}"] for name in names} == dict.fromkeys(names, 1)


def test_rows_under_noise() -> None:
    """From all of them, over those that stand out of it, to chance."""
    found = {}
    for sigma in (1e-7, 3e-4, 10):
        uplink, model = [{"gaussian": {"sigma": sigma}}], MODEL | {"embedding": {"dim": 64}}
        found[sigma] = figures(corpus([9], clients=3), ["embedding_rows"], uplink=uplink, model=model)["rows_f1"]
    assert found[1e-7] > 0.9 > found[3e-4] > found[10]
    assert found[10] < 0.3


@pytest.mark.parametrize(
    "uplink",
    [
        [{"gaussian": {"sigma": 1e-5}}],
        [{"clip": {"norm": 0.1}}, {"gaussian": {"sigma": 1e-5}}],
        [{"gaussian": {"sigma": 1e-5}}, {"clip": {"norm": 0.01}}],
    ],
    ids=["alone", "behind a clip", "before a clip"],
)
def test_rows_under_noise_of_a_client_that_has_most_words(uplink: Any) -> None:
    """The size of the noise is known, and need not be estimated from rows of which most are the client's."""
    found = figures(corpus([90]), ["embedding_rows"], uplink=uplink)
    assert found["rows_recall"] > 0.9
    assert found["rows_precision"] > 0.9


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.9])
def test_noise_of_known_size_hides_no_row_beyond_it(share: float) -> None:
    rng = np.random.default_rng(0)
    rows_VD = 3 * rng.standard_normal((2000, 20))
    rows_VD[: int(2000 * share)] += 12
    moved_V = stands_out(np.square(rows_VD).sum(1), Noise(9.0, 20))
    assert moved_V[: int(2000 * share)].all()
    assert moved_V[int(2000 * share) :].sum() <= 5


def test_what_stands_out_of_noise_by_its_length() -> None:
    rng = np.random.default_rng(0)
    squares_V = np.square(rng.standard_normal((2000, 20))).sum(1)
    squares_V[:50] += 200
    moved_V = stands_out(squares_V)
    assert moved_V[:50].all()
    assert moved_V[50:].sum() <= 5
    assert np.flatnonzero(above_gap(np.array([2.25, 1.0, 9.0, 1.21, 8.0]))).tolist() == [2, 4]


@pytest.mark.parametrize("output", ["softmax", "sigmoid"])
@pytest.mark.parametrize("optimizer", [{"lr": 0.1, "momentum": 0}, {"name": "adam", "lr": 0.01}], ids=["sgd", "adam"])
def test_the_label_of_one_text_is_never_hidden(optimizer: Any, output: str) -> None:
    texts, model = corpus([6], clients=6), MODEL | {"output": output}
    assert {client.train.labels_N[0] for client in texts.clients} == {0, 1}
    for method in ("fedavg", "kteps"):
        training = ONE_STEP | {"optimizer": optimizer}
        found = figures(texts, ["label_leakage"], method=method, model=model, training=training)
        assert (found["label_top"], found["label_l1"], found["label_l1_uniform"]) == (1, 0, 1), method


@pytest.mark.parametrize("model", [MODEL, BAG, {"name": "logistic"}], ids=["bigru", "bag", "logistic"])
def test_the_shares_of_several_texts_classes(model: Any) -> None:
    classes = 2 if model.get("name") == "logistic" else 4
    texts = corpus([6] * 8, clients=6, classes=classes, seed=1)
    for method in ("fedavg", "fedrecon"):  # whose update is of one half of the texts, and gives these away
        if method == "fedavg" or model == MODEL:
            found = figures(texts, ["label_leakage"], model=model, method=method)
            assert found["label_l1"] < 0.1 < 0.25 < found["label_l1_uniform"], method
            assert found["label_top"] == 1


@pytest.mark.parametrize("norm", [1e-3, 1e3], ids=["clipped", "not reached"])
def test_the_shares_of_several_texts_classes_behind_a_clip(norm: float) -> None:
    """The direction tells more than a guess of equal shares; a clip that is not reached changes nothing."""
    texts, uplink = corpus([6] * 8, clients=6, classes=4, seed=1), [{"clip": {"norm": norm}}]
    found, open_ = (figures(texts, ["label_leakage"], uplink=chosen) for chosen in (uplink, []))
    assert found["label_top"] == 1
    assert open_["label_l1"] <= found["label_l1"] < 0.75 * found["label_l1_uniform"]
    assert (found["label_l1"] == open_["label_l1"]) == (norm == 1e3)


def test_the_length_of_a_clipped_gradient_by_hand() -> None:
    """Four labels of two equally expected classes: sqrt(1/2 / 4) long, unless a share became negative, or shorter."""
    expected_C = np.array([0.5, 0.5])
    assert stretch(np.array([0.025, -0.025]), expected_C, 4) == pytest.approx(10)
    assert stretch(np.array([0.025, -0.025]), expected_C, 1) == pytest.approx(20), "all of one class, and no more"
    assert stretch(np.array([0.3, -0.3]), expected_C, 4) == 1
    assert stretch(np.array([0.03, -0.03]), np.array([0.06, 0.94]), 1) == pytest.approx(2)
    assert stretch(np.zeros(2), expected_C, 4) == 1


def test_members_are_told_after_overfitting_and_not_before() -> None:
    """Labels are drawn at random, so that there is nothing to learn but the texts themselves."""
    texts = corpus([8] * 40, test=40)
    training: dict[str, Any] = ONE_STEP | {"optimizer": {"lr": 1e-9, "momentum": 0}}
    before = figures(texts, ["membership"], model=BAG, training=training)
    assert before["member_auc"] == pytest.approx(0.5, abs=0.15)
    assert abs(before["member_advantage"]) < 0.3
    training |= {"rounds": 2, "local_epochs": 40, "optimizer": {"lr": 0.1}}
    after = figures(texts, [{"membership": {"texts": 30}}], model=BAG, training=training)
    assert after["member_auc"] > 0.9 > 0.4 < after["member_advantage"]


@pytest.mark.parametrize("method", ["fedevocab", "fedrecon", {"name": "lg_fedavg", "shared": "encoder"}])
def test_membership_of_a_method_with_private_vectors_is_that_under_the_public_ones(method: Any) -> None:
    """Hand-computed: the shared parameters after the round, with the table that all clients began with. Of fedrecon the
    half of the texts that trains shared parameters are members; no update depends on the others."""
    texts = replace(corpus([8] * 20, test=30), digits_V=np.arange(62) % 4 == 0)
    training: dict[str, Any] = ONE_STEP | {"local_epochs": 30, "optimizer": {"lr": 0.3, "embedding_lr": 0.1}}
    made = finished(texts, ["membership"], method=method, model=MODEL, training=training)
    data, tests = texts.clients[0], texts.tests[0]
    members = part(20, "query", made.experiment.seed, 0) if method == "fedrecon" else np.arange(20)
    network, shared = made.worker.network, made.layout.views(made.flat)
    private = {name: tensor for name, tensor in made.private.items() if name not in shared}
    # in float64, in which losses far below 1e-7 are told apart
    parameters = {name: torch.from_numpy(np.array(tensor)).double() for name, tensor in {**private, **shared}.items()}
    losses = []
    for tokens, rows in ((data.train.take(members), data.rows_R), (tests, np.arange(len(VOCABULARY)))):
        each = []
        for place in range(len(tokens)):
            row_T = torch.from_numpy(rows[tokens.tokens_T[tokens.offsets[place] : tokens.offsets[place + 1]]])[None]
            batch = Batch(row_T.long(), torch.tensor([row_T.shape[1]]), torch.zeros(1, dtype=torch.int64))
            logits = torch.func.functional_call(network, parameters, (batch,))
            each.append(float(torch.nn.functional.cross_entropy(logits, torch.tensor(tokens.labels_N[[place]]))))
        losses.append(np.array(each, np.float32))
    expected = measures(*losses)
    assert {name: made.rows[-1].metrics[name] for name in expected} == pytest.approx(expected, abs=1e-3)
    report = made.rows[-1].files["membership.md"]
    assert f"\n{len(members)} train texts" in report
    assert "against 30 test texts" in report
    assert "the word vectors that every client began with" in report
    assert "member_tpr_at_1pct_fpr: not given, since it needs 100 test texts" in report


def test_a_word_that_a_client_does_not_know_is_read_as_the_word_that_it_is() -> None:
    """Under own vocabularies test texts are full of <unk>, which alone would tell them from train texts."""
    texts = corpus([8] * 20, test=30)
    client = texts.clients[0]
    unknown = replace(client.test, tokens_T=np.zeros_like(client.test.tokens_T))
    hidden = replace(texts, clients=[replace(client, test=unknown)])
    found = [figures(each, ["membership"], method="fedevocab", model=MODEL)["member_auc"] for each in (texts, hidden)]
    assert found[0] == found[1]


@pytest.mark.parametrize("method", ["fedavg", "fedper", "kteps", "pfl_da", "fedprox"])
def test_nothing_that_is_trained_sent_or_drawn_is_changed(method: str) -> None:
    audits = [audit for audit in ALL if method != "fedper" or audit not in ("label_leakage", "membership")]
    changes: dict[str, Any] = {"training": ONE_STEP | {"rounds": 2, "batch_size": 2}, "model": MODEL | {"dropout": 0.3}}
    texts = corpus([3, 5, 4], clients=3)
    state = torch.get_rng_state()
    with_, without = (finished(texts, chosen, method=method, **changes) for chosen in (audits, []))
    assert torch.equal(state, torch.get_rng_state())
    assert with_.flat.tobytes() == without.flat.tobytes()
    for record, other in nonempty(zip(with_.rows, without.rows, strict=True)):
        assert set(other.metrics) <= set(record.metrics)
        same = [name for name in other.metrics if not name.endswith("seconds")]
        assert [record.metrics[name] for name in same] == [other.metrics[name] for name in same]
    declared = {name for audit in with_.experiment.audits for name in audit.metrics}
    assert set(with_.rows[-1].metrics) - set(without.rows[-1].metrics) <= declared


REFUSED: list[tuple[str, Any, dict[str, Any], str]] = [
    ("local_only", "gradient_inversion", {}, "method local_only sends none: leave it out"),
    ("fedavg", "gradient_inversion", {"model": BAG}, "model bag does not do: use embedding_rows"),
    ("fedmmd", "gradient_inversion", {}, "fedmmd uses features that are frozen"),
    ("fedfusion", "gradient_inversion", {}, "fedfusion uses features that are frozen"),
    (
        "fedper",
        {"gradient_inversion": {"labels": "inferred"}},
        {},
        "needs the output layer's update, and method fedper",
    ),
    (
        "pfl_da",
        {"gradient_inversion": {"labels": "optimised"}},
        {},
        "does not accept probabilities as labels: use known",
    ),
    ("fedavg", {"gradient_inversion": {"rounds": [1, 9]}}, {}, "there is no round 9 in 2"),
    ("fedavg", {"gradient_inversion": {"rounds": [1]}}, {"evaluation": {"every": 2}}, "round 1 is not evaluated"),
    ("fedavg", {"gradient_inversion": {"texts": 0}}, {}, "greater than or equal to 1"),
    ("local_only", "embedding_rows", {}, "embedding_rows needs a shared embedding, and method local_only shares none"),
    ("fedper", "label_leakage", {}, "method fedper sends none: leave it out"),
    ("fedper", "membership", {}, "method fedper shares no complete encoder and output layer: leave it out"),
    ("lg_fedavg", "membership", {}, "method lg_fedavg shares no complete encoder and output layer: leave it out"),
    ("local_only", "membership", {}, "method local_only shares no complete encoder and output layer: leave it out"),
]


@pytest.mark.parametrize(("method", "audit", "changes", "sentence"), REFUSED)
def test_what_finds_nothing_is_refused(method: str, audit: Any, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        tiny.experiment(method, audits=[audit], **changes)


def test_baselines_are_spared_audits_that_find_nothing_there() -> None:
    content = tiny.experiment().model_dump(mode="json") | {"audits": ALL, "tune": {"metric": "Ap"}}
    content |= {"baselines": ["local_only", "fedper", "fedmmd", "fedavg"]}
    made = cases(content, files.validate(content), "test")
    names = {case.experiment.method.name: [audit.name for audit in case.experiment.audits] for case in made[:4]}
    assert names["local_only"] == []
    assert names["fedper"] == ["gradient_inversion", "embedding_rows"]
    assert names["fedmmd"] == ["embedding_rows", "label_leakage", "membership"]
    assert len(names["fedavg"]) == 4


def test_what_is_found_does_not_depend_on_where_clients_live() -> None:
    """In one place, and in two."""
    texts = corpus([3, 5, 4], clients=3)
    changes: dict[str, Any] = {"model": MODEL, "training": ONE_STEP, "evaluation": {"personalize": None}}
    experiment = tiny.experiment(audits=[{"gradient_inversion": {"steps": 3, "clients": 2}}, *ALL[1:]], **changes)
    shared, private = initial(experiment, texts)
    flat = Layout({name: tensor.shape for name, tensor in shared.items()}).pack(shared)
    found = []
    for places in ([[0, 1, 2]], [[2, 0], [1]]):
        read: dict[int, Any] = {}
        for hosted in places:
            clients = [texts.clients[client] for client in hosted]
            worker = Worker(experiment, texts, clients, private, corpus_clients=3)
            for client in hosted:
                worker.train(flat, 1, [client], range(3))
            read |= {n: r.metrics for n, r in worker.evaluate(flat, 1, hosted, final=False).items()}
        found.append(read)
    assert found[0] == found[1]
    assert ["inversion_distance" in found[0][client] for client in range(3)] == [True, True, False]


@pytest.mark.parametrize("audit", ["gradient_inversion", "label_leakage"])
def test_of_a_language_model_there_are_no_classes(audit: str) -> None:
    with pytest.raises(ValueError, match="gru_lm"):
        tiny.language_model(audits=[audit])


def test_the_rows_of_a_language_model() -> None:
    """Without tied weights only rows of the words that were read move."""
    texts, experiment = tiny.language_corpus(), tiny.language_model(tied=False, audits=["embedding_rows"])
    *_, record = tiny.federation(experiment, texts).run()
    assert (record.metrics["rows_precision"], record.metrics["rows_recall"]) == (1, 1)


@pytest.mark.parametrize("tied", [True, False])
def test_noise_on_a_table_that_has_another_place_too_is_not_known(tied: bool) -> None:
    """Training moves all rows of it, in a plug-in's network as well, which has no key for it."""
    network = torch.nn.ModuleDict({"embedding": torch.nn.Embedding(9, 4), "head": torch.nn.Linear(4, 9, bias=False)})
    if tied:
        network["head"].weight = network["embedding"].weight
    experiment = tiny.experiment(uplink=[{"gaussian": {"sigma": 0.1}}], audits=["embedding_rows"])
    known = SimpleNamespace(network=network, experiment=experiment)
    update = SimpleNamespace(tensors={TABLE: np.zeros((9, 4), np.float32)})
    local: Any = SimpleNamespace(known=known, update=update)
    assert known_noise(local) == (None if tied else Noise(pytest.approx(0.01), 4))
