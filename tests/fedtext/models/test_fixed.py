"""Layers before the first adapted block: they never change, have no dropout, and are computed once for each text."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedtext.api.model import Model
from fedtext.corpora.types import TokenSet
from fedtext.errors import UserError
from fedtext.layout import TABLE
from fedtext.methods import FedAvg
from fedtext.models.adapters import A, B
from fedtext.models.batch import Batch
from fedtext.models.causal import CausalLanguageModel, CausalNetwork
from fedtext.models.parts import Parts, whole
from fedtext.models.transformer import TransformerClassifier, TransformerEncoder
from fedtext.server.trained import trained
from fedtext.testing.runs import check_run
from fedtext.training.batches import Assembler, Texts
from tests import tiny
from tests.checkpoints import SCRATCH
from tests.loops import nonempty

WORDS, LENGTHS_B = 20, torch.tensor([7, 3, 11, 3, 1])
TOKENS_BT = torch.randint(0, WORDS, (5, 11), generator=torch.manual_seed(0))
BATCH = Batch(TOKENS_BT, LENGTHS_B, torch.zeros(5, dtype=torch.long))
LAST, HEAD = {"lora": {"rank": 2, "blocks": 1}}, {"lora": None}
LATE = {"personalize": None, "every": 2}
CAUSAL = {"name": "causal", "embedding": {"dim": 8}, "layers": 2, "heads": 2, "positions": 20}


def classifier(adapter: Any, **changes: Any) -> Any:
    """A classifier whose factors are not zero."""
    config = TransformerClassifier.model_validate(SCRATCH | {"dropout": 0.0, "adapter": adapter} | changes)
    torch.manual_seed(5)
    return _moved(FedAvg().network(Parts(config, 2)))


def causal(adapter: Any, **changes: Any) -> CausalNetwork:
    torch.manual_seed(5)
    config = CausalLanguageModel.model_validate(CAUSAL | {"dropout": 0.0, "adapter": adapter} | changes)
    made = _moved(whole(Parts(config, WORDS)))
    assert isinstance(made, CausalNetwork)
    return made


def _moved(network: Any) -> Any:
    network.embedding = nn.Embedding.from_pretrained(torch.randn(WORDS, 8, generator=torch.manual_seed(1)))
    for tensor in network.parameters():
        tensor.data.add_(torch.randn(tensor.shape, generator=torch.manual_seed(2)), alpha=0.3)
    return network


def features(network: Any, batch: Batch = BATCH) -> Tensor:
    found: Tensor = network.encoder(network.embedding, batch)
    return found


def computed(network: Any) -> list[int]:
    """The list that counts the texts that go through the first block from now on."""
    seen: list[int] = []
    blocks = next(module for module in network.modules() if isinstance(module, nn.ModuleList))
    blocks[0].register_forward_hook(lambda *_: seen.append(1))
    return seen


@pytest.mark.parametrize("adapter", [LAST, HEAD], ids=["last", "head"])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("architecture", ["bert", "distilbert"])
def test_features_are_those_of_the_whole_network(architecture: str, pooling: str, adapter: Any) -> None:
    network = classifier(adapter, architecture=architecture, pooling=pooling)
    stored_BD = features(network)
    network.embedding.weight.requires_grad_()  # nothing is stored then
    whole_BD = features(network)
    assert whole_BD.std(0).min() > 1e-3
    assert torch.allclose(stored_BD, whole_BD, rtol=0, atol=1e-5)


def test_a_causal_model_reads_the_same_states() -> None:
    network = causal(LAST)
    lengths = LENGTHS_B.numpy().clip(2)
    tokens_T = np.random.default_rng(0).integers(0, WORDS, lengths.sum(), np.int32)
    texts = Texts(TokenSet(tokens_T, np.cumsum([0, *lengths]), np.zeros(5, np.int64)), WORDS)
    batch = Assembler(None, cut=False, device=torch.device("cpu"), ahead=True).single(texts, np.arange(5))[0]
    stored = network(batch)
    network.embedding.weight.requires_grad_()
    assert torch.allclose(stored.loss, network(batch).loss, rtol=1e-5)
    assert torch.allclose(stored.nats_S, network(batch).nats_S, rtol=1e-4)


@pytest.mark.parametrize("adapter", [LAST, HEAD], ids=["last", "head"])
def test_a_text_is_computed_once_and_alone(adapter: Any) -> None:
    network = classifier(adapter, dropout=0.3).train()
    seen = computed(network)
    features(network)
    assert len(seen) == len(LENGTHS_B)
    features(network)
    network.eval()
    first_BD = features(network)
    assert len(seen) == len(LENGTHS_B)
    alone = Batch(TOKENS_BT[2:3], LENGTHS_B[2:3], torch.zeros(1, dtype=torch.long))
    if adapter is HEAD:  # with blocks after it, products of other sizes round otherwise
        assert torch.equal(features(network, alone)[0], first_BD[2])
    assert len(seen) == len(LENGTHS_B)
    network.embedding = nn.Embedding.from_pretrained(network.embedding.weight + 1)  # other inputs
    features(network)
    assert len(seen) == 2 * len(LENGTHS_B)


def test_there_is_no_dropout_before_the_adapted_blocks() -> None:
    network = classifier(HEAD, dropout=0.5).train()
    network.encoder.dropout.eval()  # that of the pooled features stays
    assert torch.equal(features(network), features(network.eval()))
    last = classifier(LAST, dropout=0.5).train()
    modes = {name: module.training for name, module in last.encoder.named_modules() if isinstance(module, nn.Dropout)}
    for name, training in nonempty(modes.items()):
        assert training != name.startswith(("embeddings.", "layers.layer.0.")), name


def test_stored_outputs_have_a_limit() -> None:
    row = 8 * 4 / 1e6  # MB of a token
    network = classifier(LAST | {"cache_mb": 11 * row})
    seen = computed(network)
    first_BD = features(network)
    assert torch.equal(features(network), first_BD)
    stored = {tuple(tensor.shape) for tensor in network.encoder.fixed.stored.values()}
    assert stored == {(7, 8), (3, 8), (1, 8)}  # 11 tokens are there; texts of 11 and again of 3 find no place
    assert len(seen) == 5 + 2


@pytest.mark.parametrize("adapter", [LAST, HEAD], ids=["last", "head"])
def test_the_last_blocks_alone_have_factors(adapter: Any) -> None:
    names = {name for name, _ in classifier(adapter).named_parameters()} - {TABLE}
    encoder = {name for name in names if not name.startswith("head.")}
    expected = {f"encoder.layers.layer.1.attention.{part}.{leaf}" for part in ("q_lin", "v_lin") for leaf in (A, B)}
    assert encoder == (expected if adapter is LAST else set())
    assert len(names) > len(encoder)


@pytest.mark.parametrize("adapter", [LAST, HEAD], ids=["last", "head"])
@pytest.mark.parametrize("method", ["fedavg", "kteps"])
def test_a_run_has_the_same_bits_in_any_packing_and_with_any_limit(method: str, adapter: Any) -> None:
    model = SCRATCH | {"dropout": 0.2, "adapter": adapter}
    check_run(tiny.experiment(method, model=model, evaluation=LATE))
    runs, training = [], tiny.TRAINING | {"rounds": 2}
    for limit in (0.0, 0.0005, 256.0):
        limited = SCRATCH | {"dropout": 0.2, "adapter": adapter | {"cache_mb": limit}}
        runs.append(tiny.Finished(method, model=limited, evaluation=LATE, training=training))
    for run in nonempty(runs[1:]):
        assert np.array_equal(run.flat, runs[0].flat)
    encoders = [[m for m in run.worker.network.modules() if isinstance(m, TransformerEncoder)] for run in runs]
    stored = [sum(len(encoder.fixed.stored) for encoder in each if encoder.fixed) for each in encoders]
    assert stored[0] == 0 < stored[1] < stored[2]


def test_more_blocks_than_there_are_is_a_sentence() -> None:
    with pytest.raises(UserError, match=r"model.adapter.lora.blocks is 3, and the model has 2: set it to at most that"):
        classifier({"lora": {"blocks": 3}})


def test_the_output_layer_of_a_tied_model_cannot_be_trained_alone() -> None:
    with pytest.raises(ValueError, match=r"adapter.lora: null trains the output layer alone, which in a tied model"):
        causal(HEAD)
    assert [name for name, _ in causal(HEAD, tied=False).named_parameters()] == [TABLE, "head.weight"]


def test_a_model_that_predicts_stores_nothing() -> None:
    run = tiny.Finished("fedavg", model=SCRATCH | {"adapter": HEAD}, evaluation=LATE)
    model, text = Model(trained(run, tiny.TWO)), " ".join(tiny.TWO.vocabulary[2:5])
    assert model.predict([text]) == model.predict([text])
    modules = [module for bound in model._bound.values() for module in bound.model.network.modules()]
    (fixed,) = (module.fixed for module in modules if isinstance(module, TransformerEncoder))
    assert fixed is not None
    assert fixed.stored == {}
