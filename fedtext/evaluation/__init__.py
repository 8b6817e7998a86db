"""Accuracy of a model on a client's texts."""

import torch

from fedtext.methods.base import Inference, Method, Model
from fedtext.training.batches import Assembler, Texts

EVALUATION_BATCH = 256


@torch.no_grad()
def accuracy(method: Method, model: Model, texts: Texts, assembler: Assembler, inference: Inference) -> float:
    """Share of texts whose most probable class is theirs (KTEPS paper, equation 14)."""
    model.network.eval()
    right = 0
    for chosen in texts.by_length(EVALUATION_BATCH):
        batch, _ = assembler.single(texts, chosen)
        right += int((method.probabilities(model, batch, inference).argmax(1) == batch.labels_B).sum())
    return right / len(texts)
