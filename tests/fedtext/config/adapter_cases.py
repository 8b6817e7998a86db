"""What adapters cannot be combined with, each case with the rule that refuses it."""

from typing import Any

from fedtext.config.compatibility import adapters, audits, evaluation
from tests.checkpoints import SCRATCH

EXACT = {"aggregation": {"lora": {"factors": "exact"}}}


def _adapted(**lora: Any) -> dict[str, Any]:
    return SCRATCH | {"adapter": {"lora": lora}}


ADAPTERS: list[tuple[Any, Any, dict[str, Any], str]] = [
    (
        adapters.factors,
        "fedavg",
        {"server": {"aggregation": "lora"}},
        "combines the factors of adapters, and there are",
    ),
    (
        adapters.factors,
        "fedavg",
        {"model": SCRATCH | {"adapter": {"lora": None}}, "server": {"aggregation": "lora"}},
        "combines the factors of adapters, and there are",
    ),
    (adapters.factors, "fedavg", {"model": _adapted(), "server": EXACT}, "needs model.adapter.lora.residual: true"),
    (
        adapters.factors,
        "fedavg",
        {"model": _adapted(residual=True)},
        "model.adapter.lora.residual: only server.aggregation",
    ),
    (
        adapters.factors,
        "fedavg",
        {"model": _adapted(train="b"), "server": {"aggregation": "lora"}},
        "with model.adapter.lora.train: b clients send one factor",
    ),
    (
        adapters.factors,
        "fedavg",
        {"model": _adapted(share="a"), "server": {"aggregation": "lora"}},
        "with model.adapter.lora.share: a clients send one factor",
    ),
    (
        adapters.factors,
        "fedavg",
        {"model": _adapted(residual=True), "server": EXACT | {"optimizer": {"name": "sgd", "lr": 0.5}}},
        "factors: exact computes the factors themselves",
    ),
    (adapters.embedding, "fedevocab", {"model": _adapted()}, "method fedevocab trains it at each client by itself"),
    (adapters.embedding, "fedrecon", {"model": _adapted()}, "method fedrecon trains it at each client by itself"),
    (
        adapters.embedding,
        "fedavg",
        {"model": _adapted(), "training": {"optimizer": {"name": "sgd", "lr": 0.1, "embedding_lr": 0.1}}},
        "leaves the embedding as it is",
    ),
    (
        evaluation.select,
        "fedavg",
        {"model": _adapted(share="a"), "evaluation": {"select": "Ag_val"}},
        "share: a keeps parts of it at clients",
    ),
    (
        audits.membership,
        "fedavg",
        {"model": _adapted(share="a"), "audits": ["membership"]},
        "share: a shares no complete encoder",
    ),
    (
        adapters.factors,
        "feddyn",
        {"model": _adapted(residual=True), "server": EXACT},
        "the server's step of method feddyn would change them",
    ),
]
