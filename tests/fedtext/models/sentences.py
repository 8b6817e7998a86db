"""Sentences for causal language models: batches, what the package transformers computes of them, and short runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import fedtext
from fedtext.corpora.types import TokenSet
from fedtext.models.batch import Batch
from fedtext.training.batches import Assembler, Texts
from tests.loops import nonempty

VOCABULARY = 30
LENGTHS = [5, 2, 9, 9, 3, 13]
SMALL = {"name": "causal", "embedding": {"dim": 8}, "layers": 2, "heads": 2, "positions": 100, "dropout": 0.0}


def batch(padding: int = 0, lengths: list[int] = LENGTHS) -> Batch:
    tokens_T = np.random.default_rng(0).integers(0, VOCABULARY, sum(lengths), np.int32)
    texts = Texts(TokenSet(tokens_T, np.cumsum([0, *lengths]), np.zeros(len(lengths), np.int64)), VOCABULARY)
    texts.padded_NT[np.arange(max(lengths)) >= np.array(lengths)[:, None]] = padding
    return Assembler(None, cut=False, device=torch.device("cpu"), ahead=True).single(texts, np.arange(len(lengths)))[0]


def their_loss(model: Any, given: Batch) -> Tensor:
    """The mean cross-entropy over next tokens, with padding masked and ignored as the package's users do it."""
    there_BT = torch.arange(given.tokens_BT.shape[1]) < given.lengths_B[:, None]
    tokens_BT = given.tokens_BT.long()
    labels_BT = tokens_BT.masked_fill(~there_BT, -100)[:, 1:]
    logits = model(input_ids=tokens_BT[:, :-1], attention_mask=there_BT[:, :-1].long()).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels_BT.flatten())


def check_step(source: Any, network: torch.nn.Module, expected: Mapping[str, Tensor]) -> None:
    """Check that the loss, the gradients and the parameters after a step are those of the package.

    Args:
        source: The package's model, in float64.
        network: Ours, with the same weights.
        expected: The package's parameters by our names.
    """
    steps = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (source, network)]
    losses = their_loss(source, batch()), network(batch(padding=7)).loss
    assert losses[1].item() == pytest.approx(losses[0].item(), rel=1e-9)
    for loss in losses:
        loss.backward()
    assert set(expected) == set(dict(network.named_parameters()))
    for name, parameter in nonempty(network.named_parameters()):
        assert torch.allclose(parameter.grad, expected[name].grad, rtol=1e-9, atol=1e-12), name
    for optimizer in steps:
        optimizer.step()
    for name, parameter in nonempty(network.named_parameters()):
        assert torch.allclose(parameter, expected[name], rtol=1e-9, atol=1e-12), name


def ptb(folder: Path) -> Path:
    lines = ["the cat sat on the mat", "the dog sat on the cat", "a cat saw the dog"] * 6
    for side, some in (("train", lines), ("valid", lines[:3]), ("test", ["the cat saw the mat"])):
        (folder / f"ptb.{side}.txt").write_text("\n".join(some) + "\n")
    return folder


def run(folder: Path, **changes: Any) -> fedtext.Result:
    experiment = {
        "name": "words",
        "corpus": {"name": "ptb", "clients": 1, "validation": 0.0},
        "model": SMALL,
        "method": "fedavg",
        "training": {"rounds": 3, "local_epochs": 4, "batch_size": 4, "optimizer": {"name": "adam", "lr": 0.01}},
        "evaluation": {"personalize": None},
    }
    return fedtext.run(experiment | changes, data=ptb(folder))
