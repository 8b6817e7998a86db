"""A pretrained transformer with adapters, of the packages transformers and peft, for the systems that train modules.

Legend: B batch, T time (the longest text of the batch), D width.
"""

from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel

from .module import Module
from .workloads import Adapted

_DROPOUTS = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}  # each system would draw other masks


class AdaptedClassifier(Module):
    """Encoder with LoRA on queries and values, mean over each text's own length, output layer.

    Args:
        work: The workload.
        checkpoint: Folder of the encoder.
        classes: Number of classes.
    """

    def __init__(self, work: Adapted, checkpoint: Path, classes: int) -> None:
        super().__init__()
        config = AutoConfig.from_pretrained(checkpoint, **_DROPOUTS)
        encoder = AutoModel.from_pretrained(checkpoint, config=config, dtype=torch.float32, add_pooling_layer=False)
        encoder.requires_grad_(False)
        self.encoder = encoder if work.blocks == 0 else _with_lora(encoder, work)
        self.head = nn.Linear(config.hidden_size, classes)
        self.lr = work.lr
        self.train()

    def shared(self) -> dict[str, Tensor]:
        moving = ((name, tensor.detach()) for name, tensor in self.named_parameters() if tensor.requires_grad)
        return {_name(name): tensor for name, tensor in moving}

    def optimizer(self) -> torch.optim.Optimizer:
        moving = [parameter for parameter in self.parameters() if parameter.requires_grad]
        return torch.optim.AdamW(moving, lr=self.lr, weight_decay=0.0, fused=True)

    def forward(self, tokens_BT: Tensor, lengths_B: Tensor) -> Tensor:
        mask_BT = (torch.arange(tokens_BT.shape[1]) < lengths_B[:, None]).long()
        hidden_BTD = self.encoder(input_ids=tokens_BT, attention_mask=mask_BT).last_hidden_state
        pooled_BD = (hidden_BTD * mask_BT[..., None]).sum(1) / lengths_B.to(hidden_BTD.dtype).unsqueeze(1)
        return self.head(pooled_BD)


def _with_lora(encoder: nn.Module, work: Adapted) -> nn.Module:
    from peft import LoraConfig, get_peft_model

    layers = encoder.config.num_hidden_layers
    adapted = None if work.blocks is None else list(range(layers - work.blocks, layers))
    config = LoraConfig(
        r=work.rank,
        lora_alpha=work.alpha,
        target_modules=["query", "value"],
        lora_dropout=0.0,
        layers_to_transform=adapted,
        layers_pattern=None if adapted is None else "layer",
    )
    return get_peft_model(encoder, config)


def _name(name: str) -> str:
    """Return fedtext's name of a parameter."""
    name = name.replace("encoder.base_model.model.encoder.", "encoder.layers.").replace("head.", "head.0.")
    return name.removesuffix(".default.weight")
