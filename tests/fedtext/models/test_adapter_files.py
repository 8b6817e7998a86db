"""Adapters in the format of the package peft: what is written, and what a run begins with."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers
from safetensors.numpy import load_file, save_file

from fedtext.api.model import Model
from fedtext.corpora.types import Corpus
from fedtext.errors import UserError
from fedtext.models.adapted import LoRALinear
from fedtext.models.adapter_files import CONFIG, WEIGHTS
from fedtext.models.adapters import A, B
from fedtext.parameters import build_network
from fedtext.server.trained import trained
from fedtext.state.model_folder import ADAPTER, INITIAL_ADAPTER
from tests import tiny
from tests.checkpoints import saved
from tests.loops import nonempty

WORDS = " ".join(tiny.TWO.vocabulary[2:5])
ALL = ["query", "key", "value", "output", "up", "down"]


def experiment_keys(base: Path, **lora: Any) -> dict[str, Any]:
    lora = {"rank": 2, "alpha": 3.0, **lora}
    made = {"name": "transformer", "checkpoint": str(base), "embedding": {"dim": 8}, "dropout": 0.0}
    return made | {"adapter": {"lora": lora}}


def corpus() -> Corpus:
    rows = len(tiny.TWO.vocabulary)
    return replace(tiny.TWO, table_VD=np.random.default_rng(0).standard_normal((rows, 8)).astype(np.float32))


def fitted(model: dict[str, Any], **changes: Any) -> Model:
    training = tiny.TRAINING | {"rounds": 1, "optimizer": {"name": "adam", "lr": 0.01}}
    evaluation = {"personalize": None, "every": 1}
    run = tiny.Finished("fedavg", corpus(), model=model, training=training, evaluation=evaluation, **changes)
    return Model(trained(run, corpus()))


def begun(model: dict[str, Any]) -> torch.nn.Module:
    return build_network(tiny.experiment("fedavg", model=model), 2, 2, weights=True)


@pytest.fixture(params=["bert", "distilbert", "roberta"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return saved(request.param, tmp_path / "base")


def test_the_factors_belong_to_the_named_layers_of_the_package(base: Path, tmp_path: Path) -> None:
    """They are added to the weights of these layers by hand."""
    model = fitted(experiment_keys(base, modules=ALL))
    model.save(tmp_path / "model")
    network = transformers.AutoModel.from_pretrained(base).eval()
    about = json.loads((tmp_path / "model" / ADAPTER / CONFIG).read_text())
    factors = load_file(tmp_path / "model" / ADAPTER / WEIGHTS)
    assert len(factors) == 2 * 2 * 6
    assert about["base_model_name_or_path"] == str(base)
    for name in nonempty(about["target_modules"]):
        a, b = (torch.from_numpy(factors[f"base_model.model.{name}.{leaf}.weight"]) for leaf in (A, B))
        with torch.no_grad():
            network.get_submodule(name).weight += about["lora_alpha"] / about["r"] * b @ a
    bound = model._bind(None)
    hidden = torch.randn(1, 4, 8)
    with torch.no_grad():
        ours = bound.model.run(lambda own: own.encoder.run(inputs_embeds=hidden).last_hidden_state)
        assert torch.allclose(ours, network(inputs_embeds=hidden).last_hidden_state, atol=1e-5)
        plain = transformers.AutoModel.from_pretrained(base).eval()(inputs_embeds=hidden).last_hidden_state
    assert not torch.allclose(ours, plain, atol=1e-3)


def test_a_run_begins_with_the_factors_of_a_file(base: Path, tmp_path: Path) -> None:
    model = fitted(experiment_keys(base))
    model.save(tmp_path / "model")
    network = begun(experiment_keys(base, checkpoint=str(tmp_path / "model" / ADAPTER)))
    factors = {name: tensor for name, tensor in network.named_parameters() if name.endswith((A, B))}
    for name, tensor in nonempty(factors.items()):
        assert np.array_equal(tensor.detach().numpy(), model.trained.shared[name])
    assert any(tensor.any() for name, tensor in factors.items() if name.endswith(B))


def test_a_model_keeps_the_factors_that_its_training_began_with(base: Path, tmp_path: Path) -> None:
    """A of the file, which is no parameter where B alone is trained."""
    fitted(experiment_keys(base)).save(tmp_path / "first")
    source = tmp_path / "first" / ADAPTER
    model = fitted(experiment_keys(base, checkpoint=str(source), train="b"))
    before = model.predict([WORDS])
    model.save(tmp_path / "second")
    firsts, seconds = (load_file(tmp_path / name / ADAPTER / WEIGHTS) for name in ("first", "second"))
    assert all(nonempty(np.array_equal(firsts[name], seconds[name]) for name in firsts if f".{A}." in name))
    assert any(not np.array_equal(firsts[name], seconds[name]) for name in firsts)
    shutil.rmtree(tmp_path / "first")
    shutil.rmtree(base)
    again = Model.load(tmp_path / "second")
    assert again.predict([WORDS]) == before
    again.save(tmp_path / "third")
    assert (tmp_path / "third" / INITIAL_ADAPTER / WEIGHTS).is_file()


@pytest.mark.parametrize(
    ("lora", "changes"),
    [
        ({"residual": True}, {"server": {"aggregation": {"lora": {"factors": "exact"}}}}),
        ({"share": "a"}, {"save": {"model": "clients"}}),
    ],
)
def test_what_is_no_common_adapter_is_not_written_as_one(
    lora: dict[str, Any], changes: dict[str, Any], tmp_path: Path
) -> None:
    base = saved("bert", tmp_path / "base")
    model = fitted(experiment_keys(base, **lora), **changes)
    model.save(tmp_path / "model")
    assert not (tmp_path / "model" / ADAPTER).exists()


def edited(folder: Path, **keys: Any) -> None:
    about = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(about | keys))


def of_a_larger_model(folder: Path) -> None:
    factors = load_file(folder / WEIGHTS)
    save_file({name: np.concatenate([tensor, tensor]) for name, tensor in factors.items()}, folder / WEIGHTS)


@pytest.mark.parametrize(
    ("change", "lora", "message"),
    [
        (
            lambda folder: (folder / WEIGHTS).unlink(),
            {},
            "lora.checkpoint: .* is no folder with adapter_config.json and",
        ),
        (lambda folder: (folder / WEIGHTS).write_bytes(b"no tensors"), {}, "cannot be read"),
        (lambda folder: (folder / CONFIG).write_text("{"), {}, "config.json is damaged"),
        (lambda folder: edited(folder, use_dora=True), {}, "has use_dora: true, which is not supported"),
        (lambda folder: edited(folder, rank_pattern={"query": 4}), {}, "has rank_pattern: "),
        (lambda folder: edited(folder, peft_type="IA3"), {}, 'has peft_type: "IA3"'),
        (lambda folder: None, {"rank": 4}, "rank is 4, and the adapter in .* has 2: set it to that"),
        (lambda folder: None, {"alpha": 16.0}, "alpha is 16, and the adapter in .* has 3"),
        (lambda folder: None, {"modules": ["query"]}, "attention.self.value too: name its layers in"),
        (lambda folder: None, {"modules": ["query", "value", "up"]}, "has none where the model has .*intermediate"),
        (of_a_larger_model, {}, r"has one of shape \[4, 8\] where the model has .* of shape \[2, 8\]"),
    ],
)
def test_an_adapter_that_does_not_fit_is_refused(
    change: Callable[[Path], None], lora: dict[str, Any], message: str, tmp_path: Path
) -> None:
    base = saved("bert", tmp_path / "base")
    fitted(experiment_keys(base)).save(tmp_path / "model")
    folder = tmp_path / "model" / ADAPTER
    change(folder)
    with pytest.raises(UserError, match=message):
        begun(experiment_keys(base, checkpoint=str(folder), **lora))


@pytest.mark.parametrize(
    "name",
    [
        "embeddings.word_embeddings.lora_embedding_A",
        "bert.embeddings.word_embeddings.weight",
        "encoder.layer.0.output.LayerNorm.weight",
        "encoder.layer.0.attention.self.query.base_layer.bias",
    ],
)
def test_what_an_adapter_changes_beside_its_factors_is_refused(name: str, tmp_path: Path) -> None:
    """It would be left out, and the model compute something else than the adapter's."""
    base = saved("bert", tmp_path / "base")
    fitted(experiment_keys(base)).save(tmp_path / "model")
    folder = tmp_path / "model" / ADAPTER
    more = {f"base_model.model.{name}": np.ones((2, 8), np.float32)}
    save_file(load_file(folder / WEIGHTS) | more, folder / WEIGHTS)
    with pytest.raises(UserError, match=f"changes {name} beside its factors"):
        begun(experiment_keys(base, checkpoint=str(folder)))


def test_factors_of_half_precision_are_read(tmp_path: Path) -> None:
    base = saved("bert", tmp_path / "base")
    fitted(experiment_keys(base)).save(tmp_path / "model")
    folder = tmp_path / "model" / ADAPTER
    halves = {name: torch.from_numpy(tensor).bfloat16() for name, tensor in load_file(folder / WEIGHTS).items()}
    safetensors.torch.save_file(halves, folder / WEIGHTS)
    network = begun(experiment_keys(base, checkpoint=str(folder)))
    layer = network.get_submodule("encoder.layers.layer.0.attention.self.query")
    read = halves["base_model.model.encoder.layer.0.attention.self.query.lora_A.weight"]
    assert isinstance(layer, LoRALinear)
    assert torch.equal(layer.lora_A, read.float())


def test_an_adapter_of_random_weights_is_refused(tmp_path: Path) -> None:
    model = {"name": "transformer", "embedding": {"dim": 8}, "layers": 2, "heads": 2, "intermediate": 12}
    with pytest.raises(ValueError, match="is of an adapter of pretrained weights: name these as checkpoint"):
        tiny.experiment("fedavg", model=model | {"adapter": {"lora": {"checkpoint": str(tmp_path)}}})


def test_an_adapter_of_a_model_with_a_head_is_read(tmp_path: Path) -> None:
    """Its names have that of the encoder in the model, and its head is left alone."""
    base = saved("bert", tmp_path / "base")
    fitted(experiment_keys(base)).save(tmp_path / "model")
    folder = tmp_path / "model" / ADAPTER
    factors = load_file(folder / WEIGHTS)
    named = {name.replace("model.encoder", "model.bert.encoder"): tensor for name, tensor in factors.items()}
    named["base_model.model.classifier.weight"] = np.zeros((2, 8), np.float32)
    save_file(named, folder / WEIGHTS)
    edited(folder, task_type="SEQ_CLS", modules_to_save=["classifier"], target_modules=["query", "value"])
    network = begun(experiment_keys(base, checkpoint=str(folder)))
    layers = {path: module for path, module in network.named_modules() if isinstance(module, LoRALinear)}
    for path, layer in nonempty(layers.items()):
        name = path.removeprefix("encoder.layers.")
        assert np.array_equal(layer.lora_B.detach().numpy(), factors[f"base_model.model.encoder.{name}.{B}.weight"])
