"""What canary clients and private vocabularies do not go with."""

from typing import Any

from fedtext.config import compatibility
from fedtext.config.compatibility import canaries, texts

NOISE: dict[str, Any] = {
    "uplink": ["clip"],
    "server": {"weights": "uniform", "noise": {"multiplier": 1}},
    "privacy": {"canaries": {}},
}
LOCAL: dict[str, Any] = {"uplink": ["clip", {"gaussian": {"sigma": 0.1}}], "privacy": {"canaries": {}}}
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
        texts.private_vocabulary,
        "fedavg",
        RELEASED | {"privacy": {"noise": "secret"}},
        "it is released before a run has its key, by draws from the seed",
    ),
    (texts.own_vocabularies, "fedevocab", RELEASED, "clients keep their words, so that nothing is released"),
    (canaries.seen, "fedavg", LOCAL | {"wire": {"rows": "own"}}, "canaries have no words, and own rows are those"),
]
