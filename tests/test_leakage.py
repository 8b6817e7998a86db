"""What audits of leakage find: everything where it is there to be found, chance where it is not."""

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch

from fedtext.audits.base import Turn, Words
from fedtext.audits.embedding_rows import above_gap, stands_out
from fedtext.audits.gradient_inversion import FILE
from fedtext.audits.gradients import local_steps, mean_gradient, step_weight
from fedtext.audits.matching import Client, distance
from fedtext.audits.recovery import Pairing, paired
from fedtext.corpora.types import ClientData, Corpus, TokenSet
from fedtext.federation import Federation
from fedtext.fleet import LocalFleet
from fedtext.parameters import initial
from fedtext.training.config import SGD
from tests import tiny

ALL: list[Any] = [{"gradient_inversion": {"steps": 3}}, "embedding_rows", "label_leakage", "membership"]
ONE_STEP = {"rounds": 1, "local_epochs": 1, "batch_size": 8, "optimizer": {"lr": 0.1, "momentum": 0}}
MODEL = {"embedding": {"dim": 8}, "hidden": 8, "head": {"hidden": 8}}
ATTACK: dict[str, Any] = {"steps": 40, "restarts": 2}
BAG = {"name": "bag", "embedding": {"dim": 8}, "hidden": [8]}
VOCABULARY = [
    "<pad>",
    "<unk>",
    *(f"{n}" if n % 4 == 0 else "w" + "abc"[n % 4 - 1] * (n // 4 + 1) for n in range(2, 62)),
]


def words() -> Words:
    return Words(VOCABULARY, {word: row for row, word in enumerate(VOCABULARY)})


def corpus(lengths: Sequence[int], clients: int = 1, test: int = 3, classes: int = 2, seed: int = 0) -> Corpus:
    """Clients with texts of these lengths, of words drawn at random, as are their labels."""
    rng = np.random.default_rng(seed)

    def drawn(lengths: Sequence[int]) -> TokenSet:
        offsets = np.cumsum([0, *lengths])
        tokens_T = rng.integers(2, len(VOCABULARY), offsets[-1]).astype(np.int32)
        return TokenSet(tokens_T, offsets, rng.integers(0, classes, len(lengths)))

    made = []
    for number in range(clients):
        train, held = drawn(lengths), drawn([5] * test)
        own = np.unique(train.tokens_T)
        rows_R = np.concatenate([[0], own, np.setdiff1d(held.tokens_T, own)]).astype(np.int32)
        place = np.zeros(len(VOCABULARY), np.int32)
        place[rows_R] = np.arange(len(rows_R))
        splits = [TokenSet(place[t.tokens_T], t.offsets, t.labels_N) for t in (train, drawn([]), held)]
        made.append(ClientData(number, f"client{number}", rows_R, len(own) + 1, *splits))
    return Corpus("tiny", classes, VOCABULARY, made, [], f"leakage-{lengths}-{clients}-{seed}", None)


def finished(texts: Corpus, audits: Any, method: Any = "fedavg", **changes: Any) -> tiny.Finished:
    base = {"model": MODEL, "training": ONE_STEP, "evaluation": {"personalize": None}}
    return tiny.Finished(method, texts, audits=audits, **(base | changes))


def figures(texts: Corpus, audits: Any, **changes: Any) -> Mapping[str, float]:
    return finished(texts, audits, **changes).rows[-1]["metrics"]


def test_figures_by_hand() -> None:
    """Two texts, of which the second one has a word twice, an unknown word, and nothing of it at its place."""
    names = ["<pad>", "<unk>", "on", "may", "7th", "at", "5", "pm"]
    text, other = np.array([2, 3, 4, 5, 6]), np.array([7, 7, 1, 6])
    found = [np.array([2, 3, 5, 4, 0]), np.array([6, 7, 3, 2])]
    pairing = Pairing([text, other], found)
    values = pairing.figures(Words(names, {}), digits=True)
    assert values == {
        "precision": pytest.approx((1 + 2 / 4) / 2),  # four words of the first, all right; <pad> is none
        "recall": pytest.approx((4 / 5 + 3 / 3) / 2),
        "f1": pytest.approx(2 * 0.75 * 0.9 / 1.65),
        "exact": pytest.approx((2 / 5 + 1 / 3) / 2),
        "ptlr": pytest.approx(2 / 3),  # 7th and the second 5 of 7th, 5, 5
        "ptlr_exact": 0,
    }
    assert "ptlr" not in pairing.figures(Words(names, {}), digits=False)
    assert "ptlr" not in Pairing([np.array([2, 3])], [np.array([4, 6])]).figures(Words(names, {}), digits=True)
    assert Pairing([np.array([1])], [np.array([2])]).figures(Words(names, {}), digits=True) == {}


def test_texts_are_paired_by_what_they_have_in_common_within_a_label() -> None:
    texts = [np.array([2, 3, 4]), np.array([5, 6]), np.array([7, 8])]
    found = [np.array([5, 6]), np.array([2, 3, 9])]
    free = paired(texts, found, np.array([0, 1, 1]), None)
    assert [f.tolist() for f in free.found] == [[2, 3, 9], [5, 6], []]
    bound = paired(texts, found, np.array([0, 1, 1]), np.array([0, 1]))
    assert [f.tolist() for f in bound.found] == [[5, 6], [2, 3, 9], []]


def test_the_weight_of_steps_by_hand() -> None:
    """Of three steps with momentum 1/2: 1 + 1/2 + 1/4, 1 + 1/2, and 1."""
    training = ONE_STEP | {"local_epochs": 3, "optimizer": {"lr": 0.1, "momentum": 0.5}}
    made = tiny.experiment(training=training)
    assert (local_steps(made, 8), local_steps(made, 9)) == (3, 6)
    assert step_weight(made, 8) == pytest.approx(4.25)
    assert step_weight(tiny.experiment(training=training | {"optimizer": {"name": "adam"}}), 8) == 3


def turn_of(made: tiny.Finished) -> Turn:
    """The first client's turn in a last round that an inversion has been kept of."""
    ((_, (observed,)),) = [made.worker.audits.seen[0]]
    return observed.turn


@pytest.mark.parametrize("momentum", [0, 0.9])
@pytest.mark.parametrize(
    ("lengths", "size", "epochs"), [([6], 8, 1), ([4, 6, 3], 8, 1), ([4, 6, 3], 1, 1), ([6], 8, 3)]
)
def test_the_true_vectors_explain_what_was_received(
    lengths: list[int], size: int, epochs: int, momentum: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one step and of several, played through in the order in which they were made."""
    monkeypatch.setattr("fedtext.audits.gradient_inversion.Inversion.figures", lambda self, shared: {})
    optimizer = {"lr": 0.1, "momentum": momentum, "embedding_lr": 0}  # an attacker's dummies do not move either
    training = ONE_STEP | {"batch_size": size, "local_epochs": epochs, "optimizer": optimizer}
    made = finished(corpus(lengths), ["gradient_inversion"], training=training)
    turn = turn_of(made)
    experiment, train = turn.known.experiment, turn.data.train
    config = experiment.training.optimizer
    assert isinstance(config, SGD)
    target = [torch.from_numpy(part) for part in mean_gradient(turn).values()]
    steps = local_steps(experiment, len(train))
    client = Client(
        experiment.method,
        turn.known.network,
        turn.known.parameters(turn.received),
        list(mean_gradient(turn)),
        steps,
        size,
        config.lr,
        config.momentum,
        False,
    )
    texts, table = turn.known.read(turn.data, "train"), torch.from_numpy(turn.known.table(turn.received))
    rows_NT = torch.from_numpy(turn.data.rows_R[texts.padded_NT].astype(np.int64))
    lengths_N, labels_N = torch.from_numpy(texts.lengths_N), torch.from_numpy(texts.labels_N)
    orders = [list(order) for order in permutations(range(len(lengths)))]
    far = [
        float(
            distance("l2", client.gradient(table[rows_NT[o]].flatten(0, 1), lengths_N[o], labels_N[o]), target).detach()
        )
        for o in orders
    ]
    assert min(far) < 1e-6
    if steps > 1 and len(lengths) > 1:
        assert max(far) > 1e-4, "the order of steps is seen"


def test_the_true_table_names_the_words_and_an_unrelated_one_does_not() -> None:
    texts = corpus([5], seed=3)
    made = finished(texts, [{"gradient_inversion": ATTACK}])
    found = made.rows[-1]["metrics"]
    for table in ("true", "public"):
        assert found[f"inversion_{table}_f1"] > 0.9
        assert found[f"inversion_{table}_exact"] > 0.9
        assert found[f"inversion_{table}_ptlr"] == 1
    assert found["inversion_unrelated_f1"] < 0.4
    assert found["inversion_distance"] < 1e-4
    data = texts.clients[0]
    names = [VOCABULARY[row] for row in data.rows_R[data.train.tokens_T]]
    text = made.rows[-1]["files"][FILE]
    assert f"| original | {' '.join(names)} |" in text
    assert f"| public | {' '.join(f'**{name}**' for name in names)} |" in text
    again = figures(texts, [{"gradient_inversion": ATTACK}])
    assert {name: again[name] for name in found if name.startswith("inv")} == {
        name: value for name, value in found.items() if name.startswith("inv")
    }


def test_noise_and_clipping_stand_between_all_and_nothing() -> None:
    """What is clipped keeps its direction, which is all that the cosine looks at."""

    def recovered(uplink: Any, **how: Any) -> float:
        return figures(corpus([5], seed=3), [{"gradient_inversion": ATTACK | how}], uplink=uplink)[
            "inversion_public_f1"
        ]

    assert recovered([{"clip": {"norm": 0.01}}], distance="cosine") > 0.9
    slightly, hugely = (recovered([{"gaussian": {"sigma": sigma}}]) for sigma in (1e-4, 10))
    assert hugely < 0.4 < slightly


@pytest.mark.parametrize("how", [{"labels": "inferred"}, {"labels": "optimised"}, {"lengths": "longest"}])
def test_labels_and_lengths_need_not_be_known(how: Any) -> None:
    """The corpus's texts may have 9 words."""
    found = figures(corpus([8], seed=3), [{"gradient_inversion": {"steps": 40} | how}])
    assert found["inversion_public_recall"] > 0.4 > found["inversion_unrelated_recall"]


def test_an_attack_is_bounded_and_takes_the_rounds_and_clients_that_it_names() -> None:
    attack = {"steps": 2, "texts": 2, "clients": 2, "rounds": [2]}
    changes: dict[str, Any] = {"training": ONE_STEP | {"rounds": 3}, "participation": {"fraction": 0.6}}
    made = finished(corpus([3, 3, 3, 3], clients=5), [{"gradient_inversion": attack}], **changes)
    assert ["inversion_distance" in row["metrics"] for row in made.rows] == [False, True, False]
    attacked = [name for name, read in made.rows[1]["clients"].items() if "inversion_distance" in read]
    assert attacked == [f"client{client}" for client in made._sample(2)[:2]]
    assert made.rows[1]["metrics"]["inversion_public_recall"] <= 0.75  # two of four texts, and words that they share


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
    found = figures(texts, ["label_leakage"], model=model)
    assert found["label_l1"] < 0.1 < 0.25 < found["label_l1_uniform"]
    assert found["label_top"] == 1


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


@pytest.mark.parametrize("method", ["fedavg", "fedper", "kteps", "pfl_da", "fedprox"])
def test_nothing_that_is_trained_sent_or_drawn_is_changed(method: str) -> None:
    audits = [audit for audit in ALL if method != "fedper" or audit not in ("label_leakage", "membership")]
    changes: dict[str, Any] = {"training": ONE_STEP | {"rounds": 2, "batch_size": 2}, "model": MODEL | {"dropout": 0.3}}
    texts = corpus([3, 5, 4], clients=3)
    state = torch.get_rng_state()
    with_, without = (finished(texts, chosen, method=method, **changes) for chosen in (audits, []))
    assert torch.equal(state, torch.get_rng_state())
    assert with_.flat.tobytes() == without.flat.tobytes()
    for row, other in zip(with_.rows, without.rows, strict=True):
        assert set(other["metrics"]) <= set(row["metrics"])
        same = [name for name in other["metrics"] if not name.endswith("seconds")]
        assert [row["metrics"][name] for name in same] == [other["metrics"][name] for name in same]
    declared = {name for audit in with_.experiment.audits for name in audit.metrics}
    assert set(with_.rows[-1]["metrics"]) - set(without.rows[-1]["metrics"]) <= declared


REFUSED: list[tuple[str, Any, dict[str, Any], str]] = [
    ("local_only", "gradient_inversion", {}, "method local_only sends none: leave it out"),
    ("fedavg", "gradient_inversion", {"model": BAG}, "model bag does not do: use embedding_rows"),
    ("fedmmd", "gradient_inversion", {}, "features that are frozen"),
    (
        "fedper",
        {"gradient_inversion": {"labels": "inferred"}},
        {},
        "reads the output layer's update, and method fedper",
    ),
    ("pfl_da", {"gradient_inversion": {"labels": "optimised"}}, {}, "takes no probabilities for labels: use known"),
    ("fedavg", {"gradient_inversion": {"rounds": [1, 9]}}, {}, "there is no round 9 in 2"),
    ("fedavg", {"gradient_inversion": {"rounds": [1]}}, {"evaluation": {"every": 2}}, "round 1 is not evaluated"),
    ("fedavg", {"gradient_inversion": {"texts": 0}}, {}, "greater than or equal to 1"),
    ("local_only", "embedding_rows", {}, "embedding_rows is about the embedding, and method local_only shares none"),
    ("fedper", "label_leakage", {}, "method fedper sends none: leave it out"),
    ("fedper", "membership", {}, "method fedper shares none whole: leave it out"),
    ("local_only", "membership", {}, "method local_only shares none whole: leave it out"),
]


@pytest.mark.parametrize(("method", "audit", "changes", "sentence"), REFUSED)
def test_what_finds_nothing_is_refused(method: str, audit: Any, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        tiny.experiment(method, audits=[audit], **changes)


@pytest.mark.parametrize("audit", ["gradient_inversion", "label_leakage", "membership"])
def test_of_a_language_model_there_are_no_classes(audit: str) -> None:
    with pytest.raises(ValueError, match="gru_lm"):
        tiny.language_model(audits=[audit])


def test_the_rows_of_a_language_model() -> None:
    """Without tied weights only rows of the words that were read move."""
    texts, experiment = tiny.language_corpus(), tiny.language_model(tied=False, audits=["embedding_rows"])
    shared, private = initial(experiment, texts)
    *_, row = Federation(experiment, shared, LocalFleet(experiment, texts, private), None).run()
    assert (row["metrics"]["rows_precision"], row["metrics"]["rows_recall"]) == (1, 1)
