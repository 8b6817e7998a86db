"""What adapters cannot be combined with, each case with the rule that refuses it."""

from typing import Any

from fedtext.config.compatibility import adapters, audits, evaluation, privacy
from tests.checkpoints import SCRATCH

RANKS = {2: 0.5, 4: 0.5}
SVD = {"aggregation": {"lora": {"factors": "svd"}}}
EXACT = {"aggregation": {"lora": {"factors": "exact"}}}


def adapted(**lora: Any) -> dict[str, Any]:
    return SCRATCH | {"adapter": {"lora": lora}}


ADAPTERS: list[tuple[Any, Any, dict[str, Any], str]] = [
    (
        adapters.nothing,
        "fedper",
        {"model": SCRATCH | {"adapter": {"lora": None}}},
        "method fedper keeps at each client, so that nothing would be shared",
    ),
    (
        adapters.nothing,
        "fedper",
        {"model": adapted(train="b", share="a")},
        "{train: b, share: a} trains B, which is not shared, and the output layer, which method fedper keeps",
    ),
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
    (
        adapters.factors,
        "lg_fedavg",
        {"model": adapted(), "server": {"aggregation": "lora"}},
        "combines the factors of adapters, and method lg_fedavg keeps them at each client",
    ),
    (
        adapters.factors,
        "lg_fedavg",
        {"model": adapted(ranks=RANKS), "server": SVD},
        "combines the factors of adapters, and method lg_fedavg keeps them at each client",
    ),
    (
        adapters.ranks,
        {"name": "lg_fedavg", "shared": "encoder"},
        {"model": adapted(ranks=RANKS)},
        r"combined by server.aggregation: {lora: {factors: svd}}, or mean: set it",
    ),
    (
        privacy.needs_table,
        "fedavg",
        {"model": adapted(), "audits": ["embedding_rows"]},
        "embedding_rows needs a shared embedding, and model.adapter leaves the embedding as it is: leave out one",
    ),
    (
        privacy.rows,
        "fedavg",
        {"model": adapted(), "server": {"absent_rows": "holders_only"}},
        "holders_only is about rows of a shared embedding, and model.adapter leaves the embedding as it is",
    ),
    *(
        (
            privacy.rows,
            "fedavg",
            {"model": adapted(), "wire": {"rows": rows}},
            f"wire.rows: {rows} is about rows of a shared embedding, and model.adapter leaves the embedding as it is",
        )
        for rows in ("own", "all")
    ),
    (adapters.factors, "fedavg", {"model": adapted(), "server": EXACT}, "needs model.adapter.lora.residual: true"),
    (
        adapters.factors,
        "fedavg",
        {"model": adapted(residual=True)},
        "model.adapter.lora.residual: only server.aggregation",
    ),
    (
        adapters.factors,
        "fedavg",
        {"model": adapted(train="b"), "server": {"aggregation": "lora"}},
        "with model.adapter.lora.train: b clients send one factor",
    ),
    (
        adapters.factors,
        "fedavg",
        {"model": adapted(share="a"), "server": {"aggregation": "lora"}},
        "with model.adapter.lora.share: a clients send one factor",
    ),
    (
        adapters.factors,
        "fedavg",
        {"model": adapted(residual=True), "server": EXACT | {"optimizer": {"name": "sgd", "lr": 0.5}}},
        "factors: exact computes the factors themselves",
    ),
    (adapters.factors, "ditto", {"model": adapted(), "server": SVD}, "method ditto compares or mixes them with a"),
    (adapters.factors, "apfl", {"model": adapted(), "server": SVD}, "method apfl compares or mixes them with a"),
    (
        adapters.factors,
        "fedavg",
        {
            "model": adapted(),
            "server": SVD,
            "training": {"optimizer": {"name": "adam", "lr": 0.1, "persist": True}},
        },
        "and training.optimizer.persist keeps the optimizer's state for those of the round before",
    ),
    (adapters.embedding, "fedevocab", {"model": adapted()}, "method fedevocab trains it at each client by itself"),
    (adapters.embedding, "fedrecon", {"model": adapted()}, "method fedrecon trains it at each client by itself"),
    (
        adapters.embedding,
        "fedavg",
        {"model": adapted(), "training": {"optimizer": {"name": "sgd", "lr": 0.1, "embedding_lr": 0.1}}},
        "leaves the embedding as it is",
    ),
    (
        evaluation.select,
        "fedavg",
        {"model": adapted(share="a"), "evaluation": {"select": "Ag_val"}},
        "share: a keeps parts of it at clients",
    ),
    (
        audits.membership,
        "fedavg",
        {"model": adapted(share="a"), "audits": ["membership"]},
        "share: a shares no complete encoder",
    ),
    (adapters.ranks, "fedavg", {"model": adapted(ranks=RANKS)}, r"combined by server.aggregation: {lora: {factors"),
    (
        adapters.ranks,
        "fedavg",
        {"model": adapted(ranks=RANKS, residual=True), "server": EXACT},
        r"combined by server.aggregation: {lora: {factors: svd}}, or mean: set it",
    ),
    (
        adapters.ranks,
        "fedavg",
        {"model": adapted(ranks=RANKS, train="b"), "server": SVD},
        "with train: b clients send one factor alone",
    ),
    (
        adapters.ranks,
        "fedavg",
        {"model": adapted(ranks=RANKS, share="a"), "server": SVD},
        "with share: a clients send one factor alone",
    ),
    (adapters.ranks, "scaffold", {"model": adapted(ranks=RANKS), "server": SVD}, "method scaffold has a state beside"),
    (
        adapters.ranks,
        "fedavg",
        {"model": adapted(ranks=RANKS), "server": SVD, "training": {"dp_sgd": {"clip_norm": 1.0, "multiplier": 1.0}}},
        "training.dp_sgd adds noise also to factors that a client does not have",
    ),
    (
        adapters.ranks,
        "fedavg",
        {
            "model": adapted(ranks=RANKS),
            "server": SVD,
            "adversaries": {"fraction": 0.4, "attack": "little_is_enough"},
        },
        "little_is_enough computes with updates of one size",
    ),
    (
        adapters.ranks,
        "fedavg",
        {"model": adapted(ranks=RANKS), "server": SVD, "audits": ["membership"]},
        "audits compare updates of one size",
    ),
    (
        adapters.ranks,
        "fedavg",
        {"model": adapted(ranks=RANKS), "server": SVD, "privacy": {"canaries": {}}},
        "privacy.canaries are clients beyond those that have ranks",
    ),
    (
        adapters.factors,
        "feddyn",
        {"model": adapted(residual=True), "server": EXACT},
        "the server's step of method feddyn would change them",
    ),
]
