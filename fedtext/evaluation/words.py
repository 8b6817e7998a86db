"""Of next words: perplexity, and how often the right one is among the likeliest.

Every token but a sentence's first is predicted, the end sign too; padding is not. Legend: S predicted tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fedtext.methods.base import Model
from fedtext.training.batches import Assembler, Texts

BATCH = 64
LIKELIEST = (1, 3)  # a keyboard offers three words


@dataclass(frozen=True)
class Predicted:
    """Sums over the tokens of some sentences that a model has predicted."""

    tokens: int
    nats: float  # of -log p(token)
    right: tuple[int, ...]  # tokens among the LIKELIEST so many

    def metrics(self) -> dict[str, float]:
        """``perplexity``: exp(mean nats of a token), infinite beyond what a float holds; ``top1``, ``top3``: shares."""
        with np.errstate(over="ignore"):
            perplexity = float(np.exp(np.float64(self.nats / self.tokens)))
        shares = {f"top{k}": right / self.tokens for k, right in zip(LIKELIEST, self.right, strict=True)}
        return {"perplexity": perplexity, **shares}


@torch.no_grad()
def predict(model: Model, texts: Texts, assembler: Assembler) -> Predicted:
    tokens, nats, sums = 0, 0.0, []
    for chosen in texts.by_length(BATCH):
        batch, _ = assembler.single(texts, chosen)
        score = model(batch)
        tokens += len(score.nats_S)
        sums.append([score.nats_S.double().sum(), *((score.ranks_S < k).sum() for k in LIKELIEST)])
    nats_N, *right = (torch.stack(found).cpu() for found in zip(*sums, strict=True))  # waits for the last batch only
    for each in nats_N.tolist():  # in this order, in every Python
        nats += each
    return Predicted(tokens, nats, tuple(int(found.sum()) for found in right))


def added(parts: Sequence[Predicted]) -> Predicted:
    """All of their tokens as one text."""
    rights = zip(*[part.right for part in parts], strict=True)
    return Predicted(sum(part.tokens for part in parts), sum(part.nats for part in parts), tuple(map(sum, rights)))


def together(parts: Sequence[Predicted]) -> dict[str, float]:
    """The metrics of all clients' tokens as one text, and ``perplexity_p90``: what nine clients in ten do not exceed
    (the nearest rank; one that is no number is above all), for the worst-off do not show in the whole."""
    each = np.sort([part.metrics()["perplexity"] for part in parts])
    return added(parts).metrics() | {"perplexity_p90": float(each[-(-9 * len(each) // 10) - 1])}
