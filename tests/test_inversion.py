"""Inversion of gradients: what it recovers of texts, and how that is counted."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedtext.audits.base import Turn, Words
from fedtext.audits.decoding import decoded, exchangeable
from fedtext.audits.first_layer import FirstLayer, everywhere, first_layer
from fedtext.audits.gradient_inversion import FILE
from fedtext.audits.gradients import local_steps, mean_gradient, step_weight
from fedtext.audits.matching import Client, Search, distance
from fedtext.audits.recovery import Pairing, paired
from fedtext.corpora.vectors import source_of
from fedtext.errors import UserError
from fedtext.models.config import TABLE, TransformerClassifier
from fedtext.models.transformer import TransformerEncoder
from fedtext.training.batches import part
from fedtext.training.config import SGD
from tests import tiny
from tests.checkpoints import SCRATCH
from tests.leaking import MODEL, ONE_STEP, VOCABULARY, corpus, figures, finished

RECURRENT = "encoder.rnn.weight_ih_l0_reverse"
ATTACK: dict[str, Any] = {"steps": 40, "restarts": 2}


def test_figures_by_hand() -> None:
    """Two texts, of which the second one has a word twice, an unknown word, and nothing of it at its place."""
    names = ["<pad>", "<unk>", "on", "may", "7th", "at", "5", "pm"]
    text, other = np.array([2, 3, 4, 5, 6]), np.array([7, 7, 1, 6])
    found = [np.array([2, 3, 5, 4, 0]), np.array([6, 7, 3, 2])]
    pairing = Pairing([text, other], found, np.concatenate(found))
    values = pairing.figures(Words(names, {}), digits=True)
    assert values == {
        "precision": pytest.approx((1 + 2 / 4) / 2),  # four words of the first, all right; <pad> is none
        "recall": pytest.approx((4 / 5 + 3 / 3) / 2),
        "f1": pytest.approx(2 * 0.75 * 0.9 / 1.65),
        "exact": pytest.approx((2 / 5 + 1 / 3) / 2),
        "ptlr": 1,  # 7th, 5, 5: of the first text's 5 it counts that it is found, though in the other text
        "ptlr_exact": 0,
    }
    assert "ptlr" not in pairing.figures(Words(names, {}), digits=False)

    def of(text: list[int], found: list[int]) -> Mapping[str, float]:
        return Pairing([np.array(text)], [np.array(found)], np.array(found)).figures(Words(names, {}), digits=True)

    assert "ptlr" not in of([2, 3], [4, 6])
    assert of([1], [2]) == {}


def test_a_number_leaks_in_whichever_text_it_is_found() -> None:
    names = ["<pad>", "<unk>", "on", "may", "7th", "at", "pm", "5"]
    texts = [np.array([2, 3, 4]), np.array([5, 6, 7])]  # on may 7th; at pm 5
    crossed = paired(texts, [np.array([2, 3, 7]), np.array([5, 6, 4])], np.array([0, 1]), None)
    values = crossed.figures(Words(names, {}), digits=True)
    assert values["ptlr"] == 1
    assert values["ptlr_exact"] == 0
    assert values["recall"] == pytest.approx(2 / 3)
    left = paired(texts, [np.array([5, 4, 4])], np.array([0, 1]), np.array([0]))  # nothing is left for the second
    assert left.figures(Words(names, {}), digits=True)["ptlr"] == 0.5


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


@pytest.mark.parametrize("schedule", ["constant", "linear"])
@pytest.mark.parametrize("momentum", [0, 0.9])
@pytest.mark.parametrize(
    ("lengths", "size", "epochs"), [([6], 8, 1), ([4, 6, 3], 8, 1), ([4, 6, 3], 1, 1), ([6], 8, 3)]
)
def test_the_true_vectors_explain_what_was_received(
    lengths: list[int], size: int, epochs: int, momentum: float, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one step and of several, played through in the order in which they were made."""
    monkeypatch.setattr("fedtext.audits.gradient_inversion.Inversion.figures", lambda self, shared: {})
    # an attacker's dummies do not move either
    optimizer = {"lr": 0.1, "momentum": momentum, "embedding_lr": 0, "schedule": schedule}
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
        size,
        [config.lr * config.slope(step, steps) for step in range(steps)],
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


@pytest.mark.parametrize("span", [True, False])
def test_the_true_table_names_the_words_and_an_unrelated_one_does_not(span: bool) -> None:
    texts, attack = corpus([4], seed=3), {"steps": 80, "restarts": 3, "span": span}
    made = finished(texts, [{"gradient_inversion": attack}])
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
    again = figures(texts, [{"gradient_inversion": attack}])
    assert {name: again[name] for name in found if name.startswith("inv")} == {
        name: value for name, value in found.items() if name.startswith("inv")
    }


def test_a_private_table_hides_nothing_unless_nobody_knows_where_it_began() -> None:
    """FedeVocab with the start that all share, and with one that each client draws for itself."""
    texts, attack = corpus([4], seed=3), {"steps": 80, "restarts": 3}
    for own, hidden in ((None, False), ({"words": "all"}, True)):
        model = MODEL | {"embedding": {"dim": 8, "own": own}}
        found = figures(texts, [{"gradient_inversion": attack}], method="fedevocab", model=model)
        assert found["inversion_true_f1"] > 0.9
        assert (found["inversion_public_f1"] < 0.4) == hidden
        assert (found["inversion_public_f1"] > 0.9) == (not hidden)


def test_of_several_sources_the_attacker_takes_the_one_that_the_vectors_come_from() -> None:
    sources = {"each": {"sources": [{"random": {"std": 1.0}}, {"random": {"std": 1.0}}]}}
    model = MODEL | {"embedding": {"dim": 8, "init": sources}}
    table_VD = np.random.default_rng(0).standard_normal((2, len(VOCABULARY), 8), np.float32)
    texts = replace(corpus([4], clients=4, seed=3), table_VD=table_VD)
    assert len({source_of(0, client, 2) for client in range(4)}) == 2
    attack = {"clients": 4}
    for steps in (1, 80):  # the bag is found by linear algebra
        found = figures(texts, [{"gradient_inversion": attack | {"steps": steps}}], method="fedevocab", model=model)
        assert found["inversion_public_f1"] > 0.9, steps


def test_a_row_of_zeros_is_not_what_is_near_to_all_that_is_small() -> None:
    """<unk> has one where nothing trains it."""
    table_VD = np.eye(4, 8, dtype=np.float32)
    table_VD[1] = 0
    small = [table_VD[[2, 3]] * 0.4, table_VD[[3]] * 0.4]
    words = Words(["<pad>", "<unk>", "a", "b"], {})
    found, (*_, far) = decoded(small, table_VD, words, everywhere(8), torch.tensor([2, 1]))
    assert [rows.tolist() for rows in found] == [[2, 3], [3]]
    assert far == pytest.approx(0.6)


def test_an_attack_is_on_the_texts_that_made_the_update() -> None:
    """Of FedRecon these are one half, on which two texts of four are found; the other half sends nothing."""
    texts = corpus([4, 5, 3, 4])
    made = finished(texts, [{"gradient_inversion": {"steps": 5, "texts": 4}}], method="fedrecon")
    data, report = texts.clients[0], made.rows[-1]["files"][FILE]
    last = made.experiment.method.phases(1)[-1]
    names = [VOCABULARY[row] for row in data.rows_R[data.train.tokens_T]]
    sent = [names[data.train.offsets[n] : data.train.offsets[n + 1]] for n in part(4, last.texts, 0, 0)]
    assert [f"| original | {' '.join(text)} |" in report for text in sent] == [True, True]
    assert report.count("| original |") == 2


def test_directions_are_those_of_the_words_and_single_them_out() -> None:
    """Three words occur; their part of a layer's update is a combination of them, and so is no other word."""
    rng = np.random.default_rng(0)
    table_VD = torch.from_numpy(rng.standard_normal((40, 8), np.float32))
    update = torch.from_numpy(rng.standard_normal((12, 3), np.float32)) @ table_VD[[3, 7, 11]]

    def layer(update: torch.Tensor, name: str = RECURRENT, read: int = 5, squashed: bool = False) -> FirstLayer:
        return first_layer({name: update}, {}, read, 8, squashed)

    def found(layer: FirstLayer, most: int = 5) -> list[int]:
        return torch.nonzero(layer.within(table_VD, [most])[0][0]).flatten().tolist()

    assert layer(update).basis_SD.shape == layer(update, squashed=True).basis_SD.shape == (3, 8)
    assert found(layer(update)) == [3, 7, 11]
    assert len(found(layer(update), 2)) == 2
    table_VD[5] = 0
    assert found(layer(update)) == [3, 7, 11]
    noisy = update + torch.from_numpy(rng.standard_normal((12, 8), np.float32))
    assert len(found(layer(noisy))) == 40
    few = layer(update[:4])  # rows, which cannot span five words
    for nothing in (layer(update, "head.0.weight"), layer(update, read=8), few, everywhere(8)):
        assert torch.equal(nothing.basis_SD, torch.eye(8))
        assert len(found(nothing)) == 40


def test_of_encoders_that_read_differently_or_of_signs_nothing_is_known() -> None:
    query = "layers.layer.0.attention.self.query.weight"
    block = {"position_embeddings.weight": (4, 8), "LayerNorm.weight": (8,), "LayerNorm.bias": (8,)}
    parameters = {f"encoder.embeddings.{name}": torch.ones(shape) for name, shape in block.items()}
    target = {f"encoder.{query}": torch.randn(8, 3) @ torch.randn(3, 8)}
    assert first_layer(target, parameters, 3, 8, False).places
    assert not first_layer(target, parameters, 3, 8, True).places
    assert not first_layer(target | {f"other.{query}": torch.randn(8, 8)}, parameters, 3, 8, False).places


def transformer(architecture: str = "bert", std: float = 1.0, dropout: float = 0.0, **embedding: Any) -> dict[str, Any]:
    shape = {"architecture": architecture, "layers": 2, "heads": 2, "intermediate": 24, "positions": 12}
    words = {"dim": 48, "init": {"random": {"std": std}}} | embedding
    return {"name": "transformer", "embedding": words, "head": {"hidden": 8}, "dropout": dropout} | shape


def read(model: dict[str, Any], sizes: list[int], seed: int, method: Any = "fedavg", **how: Any) -> dict[str, float]:
    """What an attack without search reads: hence by linear algebra, and by exchanging. Too small a step is lost in
    float32's rounding."""
    training = ONE_STEP | {"optimizer": {"lr": 1.0, "momentum": 0}}
    attack = [{"gradient_inversion": {"steps": 1} | how}]
    found = figures(corpus(sizes, seed=seed), attack, model=model, method=method, training=training)
    return {name.removeprefix("inversion_"): value for name, value in found.items() if name.startswith("inversion_")}


@pytest.mark.parametrize(("architecture", "std"), [("bert", 1.0), ("distilbert", 0.3)])
def test_a_transformer_tells_which_words_stand_where(architecture: str, std: float) -> None:
    """Of a text alone all of them at their places; of two which words stand at a place in either, and by exchanging in
    which."""
    model = transformer(architecture, std)
    alone = read(model, [7], 3)
    assert [alone[f"public_{name}"] for name in ("f1", "exact", "ptlr_exact")] == [1, 1, 1]
    assert alone["unrelated_exact"] < 0.4
    kept, swapped = read(model, [7, 5], 7, swaps=0), read(model, [7, 5], 7)
    assert kept["public_ptlr"] == swapped["public_ptlr"] == 1
    assert kept["public_exact"] < 0.7
    assert swapped["public_exact"] == 1


def test_a_table_kept_at_the_client_hides_a_transformers_words_only_if_it_began_there() -> None:
    training = {"training": ONE_STEP, "method": "fedevocab"}
    attack = [{"gradient_inversion": {"steps": 1}}]
    found = figures(corpus([7], seed=3), attack, model=transformer(), **training)
    assert found["inversion_public_exact"] == 1
    drawn = figures(corpus([7], seed=3), attack, model=transformer(own={"words": "all"}), **training)
    assert drawn["inversion_true_exact"] == 1 > 0.4 > drawn["inversion_public_exact"]


def test_words_that_lie_a_little_outside_are_found_where_they_lie_farthest_inside() -> None:
    """With dropout, with positions that were trained at the client, and a word that stands twice in a text."""
    assert read(transformer(dropout=0.1), [7], 4)["public_precision"] == 1
    assert read(transformer(dropout=0.1), [7], 4)["public_recall"] > 0.7
    assert read(transformer(), [7], 4, {"name": "fedevocab", "keeps": "block"})["public_exact"] == 1
    assert read(transformer(), [7, 5], 4)["public_exact"] == 1


def test_who_has_the_clients_own_table_is_no_worse_off() -> None:
    """Here its rows have moved far in training, and the public ones explain the update."""
    found = read(transformer(std=0.06), [7, 5], 4)
    assert found["true_exact"] == found["public_exact"] > 0.6


def test_a_search_in_a_transformers_directions_explains_the_update() -> None:
    assert read(transformer(), [5], 3)["distance"] > 0.1
    assert read(transformer(), [5], 3, steps=40)["distance"] < 0.01


def test_where_lengths_are_not_known_a_transformers_words_still_are() -> None:
    assert read(transformer(), [7], 3, lengths="longest")["public_recall"] == 1


def test_words_are_exchanged_until_nothing_is_better_or_the_tries_are_spent() -> None:
    """Of three texts, two of which begin with the same word. The client's gradient is here the words themselves."""

    class Plain:
        shared = ("words",)
        calls = 0

        def gradient(self, words_MD: torch.Tensor, lengths_B: torch.Tensor, labels_B: torch.Tensor) -> Any:
            self.calls += 1
            return [words_MD]

    table_VD, rows_M = torch.eye(4), torch.tensor([1, 1, 2, 3])
    goal = {"words": table_VD[[2, 3, 1, 1]]}
    pairs_P2 = exchangeable([rows_M.numpy()[[n]] for n in range(4)], 1)
    assert len(pairs_P2) == 6
    for seed in range(20):
        client: Any = Plain()
        rest = torch.ones(4), torch.zeros(4), table_VD, rows_M, pairs_P2, np.random.default_rng(seed)
        assert Search(swaps=100).arranged(client, goal, *rest).tolist() == [2, 3, 1, 1]
        assert Search(swaps=0).arranged(client, goal, *rest).tolist() == rows_M.tolist()
        client = Plain()
        Search(swaps=2).arranged(client, goal, *rest)
        assert client.calls == 3


def test_words_are_exchanged_between_texts_at_the_same_place() -> None:
    found = [np.array([4, 5, 6]), np.array([4, 7]), np.array([8])]
    assert exchangeable(found, 3).tolist() == [[0, 3], [0, 6], [1, 4], [3, 6]]
    assert exchangeable(found[:1], 3).shape == (0, 2)


def test_what_a_transformer_reads_is_a_word_at_a_place() -> None:
    """As its own embedding block makes it of a word's vector; and back."""
    config = TransformerClassifier.model_validate(SCRATCH | {"architecture": "bert", "dropout": 0})
    torch.manual_seed(0)
    encoder = TransformerEncoder(config)
    block = encoder.embeddings
    torch.nn.init.normal_(block.LayerNorm.weight)
    torch.nn.init.normal_(block.LayerNorm.bias)
    parameters = {f"encoder.{name}": tensor.detach() for name, tensor in encoder.named_parameters()}
    query = "encoder.layers.layer.0.attention.self.query.weight"
    layer = first_layer({query: parameters[query]}, parameters, 3, 8, False)
    words_BTD = torch.randn(2, 5, 8)
    read_BTD = block(inputs_embeds=words_BTD).detach()
    for place in range(5):
        torch.testing.assert_close(layer.inputs(words_BTD[:, place], place), read_BTD[:, place])
    places_M = torch.arange(5).repeat(2)
    torch.testing.assert_close(layer.inputs(words_BTD.flatten(0, 1), places_M), read_BTD.flatten(0, 1))
    again_MD = layer.words(read_BTD.flatten(0, 1), places_M).view(2, 5, 8)
    torch.testing.assert_close(block(inputs_embeds=again_MD).detach(), read_BTD)


def test_noise_and_clipping_stand_between_all_and_nothing() -> None:
    """What is clipped keeps its direction, which is all that the cosine looks at."""

    def recovered(uplink: Any, **how: Any) -> float:
        return figures(corpus([5], seed=3), [{"gradient_inversion": ATTACK | how}], uplink=uplink)[
            "inversion_public_f1"
        ]

    assert recovered([{"clip": {"norm": 0.01}}], distance="cosine") > 0.9
    slightly, hugely = (recovered([{"gaussian": {"sigma": sigma}}]) for sigma in (1e-4, 10))
    assert hugely < 0.4 < slightly


def test_the_unrelated_table_may_be_a_file(tmp_path: Path) -> None:
    """Of the public table's own rows: then it is not unrelated at all."""
    texts, path = corpus([4], seed=3), tmp_path / "vectors.npz"
    made = finished(texts, [{"gradient_inversion": ATTACK}])
    public = made.layout.views(made.before)[TABLE]
    np.savez(path, words=VOCABULARY, vectors=public)
    found = figures(texts, [{"gradient_inversion": ATTACK | {"unrelated": str(path)}}])
    assert found["inversion_unrelated_f1"] == found["inversion_public_f1"] > 0.9
    with pytest.raises(UserError, match="there is no file elsewhere"):
        figures(texts, [{"gradient_inversion": {"unrelated": "elsewhere"}}])


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
