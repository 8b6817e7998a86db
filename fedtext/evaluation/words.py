"""Metrics of language models: perplexity, bits per byte, and accuracies of the most probable next words.

Every token but a sentence's first is predicted, including </s>; padding is not. The bits of all tokens over the bytes
of the sentences (``fedtext.text.tokens.sizes``) can be compared between models whose tokens differ.

Legend: S predicted tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log

import numpy as np
import torch

from fedtext.evaluation.pooled import Pooled
from fedtext.methods.base import Model
from fedtext.training.batches import Assembler, Texts

BATCH = 64
LIKELIEST = (1, 3)  # numbers of words; keyboards propose three


@dataclass(frozen=True)
class Predicted(Pooled):
    """Sums over the predicted tokens of some sentences.

    Attributes:
        tokens: Number of tokens.
        nats: Sum of -log p(token).
        right: Number of tokens among the k most probable words, for each k of ``LIKELIEST``.
        bytes: Number of bytes of these sentences.
    """

    tokens: int
    nats: float
    right: tuple[int, ...]
    bytes: int

    def metrics(self) -> dict[str, float]:
        """Compute the metrics of these tokens.

        Returns:
            ``nats_per_token``, their mean; ``perplexity``, its exp or infinity; ``bits_per_byte``; and the shares
            ``top1`` and ``top3``.
        """
        mean = self.nats / self.tokens
        with np.errstate(over="ignore"):
            perplexity = float(np.exp(np.float64(mean)))
        bits = self.nats / log(2) / self.bytes
        shares = {f"top{k}": right / self.tokens for k, right in zip(LIKELIEST, self.right, strict=True)}
        return {"perplexity": perplexity, "nats_per_token": mean, "bits_per_byte": bits, **shares}

    @classmethod
    def over_clients(cls, parts: "Sequence[Predicted]", name: str) -> dict[str, float]:
        return named(together(parts), name)


@torch.no_grad()
def predict(model: Model, texts: Texts, assembler: Assembler) -> Predicted:
    """Predict the tokens of texts with a language model.

    Args:
        model: The network, with the parameters to evaluate.
        texts: The texts.
        assembler: Makes the batches.
    """
    tokens, nats, sums = 0, 0.0, []
    for chosen in texts.by_length(BATCH):
        batch, _ = assembler.single(texts, chosen)
        score = model(batch)
        tokens += len(score.nats_S)
        sums.append([score.nats_S.double().sum(), *((score.ranks_S < k).sum() for k in LIKELIEST)])
    nats_N, *right = (torch.stack(found).cpu() for found in zip(*sums, strict=True))  # waits for the last batch only
    for each in nats_N.tolist():  # a fixed order; sum() adds otherwise in newer versions of Python
        nats += each
    assert texts.bytes_N is not None, "a language corpus counts bytes"
    return Predicted(tokens, nats, tuple(int(found.sum()) for found in right), int(texts.bytes_N.sum()))


def added(parts: Sequence[Predicted]) -> Predicted:
    """Add up sums over different sentences."""
    rights = zip(*[part.right for part in parts], strict=True)
    tokens, nats, size = (sum(getattr(part, name) for part in parts) for name in ("tokens", "nats", "bytes"))
    return Predicted(tokens, nats, tuple(map(sum, rights)), size)


def together(parts: Sequence[Predicted]) -> dict[str, float]:
    """Compute the metrics over all clients' tokens, and ``perplexity_p90``.

    This is the perplexity that 90 % of the clients do not exceed (the nearest rank; NaN is greater than all), since the
    metrics over all tokens do not show the worst clients.
    """
    each = np.sort([part.metrics()["perplexity"] for part in parts])
    return added(parts).metrics() | {"perplexity_p90": float(each[-(-9 * len(each) // 10) - 1])}


def named(metrics: Mapping[str, float], name: str) -> dict[str, float]:
    """Name metrics of next words: perplexity (``Ag``), perplexity_val (``Ag_val``), perplexity_Ap (``Ap``)."""
    suffix = name[2:] if name.startswith("Ag") else f"_{name}"
    return {metric + suffix: value for metric, value in metrics.items()}
