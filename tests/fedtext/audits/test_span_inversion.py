"""What the spans of a transformer's layers disclose of whole batches of texts, and what they do not."""

import atexit
import math
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from fedtext.audits.first_attention import FirstLayers, named
from fedtext.audits.span_inversion import FILE
from fedtext.audits.span_search import Found, _orders, accepted, unlike
from fedtext.audits.spans import Span, deviation, largest, span
from fedtext.mechanisms import Clip, Gaussian, Quantize
from fedtext.models.batch import Batch
from fedtext.models.transformer import TransformerClassifier, TransformerEncoder
from tests import tiny
from tests.checkpoints import SCRATCH, from_checkpoint, saved
from tests.leaking import ONE_STEP, corpus, finished


@cache
def checkpoint(width: int, architecture: str = "bert") -> str:
    """The folder of a transformer whose weights are as large as those of trained ones, so that attention matters."""
    names = {
        "bert": ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
        "distilbert": ("dim", "n_layers", "n_heads", "hidden_dim"),
    }[architecture]
    sizes = dict(zip(names, (width, 2, 4, 4 * width), strict=True))
    torch.manual_seed(3)
    config = transformers.AutoConfig.for_model(
        architecture, **sizes, vocab_size=1, max_position_embeddings=12, initializer_range=0.1
    )
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    transformers.AutoModel.from_config(config).save_pretrained(folder)
    return folder


def model(width: int, architecture: str = "bert") -> dict[str, Any]:
    words = {"dim": width, "init": {"random": {"std": 0.1}}}
    weights = {"checkpoint": checkpoint(width, architecture), "dropout": 0.0}
    return {"name": "transformer", "embedding": words, "head": {"layers": 1}} | weights


def attacked(
    lengths: list[int], width: int, training: dict[str, Any] | None = None, audit: Any = None, **changes: Any
) -> tiny.Finished:
    one = ONE_STEP | {"batch_size": len(lengths), "engine": "reference"}
    steps = one | {"optimizer": {"lr": 1.0, "momentum": 0}} | (training or {})
    sections = {"model": model(width), "training": steps} | changes
    return finished(corpus(lengths, seed=3), [{"span_inversion": audit or {}}], **sections)


def found(*given: Any, **changes: Any) -> dict[str, float]:
    metrics = attacked(*given, **changes).rows[-1].metrics
    return {name.removeprefix("span_"): value for name, value in metrics.items() if name.startswith("span_")}


def test_a_span_has_the_directions_that_noise_does_not_explain() -> None:
    """Three inputs in noise of a known size, and noise alone."""
    rng = np.random.default_rng(0)
    inputs_MD = torch.from_numpy(rng.standard_normal((3, 40)))
    update = torch.from_numpy(rng.standard_normal((60, 3))) @ inputs_MD
    noise = torch.from_numpy(rng.standard_normal((60, 40)))
    exact, noisy, nothing = span(update, 0.0, 9), span(update + 0.01 * noise, 0.01, 99), span(noise, 1.0, 99)
    assert (exact.rank, noisy.rank, nothing.rank) == (3, 3, 0)
    assert (exact.free, nothing.free) == (37 / 40, 1)
    other_D = torch.from_numpy(rng.standard_normal(40)).float()
    inside, outside = noisy.outside(inputs_MD.float()), noisy.outside(other_D)
    assert float(exact.outside(inputs_MD.float()).max()) < 1e-5
    assert 1e-4 < float(inside.max()) < 0.05 < 0.9 < float(outside) < 1
    assert nothing.outside(other_D) == pytest.approx(1, abs=1e-5)
    assert exact.outside(torch.zeros(40)) == 1
    left = other_D.double() - torch.linalg.lstsq(inputs_MD.T, other_D.double()[:, None]).solution.T[0] @ inputs_MD
    assert float(exact.outside(other_D)) == pytest.approx(float(left.norm() / other_D.norm()), rel=1e-4)


def test_shares_far_above_a_limit_are_estimated() -> None:
    """Of 2,000 vectors, a tenth of which lie near the span."""
    rng = np.random.default_rng(0)
    one = span(torch.from_numpy(rng.standard_normal((400, 20)) @ rng.standard_normal((20, 300))), 0.0, 20)
    inside_MD = rng.standard_normal((200, 400)) @ rng.standard_normal((400, 300))
    vectors_MD = torch.from_numpy(rng.standard_normal((2000, 300)))
    inside = torch.linalg.svd(one.tests_SD.double())[2][len(one.tests_SD) :]
    vectors_MD[:200] = torch.from_numpy(inside_MD) @ inside.T @ inside + 0.3 * vectors_MD[:200]
    exact_M, near_M = one.outside(vectors_MD.float()), one.near(vectors_MD.float(), 0.4)
    low_M = exact_M < 0.4
    assert low_M.sum() == 200
    torch.testing.assert_close(near_M[low_M], exact_M[low_M])
    assert near_M[~low_M].min() > 0.4
    assert not torch.equal(near_M, exact_M)
    assert (near_M / exact_M - 1).abs().max() < 0.5
    assert torch.equal(one.near(vectors_MD.float(), 9.0), exact_M)


def test_the_edge_of_noise_by_draws() -> None:
    """Of 300 matrices about three have a larger singular value."""
    rng = np.random.default_rng(0)
    over = sum(np.linalg.svd(rng.standard_normal((60, 40)), compute_uv=False)[0] > largest(60, 40) for _ in range(300))
    assert 0 < over < 12


def test_noise_of_an_unknown_source_is_what_lies_behind_as_many_directions_as_inputs() -> None:
    rng = np.random.default_rng(0)
    update = torch.from_numpy(rng.standard_normal((60, 3)) @ rng.standard_normal((3, 40)))
    noisy = update + 0.01 * torch.from_numpy(rng.standard_normal((60, 40)))
    assert span(noisy, 0.0, 3).rank == 3
    assert span(noisy, 0.0, 99).rank == 40


def test_rounding_of_weights_is_noise_of_a_known_size() -> None:
    """An update of rank 5 that was added to weights in float32, and subtracted again."""
    rng = np.random.default_rng(0)
    weights = torch.from_numpy(rng.standard_normal((90, 30), np.float32))
    step = 1e-3 * torch.from_numpy(rng.standard_normal((90, 5), np.float32) @ rng.standard_normal((5, 30), np.float32))
    update = (weights + step) - weights
    std = deviation([update], [weights], 1, [])
    assert std == pytest.approx(float((update - step).std()), rel=0.1)
    assert std == pytest.approx(deviation([update], [weights], 4, []) / 2)
    assert span(update, std, 99).rank == 5
    assert span(update, std / 3, 99).rank > 5
    assert span(update, std, 99).outside(step).max() < 1e-3


def test_mechanisms_say_what_noise_they_add() -> None:
    ones = torch.ones(3, 4)
    assert deviation([ones], [ones], 1, [Gaussian(sigma=3), Gaussian(sigma=4)]) == pytest.approx(5)
    assert deviation([ones], [ones], 1, [Clip()]) == pytest.approx(2**-23 / math.sqrt(12))
    assert deviation([7 * ones], [ones], 1, [Quantize()]) == 7


def test_orders_are_exchanges_and_moves() -> None:
    orders = _orders(3).tolist()
    assert sorted(orders) == sorted([[1, 0, 2], [2, 1, 0], [0, 2, 1], [1, 2, 0], [2, 0, 1]])
    assert _orders(1).shape == (0, 1)


def test_texts_are_accepted_far_from_chance_and_listed_once() -> None:
    def text(words: list[int], share: float) -> Found:
        return Found(np.array(words), share, 0.4)

    best, turned, near = text([1, 2, 3, 4], 0.02), text([2, 1, 3, 4], 0.03), text([1, 2, 3, 9], 0.05)
    far, poor = text([1, 2, 3, 8], 0.09), text([5, 6, 7, 8], 0.3)
    assert accepted([best, turned, near, far, poor]) == [best, turned, near, far]
    assert unlike([poor, far, near, turned, best], 9) == [best, near, poor]
    assert unlike([poor, far, turned, best], 9) == [best, poor]
    assert unlike([poor, near, turned, best], 1) == [best]


@pytest.mark.parametrize("architecture", ["bert", "distilbert", "roberta"])
def test_the_attackers_layers_are_the_networks(architecture: str, tmp_path: Path) -> None:
    """What its first attention and its second layer receive, for two texts."""
    if architecture == "roberta":
        config = from_checkpoint(saved(architecture, tmp_path), dropout=0)
    else:
        config = TransformerClassifier.model_validate(SCRATCH | {"architecture": architecture, "dropout": 0})
    torch.manual_seed(0)
    encoder = TransformerEncoder(config).eval()
    for values in encoder.parameters():
        torch.nn.init.normal_(values, std=0.5)
    holder = torch.nn.Module()
    holder.encoder = encoder
    parameters = {name: values.detach() for name, values in holder.named_parameters()}
    names = named(parameters)
    assert names is not None
    assert set(names.reads(1)) < set(parameters)
    seen: dict[str, torch.Tensor] = {}
    for watched in (names.projects, names.reads(1)[0]):
        module = holder.get_submodule(watched.removesuffix(".weight"))
        module.register_forward_pre_hook(lambda _, given, name=watched: seen.update({name: given[0].detach()}))
    words_WD, text_SL = torch.randn(5, 8), torch.tensor([[0, 3, 3, 1], [4, 2, 0, 1]])
    encoder(torch.nn.Embedding.from_pretrained(words_WD), Batch(text_SL, torch.full((2,), 4), torch.zeros(2)))
    layers = FirstLayers(holder, names, parameters, 1)
    inputs_TWD = layers.placed(words_WD, 4)
    read = [tensor[torch.arange(4), text_SL] for tensor in layers.read(inputs_TWD)]
    received = {name: inputs.unflatten(1, (2, 4)).squeeze(0) for name, inputs in seen.items()}  # all texts end to end
    torch.testing.assert_close(layers.attended(read), received[names.projects])
    (shares_ST,) = layers.deeper(inputs_TWD[torch.arange(4), text_SL], [Span(torch.eye(8)[:3], 5)])
    second_STD = received[names.reads(1)[0]]
    torch.testing.assert_close(shares_ST, second_STD[..., :3].norm(dim=-1) / second_STD.norm(dim=-1))


@pytest.mark.parametrize(("texts", "width"), [(6, 96), pytest.param(16, 192, marks=pytest.mark.slow)])
def test_a_batch_of_texts_is_recovered_exactly(texts: int, width: int) -> None:
    """With two tokens for three dimensions at most."""
    whole = found([8] * texts, width)
    assert [whole[f"public_{name}"] for name in ("texts", "exact", "f1", "ptlr_exact")] == [1, 1, 1, 1]
    assert whole["unrelated_f1"] == whole["unrelated_texts"] == 0
    assert whole["free"] > 1 / 3 - 0.01


def test_more_tokens_than_dimensions_are_not_recovered() -> None:
    made = attacked([8] * 16, 64, audit={"budget": 20_000}).rows[-1]
    assert made.metrics["span_free"] < 0.05
    assert made.metrics["span_public_texts"] == 0
    assert "The client's 128 tokens are not fewer than the 64 dimensions" in made.files[FILE]


@pytest.mark.slow
def test_nearly_all_of_thirty_two_texts_are_recovered() -> None:
    """Of so few words that every text has some of all others'."""
    many = found([4] * 32, 256)
    assert many["public_texts"] > 0.85
    assert many["unrelated_texts"] == 0


@pytest.mark.parametrize("changes", [{}, {"model": model(96, "distilbert")}, {"audit": {"layers": 1}}])
def test_any_transformer_is_read(changes: dict[str, Any]) -> None:
    """Texts of different lengths."""
    whole = found([7, 3, 8, 5], 96, **changes)
    assert whole["public_f1"] == whole["public_texts"] == 1
    assert whole["unrelated_f1"] == 0


def test_a_table_that_is_trained_at_the_client_first_hides_little() -> None:
    """With fedevocab the vectors that the attacker has are those before this training."""
    own = found([7, 3, 8, 5], 96, method="fedevocab")
    assert own["public_recall"] > 0.4
    assert own["unrelated_f1"] == 0


def test_lengths_need_not_be_known() -> None:
    assert found([4, 6], 96, audit={"lengths": "tried"})["public_texts"] == 1


def test_clipping_hides_nothing_and_noise_what_it_covers() -> None:
    """By how far the noise's edge reaches into the singular values of the update."""
    shapes: dict[str, Any] = {}
    for sigma in (1e-7, 1e-1):
        uplink = [{"clip": {"norm": 0.1}}, {"gaussian": {"sigma": sigma}}]
        shapes[sigma] = attacked([6] * 4, 96, uplink=uplink).rows[-1]
    assert found([6] * 4, 96, uplink=[{"clip": {"norm": 0.1}}])["public_texts"] == 1
    little, much = (made.metrics for made in shapes.values())
    assert little["span_public_texts"] == 1
    assert much["span_candidates"] == much["span_public_f1"] == 0
    assert much["span_free"] == 1
    assert "No word stands out from the noise" in shapes[1e-1].files[FILE]
    bits = [{"quantize": {"q": 0.01}}, {"randomized_response": {"epsilon": 1.0}}]
    assert found([6] * 4, 96, uplink=bits)["public_f1"] == 0


STEPS = {"local_epochs": 3, "batch_size": 2, "optimizer": {"lr": 0.05, "momentum": 0}}


def test_texts_of_several_local_steps_are_recovered() -> None:
    """Six steps of two texts each."""
    several = found([6] * 4, 96, training=STEPS)
    assert several["public_texts"] >= 0.75
    assert several["unrelated_f1"] == 0


def test_steps_of_adam_span_no_inputs_and_momentum_changes_nothing() -> None:
    adam = found([6], 96, training={"optimizer": {"name": "adam", "lr": 1e-3}})
    assert adam["candidates"] == adam["public_f1"] == 0
    assert found([6], 96, training={"optimizer": {"lr": 0.1, "momentum": 0.9}})["public_texts"] == 1


def test_a_text_without_words_is_neither_recovered_nor_missed() -> None:
    """One text is all unknown words, and of the others nothing is found: also nothing of the first one."""
    (client,), texts = (made := corpus([8] * 6, seed=3)).clients, slice(0, 8)
    client.rows_R[1] = made.vocabulary.index("<unk>")
    client.train.tokens_T[texts] = 1
    adam = ONE_STEP | {"batch_size": 6, "engine": "reference", "optimizer": {"name": "adam", "lr": 0.001}}
    row = finished(made, ["span_inversion"], model=model(96), training=adam).rows[-1]
    assert [row.metrics[f"span_{table}_texts"] for table in ("public", "unrelated")] == [0, 0]
    assert "0 of 5 texts with words are recovered exactly." in row.files[FILE]


def test_the_budget_bounds_the_search() -> None:
    poor = found([8] * 6, 96, audit={"budget": 50})
    assert poor["public_texts"] == 0
    assert poor["candidates"] > 0


@pytest.mark.parametrize(
    ("method", "changes", "sentence"),
    [
        ("fedavg", {}, "span_inversion is for model transformer"),
        ("local_only", {"model": model(8)}, "needs the encoder's update, and method local_only sends none"),
        ("scaffold", {"model": model(8)}, "span_inversion treats an update as the gradient of a loss"),
    ],
)
def test_where_there_is_nothing_to_find_the_audit_is_refused(
    method: str, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        tiny.experiment(method, audits=["span_inversion"], **changes)
