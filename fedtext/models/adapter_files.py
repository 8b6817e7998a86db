"""Adapters as the package peft stores them: a folder with ``adapter_config.json`` and ``adapter_model.safetensors``.

The package itself is not needed. A layer is named there by its path in the network of the package transformers, behind
``base_model.model.`` and, if the network is part of a model with a head, behind its name there (``bert.``, ``model.``).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file
from safetensors.torch import load_file
from torch import Tensor, nn

from fedtext.errors import UserError
from fedtext.models.adapted import LoRALinear
from fedtext.models.adapters import A, B, LoRA
from fedtext.runtime.json_files import read_json

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
KEY = "model.adapter.lora"
_BASE = "base_model.model."
# Required settings: with others the adapter would compute something else than W + (alpha / rank) B A.
_PLAIN: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none", None),
    "use_dora": (False, None),
    "use_rslora": (False, None),
    "use_qalora": (False, None),
    "lora_bias": (False, None),
    "alora_invocation_tokens": (None,),
    "init_lora_weights": (True, False, "gaussian", "orthogonal", None),  # others change the weights beside the factors
    "rank_pattern": ({}, None),
    "alpha_pattern": ({}, None),
    "trainable_token_indices": (None,),
    "layer_replication": (None,),
}


def load(network: nn.Module, lora: LoRA, layers: str, headed: bool = True) -> None:
    """Set the factors of an adapted network to those of ``lora.checkpoint``.

    Args:
        network: The network.
        lora: The keys.
        layers: Name in the package transformers of what is ``layers`` in it: encoder, transformer or layers.
        headed: Whether tensors of a head are left aside, which the network does not have.

    Raises:
        UserError: The folder cannot be read, or is of another adapter than the keys say.
    """
    folder, found = checked(lora), {}
    try:
        tensors = load_file(folder / WEIGHTS)  # as tensors, since numpy has no bfloat16
    except (OSError, SafetensorError) as error:
        raise UserError(f"{KEY}.checkpoint: {folder / WEIGHTS} cannot be read ({error}): give another") from error
    for name, tensor in tensors.items():
        if name.endswith((f".{A}.weight", f".{B}.weight")):
            path = name.removesuffix(".weight").removeprefix(_BASE)
            found[path.partition(f"{layers}.")[2] or path] = tensor
        elif not headed or f".{layers}." in name or ".embeddings." in name:  # anything else is of a head
            raise UserError(
                f"{KEY}.checkpoint: {folder} changes {name.removeprefix(_BASE)} beside its factors, which is not "
                "supported: give a plain LoRA"
            )
    adapted = {path: module for path, module in network.named_modules() if isinstance(module, LoRALinear)}
    for path, layer in adapted.items():
        for leaf in (A, B):
            into: Tensor = getattr(layer, leaf)
            given = found.pop(f"{path.removeprefix('layers.')}.{leaf}", None)
            if given is None or given.shape != into.shape:
                shape = "none" if given is None else f"one of shape {list(given.shape)}"
                raise UserError(
                    f"{KEY}.checkpoint: {folder} has {shape} where the model has {path}.{leaf} of shape "
                    f"{list(into.shape)}: give an adapter of this model, with the keys of {KEY}"
                )
            with torch.no_grad():
                into.copy_(given)
    if found:
        raise UserError(
            f"{KEY}.checkpoint: {folder} adapts {min(found).rpartition('.')[0]} too: name its layers in {KEY}.modules"
        )


def checked(lora: LoRA) -> Path:
    """Return the folder ``lora.checkpoint``.

    Raises:
        UserError: It cannot be read, has another rank or alpha than the keys, or is not a plain LoRA.
    """
    assert lora.checkpoint is not None
    folder = Path(lora.checkpoint)
    if not (folder / CONFIG).is_file() or not (folder / WEIGHTS).is_file():
        raise UserError(
            f"{KEY}.checkpoint: {folder} is no folder with {CONFIG} and {WEIGHTS}: give one that peft, or a run with "
            "an adapter, has saved"
        )
    about = read_json(folder / CONFIG, dict[str, Any], "give another")
    for key, plain in _PLAIN.items():
        if about.get(key, plain[-1]) not in plain:
            raise UserError(
                f"{KEY}.checkpoint: {folder / CONFIG} has {key}: {json.dumps(about[key])}, which is not supported: "
                "give a plain LoRA"
            )
    for key, theirs in (("rank", "r"), ("alpha", "lora_alpha")):
        found = about.get(theirs)
        if found != getattr(lora, key):
            shown = f"{found:g}" if isinstance(found, int | float) else json.dumps(found)
            raise UserError(
                f"{KEY}.{key} is {getattr(lora, key):g}, and the adapter in {folder} has {shown}: set it to that"
            )
    return folder


def save(
    folder: Path, lora: LoRA, base: str, layers: str, factors: Mapping[str, NDArray[np.float32]], causal: bool = False
) -> None:
    """Write an adapter.

    Args:
        folder: The folder, which is made.
        lora: The keys.
        base: Name or folder of the checkpoint that it belongs to.
        layers: As in ``load``.
        factors: The factors by their names below it, such as ``layer.0.attention.self.query.lora_A``.
        causal: Whether it is for a causal language model, which has the network without a head as ``model``.
    """
    place = f"model.{layers}" if causal else layers
    about = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM" if causal else "FEATURE_EXTRACTION",
        "base_model_name_or_path": base,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
        "target_modules": sorted({f"{place}.{name.rpartition('.')[0]}" for name in factors}),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
    folder.mkdir(parents=True)
    (folder / CONFIG).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    named = {f"{_BASE}{place}.{name}.weight": np.ascontiguousarray(tensor) for name, tensor in factors.items()}
    save_file(named, folder / WEIGHTS, metadata={"format": "pt"})
