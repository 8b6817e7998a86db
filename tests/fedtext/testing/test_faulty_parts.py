"""Parts that do not keep what is promised of every part are found out, in one sentence."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import nn

from fedtext.accounting.entry import Bound, Entry
from fedtext.aggregations import IndividualAggregation
from fedtext.audits import LabelLeakage
from fedtext.corpora.demo import DemoCorpus
from fedtext.layout import TABLE
from fedtext.mechanisms import Clip
from fedtext.mechanisms.base import Mechanism
from fedtext.methods import FedAvg
from fedtext.models.base import ClassifierConfig, Embedding
from fedtext.testing import (
    check_aggregation,
    check_audit,
    check_corpus,
    check_mechanism,
    check_method,
    check_model,
)


class _Method(FedAvg):
    """A method of this test."""

    name: Literal["faulty"] = "faulty"  # type: ignore[assignment]


class Undescribed(_Method):
    beta: float = 1.0


class Endless(_Method):
    def loss(self, model: Any, received: Any, batch: Any) -> Any:
        return {"ce": (model(batch) * 0).sqrt().sum()}


class Looking(_Method):
    def loss(self, model: Any, received: Any, batch: Any) -> Any:
        terms = super().loss(model, received, batch)
        return terms if terms["ce"].item() > 0 else {}


class Unnormalised(_Method):
    def probabilities(self, model: Any, batch: Any, inference: Any) -> Any:
        return model(batch).exp()


class Remembering(_Method):
    def loss(self, model: Any, received: Any, batch: Any) -> Any:
        kept = vars(type(self)).get("seen", 0)
        type(self).seen = kept + 1  # type: ignore[attr-defined]
        return {"ce": super().loss(model, received, batch)["ce"] * (1 + kept)}


class Growing(_Method):
    def client_state(self, received: Any) -> Any:
        return {"c": received.zeros()}

    def after_update(self, local: Any) -> Any:
        return {"d": local.delta}, {}


class Shrinking(_Method):
    def client_state(self, received: Any) -> Any:
        return {"c": received.zeros()}

    def after_sending(self, local: Any, state: Any, update: Any, extras: Any) -> Any:
        return {}


class Sparse(_Method):
    def before_sending(self, local: Any) -> Any:
        return type(local.delta)({name: tensor for name, tensor in local.delta.items() if "bias" not in name})


class Chatty(_Method):
    def after_update(self, local: Any) -> Any:
        return {}, {"extra": local.delta}


class Dropping(_Method):
    def gradient(self, gradients: Any, local: Any) -> Any:
        return type(gradients)({name: tensor for name, tensor in gradients.items() if "bias" not in name})


class Stepless(_Method):
    def server_step(self, server: Any, change: Any, extras: Any, share: float) -> Any:
        return {"h": change}, change


class _Mechanism(Mechanism):
    """A mechanism of this test."""

    name: Literal["faulty"] = "faulty"

    def apply(self, delta: Any, received: Any, rng: Any) -> Any:
        return {name: tensor / 2 for name, tensor in delta.items()}


class InPlace(_Mechanism):
    def apply(self, delta: Any, received: Any, rng: Any) -> Any:
        for tensor in delta.values():
            tensor /= 2
        return delta


class Global(_Mechanism):
    randomises = True

    def apply(self, delta: Any, received: Any, rng: Any) -> Any:
        return {n: t + np.random.standard_normal(t.shape).astype(np.float32) for n, t in delta.items()}


class Quiet(_Mechanism):
    def apply(self, delta: Any, received: Any, rng: Any) -> Any:
        return {name: t + rng.standard_normal(t.shape).astype(np.float32) for name, t in delta.items()}


class Louder(Quiet):
    randomises = True

    def bound(self, before: Bound) -> Bound:
        return Bound(before.norm, before.variance + 0.5)


class Boasting(_Mechanism):
    def guarantee(self, before: Any, sent: Any) -> list[Entry]:
        return [Entry(self.name, "run", 1.0, 0.0, "halving", "nothing")]


class Longer(_Mechanism):
    def apply(self, delta: Any, received: Any, rng: Any) -> Any:
        return {name: 3 * tensor for name, tensor in delta.items()}

    def bound(self, before: Bound) -> Bound:
        return before


class Wider(_Mechanism):
    def apply(self, delta: Any, received: Any, rng: Any) -> Any:
        return {name: tensor.astype(np.float64) for name, tensor in delta.items()}


class Misread(IndividualAggregation):
    """An aggregation of this test."""

    name: Literal["misread"] = "misread"
    secure = "nothing"

    def aggregate(self, state: Any, updates: Any, weight: Any = None) -> Any:
        first, *_ = updates
        return {n: (state[n] + np.resize(first.tensors[n], state[n].shape)) for n in state}, {}


class Padded(ClassifierConfig):
    """A model of this test."""

    name: Literal["padded"] = "padded"
    embedding: Embedding = Embedding(dim=5)

    def build_encoder(self, weights: bool) -> nn.Module:
        return Longest()


class Longest(nn.Module):
    def forward(self, embedding: nn.Embedding, batch: Any) -> torch.Tensor:
        return embedding(batch.tokens_BT).mean(1)


class Narrow(Padded):
    def width(self, features: int) -> int:
        return 3


class Drifting(Padded):
    def build_encoder(self, weights: bool) -> nn.Module:
        return Counting()


class Counting(nn.Module):
    """The mean of a text's words, for evaluation turned by the number of steps that this process has made."""

    steps = 0

    def forward(self, embedding: nn.Embedding, batch: Any) -> torch.Tensor:
        here_BT1 = (torch.arange(batch.tokens_BT.shape[1]) < batch.lengths_B[:, None])[:, :, None]
        mean_BD = (embedding(batch.tokens_BT) * here_BT1).sum(1) / batch.lengths_B[:, None]
        self.steps += self.training
        return mean_BD if self.training else mean_BD.roll(self.steps, 1)


class Mislabelled(DemoCorpus):
    """A corpus of this test."""

    name: Literal["mislabelled"] = "mislabelled"  # type: ignore[assignment]

    def read(self, data: Any, seed: int) -> Any:
        raw = super().read(data, seed)
        raw.clients[0].train.labels[0] = 7
        return raw


class Undeclared(LabelLeakage):
    """An audit of this test."""

    name: Literal["undeclared"] = "undeclared"  # type: ignore[assignment]
    metrics = ("label_first",)


class Disturbing(LabelLeakage):
    """An audit of this test."""

    name: Literal["disturbing"] = "disturbing"  # type: ignore[assignment]

    def observe(self, turn: Any, words: Any) -> Any:
        turn.trained[TABLE].zero_()
        for tensor in turn.received.values():
            tensor += 1
        return super().observe(turn, words)


FOUND: list[tuple[Callable[..., None], Any, str]] = [
    (check_method, Clip(norm=1), "Clip is not a Method"),
    (check_method, Undescribed(), "key beta of faulty has no description"),
    (check_method, Endless(), "the gradient of faulty at embedding.weight is not finite"),
    (check_method, Looking(), "clients cannot be trained in stacks"),
    (check_method, Unnormalised(), "probabilities .both. are below 0, or do not sum to 1"),
    (check_method, Growing(), "after_update of faulty returns other tensors than client_state: c/"),
    (check_method, Shrinking(), "after_sending of faulty returns other tensors than client_state: c/"),
    (check_method, Sparse(), "before_sending of faulty returns another update than local.delta: /encoder"),
    (check_method, Chatty(), "faulty sends other tensors than those of extras: extra/"),
    (check_method, Dropping(), "gradient of faulty returns other tensors than it is given: /encoder"),
    (check_method, Stepless(), "server_step of faulty returns other tensors than server_state: h/"),
    (check_method, Remembering(), "engine cells differs from reference"),
    (check_mechanism, InPlace(), "faulty changes its arguments"),
    (check_mechanism, Global(), "faulty draws from a global generator"),
    (check_mechanism, Quiet(), "faulty draws noise: declare randomises = True"),
    (check_mechanism, Louder(), "faulty states noise of variance 0.5 on each coordinate, and it is "),
    (check_mechanism, Boasting(), "faulty claims epsilon = 1, and draws nothing"),
    (check_mechanism, Longer(), "faulty states that updates are no longer than 0.5, and one is 0.6"),
    (check_mechanism, Wider(), "the output of faulty must be float32: embedding.weight is float64"),
    (check_aggregation, Misread(), "misread does not treat rows that a client does not have as unchanged"),
    (check_model, Padded(), "logits of model padded for a text depend on the other texts"),
    (check_model, Narrow(), "model padded fails on a batch .*width must be that of its encoder's output"),
    (check_model, Drifting(), "an interrupted run ends with other bits or metrics"),
    (check_corpus, Mislabelled(), "a label of client .* of mislabelled is not in 0 to 1"),
    (check_audit, Undeclared(), "which undeclared does not declare: add it to metrics of the class"),
    (check_audit, Disturbing(), "a run with disturbing ends with other bits"),
]


@pytest.mark.parametrize(("check", "part", "sentence"), FOUND, ids=lambda value: type(value).__name__)
def test_what_is_wrong_is_one_sentence(check: Callable[..., None], part: Any, sentence: str) -> None:
    before: dict[str, Any] = {"before": [Clip(norm=0.5)]} if check is check_mechanism else {}
    with pytest.raises(AssertionError, match=sentence):
        check(part, **before)
