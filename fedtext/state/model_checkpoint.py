"""The pretrained checkpoint of a model, in the folder of the trained one."""

from pathlib import Path
from typing import Any

from fedtext.config.experiment import Experiment
from fedtext.models.checkpointed import TransformerConfig
from fedtext.text import pretrained
from fedtext.text.representation import Pieces


def save_checkpoint(experiment: Experiment, folder: Path) -> None:
    """Save the tokenizer of texts and the configuration of the encoder, if they come from a checkpoint; and the encoder
    itself if its weights are no parameters, as with an adapter."""
    model, text = experiment.model, experiment.corpus.text
    cuts = text.checkpoint if isinstance(text, Pieces) else None
    sizes = model.checkpoint if isinstance(model, TransformerConfig) else None
    if source := sizes or cuts:
        pretrained.settings(source).save_pretrained(folder)
    if sizes and model.drawn:
        pretrained.network(sizes).save_pretrained(folder)
    if cuts:
        pretrained.tokenizer(cuts).save_pretrained(folder)


def relocated(part: Any, folder: str) -> Any:
    """Replace the paths of checkpoints in an experiment's content by the model's folder."""
    if isinstance(part, dict):
        return {
            key: folder if key in ("checkpoint", "source") and isinstance(value, str) else relocated(value, folder)
            for key, value in part.items()
        }
    return [relocated(each, folder) for each in part] if isinstance(part, list) else part
