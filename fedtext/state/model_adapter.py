"""The adapter of a pretrained transformer, in the folder of the trained model, in the format of the package peft."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedtext.config.experiment import Experiment
from fedtext.models import adapter_files
from fedtext.models.adapters import A, B
from fedtext.models.checkpointed import TransformerConfig, layers_of
from fedtext.parameters import build_network

ADAPTER, INITIAL_ADAPTER = "adapter", "initial_adapter"


def save_adapter(
    experiment: Experiment, sizes: tuple[int, int, int], shared: Mapping[str, NDArray[np.float32]], draft: Path
) -> None:
    """Save the adapter, if the clients have a whole one in common, and where it began.

    Args:
        experiment: The experiment.
        sizes: Numbers of classes, clients and features.
        shared: The shared parameters by name.
        draft: The model folder.
    """
    model = experiment.model
    if not isinstance(model, TransformerConfig) or not model.adapter or not model.checkpoint:
        return
    lora = model.adapter.lora
    if lora is None:
        return
    if lora.checkpoint:
        (draft / INITIAL_ADAPTER).mkdir()
        for name in (adapter_files.CONFIG, adapter_files.WEIGHTS):
            shutil.copyfile(Path(lora.checkpoint) / name, draft / INITIAL_ADAPTER / name)
    if lora.residual or lora.share != "both":
        return
    network = build_network(experiment, *sizes)
    fixed = {name: tensor.numpy() for name, tensor in network.named_buffers()}  # A, if B alone is trained
    start, leaves = f"{'decoder' if model.language else 'encoder'}.layers.", (f".{A}", f".{B}")
    factors = {
        name.removeprefix(start): tensor
        for name, tensor in sorted({**fixed, **shared}.items())
        if name.startswith(start) and name.endswith(leaves)
    }
    if any(name.endswith(leaves[1]) for name in factors):  # GPT-2 has none of these names: query, key, value are one
        adapter_files.save(draft / ADAPTER, lora, model.checkpoint, layers_of(model), factors, model.language)
