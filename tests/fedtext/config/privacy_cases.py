"""What canary clients and private vocabularies do not go with."""

from typing import Any

from fedtext.config import compatibility
from fedtext.config.compatibility import canaries, privacy, texts

NOISE: dict[str, Any] = {
    "uplink": ["clip"],
    "server": {"weights": "uniform", "noise": {"multiplier": 1}},
    "privacy": {"canaries": {}},
}
LOCAL: dict[str, Any] = {"uplink": ["clip", {"gaussian": {"sigma": 0.1}}], "privacy": {"canaries": {}}}
SHUFFLED: dict[str, Any] = {
    "uplink": ["quantize", {"randomized_response": {"epsilon": 0.3}}],
    "wire": {"shuffle": True},
    "server": {"weights": "uniform"},
}
RELEASED: dict[str, Any] = {"corpus": {"name": "demo", "vocabulary": {"private": "triehh"}}}
PRIVACY: list[tuple[compatibility.Rule, Any, dict[str, Any], str]] = [
    (canaries.claimed, "local_only", LOCAL, "method local_only sends no updates, so that no canary would be seen"),
    (canaries.claimed, "fedavg", {"privacy": {"canaries": {}}}, "guarantees an epsilon that could be measured: set"),
    (canaries.claimed, "fedavg", LOCAL | {"uplink": ["clip"]}, "nothing in this experiment guarantees an epsilon"),
    (
        canaries.seen,
        "fedavg",
        NOISE | {"uplink": [{"clip": {"adaptive": {"quantile": 0.5}}}]},
        "follows the norms of updates, and canaries would raise it",
    ),
    (
        privacy.shuffled,
        "fedavg",
        {"wire": {"shuffle": True}},
        "only bits gain by it: set randomized_response",
    ),
    (privacy.shuffled, "fedavg", SHUFFLED | {"server": {}}, "cannot weigh it: set server.weights: uniform"),
    (
        privacy.shuffled,
        "fedavg",
        SHUFFLED | {"audits": ["label_leakage"]},
        "label_leakage attacks the update of one client, and the server sees none",
    ),
    (
        privacy.shuffled,
        "fedavg",
        SHUFFLED | {"adversaries": {"fraction": 0.4, "attack": "little_is_enough"}},
        "adversaries of little_is_enough replace updates that the server has received",
    ),
    (
        privacy.shuffled,
        "fedavg",
        SHUFFLED | {"wire": {"shuffle": True, "rows": "own"}},
        "own rows name the words of a client, and no other client hides them",
    ),
    (
        texts.private_vocabulary,
        "fedavg",
        RELEASED | {"privacy": {"noise": "secret"}},
        "it is released before a run has its key, by draws from the seed",
    ),
    (texts.own_vocabularies, "fedevocab", RELEASED, "clients keep their words, so that nothing is released"),
    (canaries.seen, "fedavg", LOCAL | {"wire": {"rows": "own"}}, "canaries have no words, and own rows are those"),
]
