"""The models of the RR-LDP paper: how many numbers they have, and what they compute."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from fedtext.client.local_fleet import LocalFleet
from fedtext.client.participants import participants
from fedtext.config.experiment import Experiment
from fedtext.corpora.types import TokenSet
from fedtext.errors import UserError
from fedtext.layout import TABLE
from fedtext.methods import METHODS, FedAvg
from fedtext.methods.base import Batch, Model
from fedtext.models.bag import BagClassifier, LogisticClassifier
from fedtext.models.output import two_logits
from fedtext.models.parts import Parts
from fedtext.models.recurrent import RecurrentClassifier
from fedtext.models.vectors import VectorClassifier
from fedtext.parameters import build_network, initial
from fedtext.training.batches import Assembler, Texts
from fedtext.training.token_sets import common, first, sets
from fedtext.wire import encoding
from tests import tiny
from tests.loops import nonempty

CPU = torch.device("cpu")
LSTM = {
    "name": "lstm",
    "embedding": {"dim": 100},
    "hidden": 50,
    "pooling": "last",
    "head": {"hidden": [100, 50, 25]},
    "output": "sigmoid",
}
MODELS: list[dict[str, Any]] = [
    {"name": "logistic"},
    {"name": "bag", "embedding": {"dim": 6}, "hidden": [5, 4], "output": "sigmoid", "values": "counts"},
    {"name": "vectors", "embedding": {"dim": 6}, "hidden": [5], "output": "sigmoid"},
    {"name": "vectors", "embedding": {"dim": 6}, "hidden": [], "pooling": "flat", "words": 3},
    LSTM | {"embedding": {"dim": 6}, "hidden": 5, "head": {"hidden": [5, 4]}},
    {"name": "transformer", "embedding": {"dim": 6}, "layers": 1, "heads": 2, "intermediate": 8, "positions": 9},
]


def named(value: Any) -> str:
    return f"{value['name']}-{value.get('pooling', '')}" if isinstance(value, dict) else str(value)


def numbers(experiment: Experiment, buckets: int) -> int:
    """Those that are shared, with a vocabulary of <pad> and so many buckets."""
    corpus = tiny.corpus(vocabulary=40)
    corpus.vocabulary[:] = ["<pad>", *map(str, range(buckets))]
    return sum(tensor.size for tensor in initial(experiment, corpus)[0].values())


def test_weights_are_as_many_as_the_papers() -> None:
    assert numbers(tiny.experiment(model="logistic"), 5000) == 5_001
    assert numbers(tiny.experiment(model={"name": "bag", "output": "sigmoid"}), 5000) == 506_451
    dense = 50 * 100 + 100 + 100 * 50 + 50 + 50 * 25 + 25 + 25 + 1
    lstm = 4 * 50 * (100 + 50 + 2)  # torch keeps two biases for each gate
    assert numbers(tiny.experiment(model=LSTM), 5000) == 5001 * 100 + lstm + dense
    words = {"name": "vectors", "output": "sigmoid"}
    assert numbers(tiny.experiment(model=words | {"hidden": []}), 5000) == 5000 * 300 + 301


@pytest.mark.parametrize("rows", ["own", "all"])
def test_padding_is_neither_kept_nor_sent(rows: str) -> None:
    corpus = tiny.corpus()
    made = tiny.Finished("fedavg", corpus, model="logistic", wire={"rows": rows}, evaluation={"personalize": None})
    assert made.layout.shapes[TABLE] == (len(corpus.vocabulary) - 1, 1)
    flat, data = made.flat, corpus.clients[0]
    update = encoding.decode(made.worker.train(flat, 3, [0])[0].payload, 0, made.layout.shapes)
    assert update.rows is None if rows == "all" else np.array_equal(update.rows, data.rows_R[1 : data.train_rows] - 1)
    assert len(update.tensors[TABLE]) == (len(corpus.vocabulary) - 1 if rows == "all" else data.train_rows - 1)
    held = [client.rows_R if rows == "own" else corpus.vocabulary for client in corpus.clients]
    shapes = [{TABLE: (len(each) - 1, 1), "encoder.bias": (1,)} for each in held]
    assert made.rows[0].metrics["bytes_down"] == sum(encoding.encoded_size(each) for each in shapes)


def test_one_unit_gives_binary_cross_entropy() -> None:
    unit_B1 = torch.tensor([[-3.0], [0.0], [2.5], [40.0]], dtype=torch.float64, requires_grad=True)
    labels_B = torch.tensor([0, 1, 1, 0])
    loss = cross_entropy(two_logits(unit_B1), labels_B)
    expected = binary_cross_entropy_with_logits(unit_B1[:, 0], labels_B.double())
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    (gradient,) = torch.autograd.grad(loss, unit_B1)
    assert torch.allclose(gradient[:, 0], (unit_B1[:, 0].sigmoid() - labels_B) / 4, rtol=1e-12)
    assert torch.allclose(two_logits(unit_B1).softmax(1)[:, 1], unit_B1[:, 0].sigmoid(), rtol=1e-12)


def test_a_unit_for_two_classes_refuses_three() -> None:
    for config in (LogisticClassifier(), BagClassifier(output="sigmoid"), RecurrentClassifier(output="sigmoid")):
        with pytest.raises(UserError, match="sigmoid is for 2 classes, and the corpus has 3"):
            Parts(config, classes=3)


TEXT = TokenSet(np.array([3, 1, 3, 3, 2, 2, 5], np.int32), np.array([0, 5, 7]), np.array([0, 1]))


def test_what_a_word_counts_for() -> None:
    made = {how: sets(TEXT, 6, how) for how in ("binary", "counts", "shares")}
    for tokens in made.values():
        assert tokens.tokens_T.tolist() == [1, 2, 3, 2, 5]
        assert tokens.offsets.tolist() == [0, 3, 5]
    assert made["binary"].values_T is None
    assert made["counts"].values_T.tolist() == [1, 1, 3, 1, 1]
    assert made["shares"].values_T == pytest.approx([0.2, 0.2, 0.6, 0.5, 0.5])
    given = TokenSet(TEXT.tokens_T, TEXT.offsets, TEXT.labels_N, values_T=np.arange(7, dtype=np.float32))
    assert sets(given, 6).values_T.tolist() == [1, 4, 0, 5, 6]
    assert sets(given, 6, "counts").values_T.tolist() == [1, 4, 0 + 2 + 3, 5, 6]


def test_the_most_common_words_come_first_and_then_those_that_stand_first() -> None:
    assert common(TEXT, 6, 2).tokens_T.tolist() == [3, 1, 2, 5]
    assert common(TEXT, 6, 9).offsets.tolist() == [0, 3, 5]
    assert first(TEXT, 2).tokens_T.tolist() == [3, 1, 2, 5]
    assert first(TEXT, 3).offsets.tolist() == [0, 3, 5]


def through(config: Any, texts: Texts) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The logits of all texts, and the parameters they were made with."""
    torch.manual_seed(0)
    network = FedAvg().network(Parts(config, classes=2)).double()
    drawn = {name: tensor.detach().clone().requires_grad_() for name, tensor in network.named_parameters()}
    drawn[TABLE] = torch.randn(6, config.embedding.dim, dtype=torch.float64, requires_grad=True)
    batch, _ = Assembler(None, False, CPU).single(texts, np.arange(len(texts)))
    return Model(network, drawn)(batch), drawn


def check_gradients(logits_BC: torch.Tensor, expected_BC: torch.Tensor, parameters: dict[str, torch.Tensor]) -> None:
    """Of two ways to the same logits."""
    assert torch.allclose(logits_BC, expected_BC, rtol=1e-9, atol=1e-12)
    weights_BC = torch.arange(1, logits_BC.numel() + 1).view(logits_BC.shape)
    got, expected = (
        torch.autograd.grad((logits * weights_BC).sum(), list(parameters.values()), retain_graph=True)
        for logits in (logits_BC, expected_BC)
    )
    for name, one, other in nonempty(zip(parameters, got, expected, strict=True)):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-12), name


COUNTS = torch.tensor([[0, 1, 1, 3, 0, 0], [0, 0, 1, 0, 0, 1]], dtype=torch.float64)


@pytest.mark.parametrize("values", ["binary", "counts"])
def test_logistic_regression_equals_a_linear_layer(values: Any) -> None:
    config = LogisticClassifier(values=values)
    logits_BC, drawn = through(config, Texts(TEXT, 6, as_sets=True, counting=values))
    dense_BM = COUNTS if values == "counts" else COUNTS.sign()
    check_gradients(logits_BC, two_logits(dense_BM @ drawn[TABLE] + drawn["encoder.bias"]), drawn)


def test_term_frequencies_equal_a_dense_network_on_them() -> None:
    config = BagClassifier.model_validate(MODELS[1])
    logits_BC, drawn = through(config, Texts(TEXT, 6, as_sets=True, counting="counts"))
    features = (COUNTS @ drawn[TABLE] + drawn["encoder.bias"]).relu()
    check_gradients(logits_BC, layered(features, drawn), drawn)


def layered(features: torch.Tensor, drawn: dict[str, torch.Tensor]) -> torch.Tensor:
    """A head of Linear and ReLU in turn, and one unit."""
    layers = len([name for name in drawn if name.startswith("head.")]) // 2
    for layer in range(layers):
        features = nn.functional.linear(features, drawn[f"head.{layer}.weight"], drawn[f"head.{layer}.bias"])
        features = features.relu() if layer < layers - 1 else features
    return two_logits(features)


def test_averaged_vectors_equal_the_mean_over_all_words_of_a_text() -> None:
    config = VectorClassifier.model_validate(MODELS[2])
    logits_BC, drawn = through(config, Texts(TEXT, 6, as_sets=True, counting="shares"))
    shares = (COUNTS / COUNTS.sum(1, keepdim=True)).float().double()
    check_gradients(logits_BC, layered(shares @ drawn[TABLE], drawn), drawn)


def test_flat_vectors_lie_side_by_side_with_zeros_behind() -> None:
    config = VectorClassifier.model_validate(MODELS[3] | {"output": "sigmoid"})
    logits_BC, drawn = through(config, Texts(common(TEXT, 6, 3), 6))
    table = drawn[TABLE]
    flat = torch.stack([torch.cat([table[3], table[1], table[2]]), torch.cat([table[2], table[5], 0 * table[0]])])
    check_gradients(logits_BC, layered(flat, drawn), drawn)
    with pytest.raises(ValidationError, match="flat concatenates `words` vectors"):
        VectorClassifier(pooling="flat")


def test_a_head_of_unequal_widths() -> None:
    config = RecurrentClassifier.model_validate(LSTM)
    assert config.head.layers == 4
    assert RecurrentClassifier.model_validate(config.model_dump()) == config
    head = Parts(config, classes=2).head()
    assert [tuple(layer.weight.shape) for layer in head if isinstance(layer, nn.Linear)] == [
        *((100, 50), (50, 100), (25, 50), (1, 25))
    ]
    with pytest.raises(ValidationError, match=r"layers \(2\) is not the length of hidden \(3\)"):
        RecurrentClassifier.model_validate(LSTM | {"head": {"layers": 2, "hidden": [100, 50, 25]}})


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("model", MODELS, ids=named)
def test_every_method_trains_every_model(model: dict[str, Any], method: str) -> None:
    made = tiny.Finished(method, model=model, evaluation={"personalize": {"steps": 2}})
    assert np.isfinite(made.rows[-1].metrics["loss"])
    nothing = method == "local_only" or (method == "lg_fedavg" and model["name"] == "logistic")  # its head is empty
    assert np.array_equal(made.before, made.flat) == nothing


def test_numbers_that_come_with_tokens_are_for_bags_and_logistic_regression() -> None:
    corpus = tiny.corpus()
    for client in corpus.clients:
        for split in (client.train, client.test):
            object.__setattr__(split, "values_T", np.full(len(split.tokens_T), 0.5, np.float32))
    with pytest.raises(UserError, match="model bigru uses words alone, and corpus tiny has features"):
        participants(tiny.experiment(), corpus)
    halves, ones = (tiny.Finished("fedavg", each, model="logistic") for each in (corpus, tiny.corpus()))
    assert not np.array_equal(halves.flat, ones.flat)


def test_what_a_model_starts_from_is_what_its_client_reads() -> None:
    """Row 0 is <pad>'s where there is padding, and the first word's where there is none."""
    corpus = tiny.corpus()
    for model in ("bigru", "vectors"):
        experiment = tiny.experiment(model={"name": model, "embedding": {"dim": 5}})
        shared, private = initial(experiment, corpus)
        worker = LocalFleet(experiment, corpus, private).worker
        given = np.random.default_rng(0).standard_normal(shared[TABLE].shape).astype(np.float32)
        stack = worker.stack(worker.shared.pack(shared | {TABLE: given}), [1])
        word = corpus.clients[1].rows_R[3]
        place = 3 if model == "bigru" else 2
        assert np.array_equal(stack.tensors(0)[TABLE][place], given[word if model == "bigru" else word - 1])


def test_batches_without_values_bring_none() -> None:
    texts = Texts(TEXT, 6, as_sets=True)
    batch: Batch = Assembler(None, False, CPU).single(texts, np.arange(2))[0]
    assert texts.values_NT is batch.values_BT is None


@pytest.mark.parametrize(
    "model", [{"name": "bag", "embedding": {"dim": 5}, "hidden": [7]}, {"hidden": 4, "head": {"hidden": [6, 3]}}]
)
def test_dense_layers_may_start_in_glorots_way(model: Any) -> None:
    experiment = tiny.experiment(model=model | {"dense_init": "glorot"})
    layers = [m for m in build_network(experiment, 2, 1).modules() if isinstance(m, torch.nn.Linear)]
    assert layers
    for layer in nonempty(layers):
        limit = math.sqrt(6 / sum(layer.weight.shape))
        assert float(layer.weight.detach().abs().max()) <= limit
        assert float(layer.weight.detach().std()) > 0.3 * limit, "uniform's is 0.58 of it"
        assert not layer.bias.any()
    assert any(
        float(m.bias.detach().abs().sum())
        for m in build_network(tiny.experiment(model=model), 2, 1).modules()
        if isinstance(m, torch.nn.Linear)
    )
