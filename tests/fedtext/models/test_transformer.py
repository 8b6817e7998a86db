"""Transformers against the package's own, and in whole rounds."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from fedtext.config.engine import choose_engine, engine_reason, stack_size
from fedtext.corpora.prepare import prepare
from fedtext.layout import TABLE
from fedtext.methods import FedAvg, FedMMD
from fedtext.models.batch import Batch
from fedtext.models.parts import Parts
from fedtext.models.transformer import TransformerClassifier, TransformerEncoder
from fedtext.models.unpadded import Places, attention
from fedtext.runtime.precision import emulates_bfloat16
from tests import tiny
from tests.checkpoints import PIECES, SCRATCH, from_checkpoint
from tests.loops import nonempty

LATE = {"personalize": None, "every": 2}


def encoder_and_table(folder: Path, **changes: Any) -> tuple[TransformerEncoder, torch.nn.Embedding]:
    """In float64 and without dropout, with the checkpoint's own table."""
    network = transformers.AutoModel.from_pretrained(folder)
    encoder = TransformerEncoder(from_checkpoint(folder, **changes)).double().eval()
    return encoder, torch.nn.Embedding.from_pretrained(network.get_input_embeddings().weight.detach().double())


LENGTHS_B = torch.tensor([7, 2, 5])
TOKENS_BT = torch.randint(1, len(PIECES), (3, 7), generator=torch.Generator().manual_seed(0))
TOKENS_BT *= torch.arange(7) < LENGTHS_B[:, None]
BATCH = Batch(TOKENS_BT, LENGTHS_B, torch.tensor([0, 1, 1]))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_features_are_those_of_the_package(checkpoint: Path, pooling: str, attention: str) -> None:
    theirs = transformers.AutoModel.from_pretrained(checkpoint).double().eval()
    mask_BT = (torch.arange(7) < LENGTHS_B[:, None]).long()
    hidden_BTD = theirs(input_ids=TOKENS_BT, attention_mask=mask_BT).last_hidden_state
    each = [hidden[0] if pooling == "cls" else hidden[:n].mean(0) for hidden, n in zip(hidden_BTD, LENGTHS_B)]  # noqa: B905
    encoder, table = encoder_and_table(checkpoint, pooling=pooling, attention=attention)
    features_BD = encoder(table, BATCH)
    assert features_BD.std() > 0.1
    assert torch.allclose(features_BD, torch.stack(each), rtol=0, atol=1e-9)


def test_padding_changes_nothing(checkpoint: Path) -> None:
    """Neither how much of it there is, nor what stands in it."""
    encoder, table = encoder_and_table(checkpoint)
    features_BD = encoder(table, BATCH)
    wider_BT = torch.full((3, 30), 11)
    wider_BT[:, :7] = torch.where(TOKENS_BT > 0, TOKENS_BT, 12)
    assert torch.allclose(encoder(table, Batch(wider_BT, LENGTHS_B, BATCH.labels_B)), features_BD, rtol=0, atol=1e-9)
    alone_1D = encoder(table, Batch(TOKENS_BT[1:2, :2], LENGTHS_B[1:2], BATCH.labels_B[1:2]))
    assert torch.allclose(alone_1D[0], features_BD[1], rtol=0, atol=1e-9)
    other_BT = TOKENS_BT.clone()
    other_BT[0, 6] = 1 + TOKENS_BT[0, 6] % 12  # a token that is read does count
    assert not torch.allclose(encoder(table, Batch(other_BT, LENGTHS_B, BATCH.labels_B))[0], features_BD[0], atol=1e-3)


def test_layers_are_computed_for_the_tokens_alone(checkpoint: Path) -> None:
    encoder, table = encoder_and_table(checkpoint)
    seen: list[torch.Size] = []
    for module in encoder.layers.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(lambda _, given: seen.append(given[0].shape))
    encoder(table, BATCH)
    for shape in nonempty(seen):
        assert shape[:-1] == (1, LENGTHS_B.sum())


def test_only_eager_attention_has_second_derivatives(checkpoint: Path) -> None:
    def curvature(attention: str) -> Tensor:
        encoder, table = encoder_and_table(checkpoint, attention=attention)
        table.weight.requires_grad_()
        (gradient,) = torch.autograd.grad(encoder(table, BATCH).square().sum(), table.weight, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), table.weight)[0]

    assert curvature("eager").abs().sum() > 0
    with pytest.raises(RuntimeError, match=r"derivative for .*scaled_dot_product.* is not implemented"):
        curvature("sdpa")


def test_what_is_private_can_be_told_by_its_name(checkpoint: Path) -> None:
    network = FedAvg().network(Parts(from_checkpoint(checkpoint), 2))
    names = [name for name, _ in network.named_parameters()]
    block = {name for name in names if name.startswith(("embedding.", "encoder.embeddings."))}
    expected = {TABLE, *(f"encoder.embeddings.{leaf}" for leaf in ("position_embeddings.weight", "LayerNorm.weight"))}
    expected |= {"encoder.embeddings.LayerNorm.bias"}
    if "token_type" in " ".join(names):
        expected.add("encoder.embeddings.token_type_embeddings.weight")
    assert block == expected
    assert {name.split(".")[0] for name in names} == {"embedding", "encoder", "head"}
    assert all(nonempty(name.startswith(("encoder.layers.", "head.")) for name in names if name not in block))


def test_it_learns_the_demo_corpus() -> None:
    config = {"name": "demo", "max_length": 40, "clients": 2}
    made = tiny.experiment(corpus=config, model=SCRATCH)
    corpus = prepare(made.corpus, made.model.embedding, 0, None)
    training = {"rounds": 3, "local_epochs": 2, "batch_size": 8, "optimizer": {"name": "adamw", "lr": 0.01}}
    rest = {"model": SCRATCH, "training": training, "evaluation": {"personalize": None, "every": 3}}
    finished = tiny.Finished("fedavg", corpus, **rest)
    losses = [record.metrics["loss"] for record in finished.rows]
    assert losses[2] < 0.8 * losses[0]
    assert finished.rows[-1].metrics["Ag"] > 0.55


def test_dropout_follows_the_seed() -> None:
    def weights(dropout: float) -> np.ndarray:
        return tiny.Finished("fedavg", model=SCRATCH | {"dropout": dropout}, evaluation=LATE).flat

    assert np.array_equal(weights(0.2), weights(0.2))
    assert not np.array_equal(weights(0.2), weights(0.0))


def test_what_was_received_is_a_fixed_point_under_dropout() -> None:
    network = FedMMD().network(Parts(TransformerClassifier.model_validate(SCRATCH | {"dropout": 0.5}), 2)).train()
    batch = Batch(torch.zeros(2, 3, dtype=torch.long), torch.tensor([3, 2]), torch.zeros(2, dtype=torch.long))
    (own, received), (own_again, received_again) = network.features(batch), network.features(batch)
    assert torch.equal(received, received_again)
    assert not torch.equal(own, own_again)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_bfloat16_rounds_products_and_nothing_that_is_kept(checkpoint: Path, attention: str) -> None:
    """Both features and gradients are float32, and near those of exact products."""

    def made(precision: str) -> tuple[Tensor, Tensor]:
        encoder, table = encoder_and_table(checkpoint, attention=attention, precision=precision)
        encoder, table = encoder.float(), table.float()
        table.weight.requires_grad_()
        features_BD = encoder(table, BATCH)
        (features_BD * torch.linspace(-1, 1, features_BD.numel()).view_as(features_BD)).sum().backward()
        assert table.weight.grad is not None
        return features_BD.detach(), table.weight.grad

    for exact, rounded in nonempty(zip(made("float32"), made("bfloat16"), strict=True)):
        assert exact.dtype == rounded.dtype == torch.float32
        assert 2**-12 < (rounded - exact).norm() / exact.norm() < 2**-3


@pytest.mark.parametrize("together", [True, False], ids=["places", "one length"])
def test_on_a_cpu_attention_in_bfloat16_rounds_its_output_alone(together: bool) -> None:
    """What lies between queries and outputs is float32, also within autocast."""
    places = Places.of(LENGTHS_B.numpy(), 7, torch.device("cpu"))
    drawn = torch.randn(3, 3, 2, 7, 4, generator=torch.Generator().manual_seed(3)).bfloat16()
    mask = places.there_BT[:, None, None] if together else None
    exact_BNTA = scaled_dot_product_attention(*drawn.float(), attn_mask=mask)
    given = [places.taken(part.transpose(1, 2).flatten(2)) for part in drawn] if together else drawn
    if together:
        given = [part_SK.unflatten(1, (2, 4)).transpose(0, 1)[None] for part_SK in given]
    with torch.autocast("cpu", torch.bfloat16):
        found, _ = attention(None, *given, None, places=places if together else None)
    expected = exact_BNTA.bfloat16().transpose(1, 2)
    if together:
        expected = places.taken(expected.flatten(2)).unflatten(1, (2, 4))[None]
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, expected)


def test_rounds_in_bfloat16_stay_near_exact_ones() -> None:
    exact, rounded = (
        tiny.Finished("fedavg", model=SCRATCH | {"precision": precision, "dropout": 0}, evaluation=LATE)
        for precision in ("float32", "bfloat16")
    )
    assert rounded.flat.dtype == np.float32
    assert not np.array_equal(exact.flat, rounded.flat)
    assert rounded.rows[-1].metrics["loss"] == pytest.approx(exact.rows[-1].metrics["loss"], rel=0.02)


def test_its_engine_and_stack_say_why() -> None:
    experiment = tiny.configured(model=SCRATCH)
    assert engine_reason(experiment) == "engine reference: the layers of torch"
    chosen = choose_engine(experiment, gpu=False, problem="")
    assert engine_reason(chosen) == "engine native: the attention of a transformer in C, equal to torch's to rounding"
    adapted = choose_engine(tiny.experiment(model=SCRATCH | {"adapter": {}}), gpu=False, problem="")
    assert "engine native: the blocks of a transformer in C" in engine_reason(adapted)
    assert stack_size(experiment, 1000) == (
        1,
        "clients one by one: the layers of a transformer fill a core by themselves",
    )


@pytest.mark.parametrize("emulated", [True, False])
def test_bfloat16_that_the_processor_lacks_is_said_where_torch_computes_in_it(
    monkeypatch: pytest.MonkeyPatch, emulated: bool
) -> None:
    monkeypatch.setattr("fedtext.config.engine.emulates_bfloat16", lambda: emulated)
    rounded, exact, adapted = (
        choose_engine(tiny.configured(model=SCRATCH | more), gpu=False, problem="")
        for more in ({"precision": "bfloat16"}, {}, {"precision": "bfloat16", "adapter": {}})
    )
    assert ("much slower than float32 on this machine" in engine_reason(rounded)) == emulated
    assert "slower" not in engine_reason(exact) + engine_reason(adapted)


def test_products_in_bfloat16_are_emulated_where_the_processor_has_no_instructions_for_them() -> None:
    flags = set(Path("/proc/cpuinfo").read_text().split()) if Path("/proc/cpuinfo").exists() else set[str]()
    if "avx2" not in flags:
        pytest.skip("the flags of this processor are not known")
    has = {"avx512bw", "avx512vl", "avx512dq"} <= flags or "avx_ne_convert" in flags
    assert emulates_bfloat16() != has
