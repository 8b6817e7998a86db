"""What canary clients do not go with."""

from typing import Any

from fedtext.config import compatibility
from fedtext.config.compatibility import canaries

NOISE: dict[str, Any] = {
    "uplink": ["clip"],
    "server": {"weights": "uniform", "noise": {"multiplier": 1}},
    "privacy": {"canaries": {}},
}
LOCAL: dict[str, Any] = {"uplink": ["clip", {"gaussian": {"sigma": 0.1}}], "privacy": {"canaries": {}}}
CANARIES: list[tuple[compatibility.Rule, Any, dict[str, Any], str]] = [
    (canaries.claimed, "local_only", LOCAL, "method local_only sends no updates, so that no canary would be seen"),
    (canaries.claimed, "fedavg", {"privacy": {"canaries": {}}}, "guarantees an epsilon that could be measured: set"),
    (canaries.claimed, "fedavg", LOCAL | {"uplink": ["clip"]}, "nothing in this experiment guarantees an epsilon"),
    (
        canaries.seen,
        "fedavg",
        NOISE | {"uplink": [{"clip": {"adaptive": {"quantile": 0.5}}}]},
        "follows the norms of updates, and canaries would raise it",
    ),
    (canaries.seen, "fedavg", LOCAL | {"wire": {"rows": "own"}}, "canaries have no words, and own rows are those"),
]
