"""The pretrained checkpoint of a model, in the folder of the trained one."""

from pathlib import Path
from typing import Any

import torch

from fedtext.config.experiment import Experiment
from fedtext.models.checkpointed import TransformerConfig
from fedtext.text import pretrained
from fedtext.text.representation import Pieces


def save_checkpoint(experiment: Experiment, folder: Path) -> None:
    """Save the tokenizer of texts and the configuration of the encoder, if they come from a checkpoint; and the encoder
    itself, in the checkpoint's precision, if its weights are no parameters, as with an adapter."""
    model, text = experiment.model, experiment.corpus.text
    cuts = text.checkpoint if isinstance(text, Pieces) else None
    sizes = model.checkpoint if isinstance(model, TransformerConfig) else None
    if source := sizes or cuts:
        pretrained.settings(source).save_pretrained(folder)
    if sizes and model.drawn:
        _in_its_precision(pretrained.network(sizes), pretrained.settings(sizes).dtype).save_pretrained(folder)
    if cuts:
        pretrained.tokenizer(cuts).save_pretrained(folder)


def _in_its_precision(network: Any, dtype: torch.dtype | None) -> Any:
    """Return a network whose weights are in float32 in the precision that its configuration names, if that has them
    without a rounding."""
    weights = network.state_dict().values()
    exact = dtype is not None and all(
        torch.equal(tensor.to(dtype).to(tensor.dtype), tensor) for tensor in weights if tensor.is_floating_point()
    )
    return network.to(dtype) if exact else network


def relocated(part: Any, folder: str) -> Any:
    """Replace the paths of checkpoints in an experiment's content by the model's folder."""
    if isinstance(part, dict):
        return {
            key: folder if key in ("checkpoint", "source") and isinstance(value, str) else relocated(value, folder)
            for key, value in part.items()
        }
    return [relocated(each, folder) for each in part] if isinstance(part, list) else part
