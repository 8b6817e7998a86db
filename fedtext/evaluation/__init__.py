"""Accuracy of a model on a client's texts."""

import torch

from fedtext.methods.base import Inference, Method, Model
from fedtext.training.batches import Texts

EVALUATION_BATCH = 256


@torch.no_grad()
def accuracy(method: Method, model: Model, texts: Texts, inference: Inference) -> float:
    """Share of texts whose most probable class is theirs (KTEPS paper, equation 14)."""
    model.network.eval()
    right = 0
    for batch, _ in texts.by_length(EVALUATION_BATCH):
        right += int((method.probabilities(model, batch, inference).argmax(1) == batch.labels_B).sum())
    return right / len(texts)
