"""Our own parts keep what is promised of every part, and parts that do not are found out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import nn

from fedtext.accounting.entry import Bound, Entry
from fedtext.aggregations import AGGREGATIONS, IndividualAggregation
from fedtext.audits import AUDITS, LabelLeakage
from fedtext.corpora import CORPORA
from fedtext.corpora.demo import DemoCorpus
from fedtext.layout import TABLE
from fedtext.mechanisms import MECHANISMS, Clip, Quantize
from fedtext.mechanisms.base import Mechanism
from fedtext.methods import METHODS, FedAvg
from fedtext.models import MODELS
from fedtext.models.base import ClassifierConfig, Embedding
from fedtext.testing import (
    check_aggregation,
    check_audit,
    check_corpus,
    check_mechanism,
    check_method,
    check_model,
)
from tests import tiny
from tests.data import real_data
from tests.sampled import slow_but

METHOD_SECTIONS: dict[str, dict[str, Any]] = {
    "fedsgd": {"training": tiny.TRAINING | {"local_epochs": 1}},
}
SMALL: dict[str, dict[str, Any]] = {
    "bag": {"hidden": [4], "embedding": {"dim": 5}},
    "logistic": {},
    "vectors": {"hidden": [4], "embedding": {"dim": 5}},
    "transformer": {"embedding": {"dim": 8}, "layers": 1, "heads": 2, "intermediate": 8, "positions": 12},
    "gru_lm": {"embedding": {"dim": 4}, "hidden": 4},
    "lstm_lm": {"embedding": {"dim": 4}, "hidden": 6, "projection": True},
    "causal": {"embedding": {"dim": 4}, "layers": 1, "heads": 2, "positions": 100},
}
RECURRENT = {"embedding": {"dim": 5}, "hidden": 4, "head": {"hidden": 3}}
BEFORE: dict[str, list[Any]] = {"gaussian": [Clip(norm=0.5)], "randomized_response": [Quantize()]}
MECHANISM_KEYS: dict[str, dict[str, Any]] = {"project": {"d1": 2, "d2": 4}, "clip": {"norm": 0.5}}
AGGREGATION_SECTIONS: dict[str, dict[str, Any]] = {
    "lora": {"model": {"name": "transformer", "adapter": {}} | SMALL["transformer"]},
}
AUDIT_KEYS: dict[str, dict[str, Any]] = {
    "word_relations": {"words": ["w3", "w9", "w20"], "top": 4},
    "span_inversion": {"budget": 2_000},
    "attribute_inference": {"words": ["w12", "w20"], "shadows": 8},
}
AUDIT_SECTIONS: dict[str, dict[str, Any]] = {
    "span_inversion": {"model": {"name": "transformer"} | SMALL["transformer"], "training": tiny.TRAINING},
}


@pytest.mark.parametrize("name", slow_but(METHODS, "fedavg", "kteps", "asp_mtl", "fedrecon", "scaffold"))
def test_methods(name: str) -> None:
    check_method(METHODS[name](), **METHOD_SECTIONS.get(name, {}))


@pytest.mark.parametrize("name", MECHANISMS)
def test_mechanisms(name: str) -> None:
    check_mechanism(MECHANISMS[name](**MECHANISM_KEYS.get(name, {})), BEFORE.get(name, []))


@pytest.mark.parametrize("name", slow_but(AGGREGATIONS, "mean", "median", "attention"))
def test_aggregations(name: str) -> None:
    keys: dict[str, Any] = {"norm_bounded": {"norm": 0.05}, "trimmed_mean": {"share": 0.2}}.get(name, {})
    check_aggregation(AGGREGATIONS[name](**keys), **AGGREGATION_SECTIONS.get(name, {}))


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    check_model(MODELS[name].model_validate({"name": name, **SMALL.get(name, RECURRENT)}))


# exposure is of planted secrets, which the corpus of this check has not: tests/fedtext/audits/test_exposure.py
@pytest.mark.parametrize("name", [name for name in AUDITS if name != "exposure"])
def test_audits(name: str) -> None:
    check_audit(AUDITS[name](**AUDIT_KEYS.get(name, {})), **AUDIT_SECTIONS.get(name, {}))


def test_corpora(tmp_path: Path) -> None:
    check_corpus(CORPORA["demo"]())
    (tmp_path / "texts.csv").write_text("text,label\n" + "".join(f"word{n % 7} text,{n % 2}\n" for n in range(40)))
    table = {"name": "table", "path": str(tmp_path / "texts.csv"), "text": "text", "label": "label", "clients": 2}
    check_corpus(CORPORA["table"].model_validate(table))


def test_the_corpus_of_reviews() -> None:
    check_corpus(CORPORA["fdu"].model_validate({"name": "fdu", "share": 0.05}), real_data("fdu_mtl/fdu_mtl.parquet"))


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
