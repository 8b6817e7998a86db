"""Cases of the rules on noise, secure sums, canary clients and private vocabularies."""

from typing import Any

from fedtext.config import compatibility
from fedtext.config.compatibility import canaries, privacy, secure, texts
from tests import tiny

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
SECURE = {"secure_aggregation": {}}
CORRELATED: dict[str, Any] = {
    "uplink": ["clip"],
    "server": {"weights": "uniform", "noise": {"multiplier": 1, "mechanism": {"banded": {"bands": 5}}}},
}
PRIVACY: list[tuple[compatibility.Rule, Any, dict[str, Any], str]] = [
    (
        privacy.server_noise,
        "fedavg",
        NOISE | {"server": NOISE["server"] | {"aggregation": {"norm_bounded": {"norm": 1.0}}}},
        "it is measured by the norm that clip leaves an update, and aggregation norm_bounded scales each at the server",
    ),
    (
        privacy.server_noise,
        "fedavg",
        {"server": {"noise": {"multiplier": 1}}},
        "a client's part of the sum is not bounded",
    ),
    (
        privacy.correlated_noise,
        "fedavg",
        CORRELATED | {"participation": {"fraction": 0.5, "sampling": "poisson"}},
        "server.noise.mechanism: banded needs to be known how many rounds lie between a client's participations",
    ),
    (
        privacy.correlated_noise,
        "fedavg",
        CORRELATED | {"participation": {"fraction": 0.25, "sampling": "epochs"}},
        "banded.bands: 5 are more than the 4 rounds from one participation",
    ),
    (
        privacy.correlated_noise,
        {"name": "lg_fedavg", "pretrain": 1},
        CORRELATED
        | {"server": {"weights": "uniform", "noise": {"multiplier": 1.0, "mechanism": "tree"}}, "participation": {}},
        "server.noise.mechanism: tree: method lg_fedavg shares some parameters only in some rounds",
    ),
    (
        privacy.dp_sgd,
        "kteps",
        {"training": tiny.TRAINING | {"dp_sgd": {"multiplier": 1.0}}},
        "training.dp_sgd: it clips the gradient of each text, and the objective of method kteps is of a batch",
    ),
    (
        privacy.dp_sgd,
        "fedevocab",
        {"training": tiny.TRAINING | {"dp_sgd": {"multiplier": 1.0}}},
        "training.dp_sgd: it counts the batches of one training, and a local update of method fedevocab has several",
    ),
    (
        privacy.dp_sgd,
        "fedavg",
        {"training": tiny.TRAINING | {"dp_sgd": {"multiplier": 1.0}, "stack": 4}},
        "training.dp_sgd: gradients are of one text at a time, and stacks of several clients",
    ),
    (
        privacy.distributed_noise,
        "fedavg",
        {
            "uplink": ["clip"],
            "server": {"weights": "uniform", "noise": {"mechanism": "skellam", "multiplier": 1.0}},
        },
        "server.noise.mechanism: skellam: each client adds a share of the noise, which hides nothing of its own",
    ),
    (
        privacy.adaptive_clip,
        "fedavg",
        {"uplink": [{"clip": {"adaptive": {}}}]},
        "uplink: clip.adaptive follows a noised share of the updates: set server.noise, or leave adaptive out",
    ),
    (secure.sums, "local_only", {"server": SECURE}, "method local_only sends no updates, so that there is no sum"),
    (secure.sums, "fedatt", {"server": SECURE}, "sees no single update, and the attention of method fedatt needs each"),
    (
        secure.sums,
        "fedavg",
        {"server": SECURE | {"aggregation": {"norm_bounded": {"norm": 1.0}}}},
        "aggregation norm_bounded scales each .*: use clip in uplink, or leave out one of them",
    ),
    (
        secure.seen_updates,
        "fedavg",
        {"server": SECURE, "audits": ["membership", "label_leakage"]},
        "audits: label_leakage attacks the update of one client, which the server does not see",
    ),
    (
        secure.seen_updates,
        "fedavg",
        {"server": SECURE, "adversaries": {"fraction": 0.4, "attack": "little_is_enough"}},
        "little_is_enough replaces updates that the server has received",
    ),
    (
        secure.all_rows,
        "fedavg",
        {"server": SECURE, "wire": {"rows": "own"}},
        "own rows disclose the words of a client: set wire.rows: all",
    ),
    (
        secure.beside,
        "fedavg",
        {"server": SECURE, "uplink": [{"clip": {"norm": 0.1, "adaptive": {"quantile": 0.5}}}]},
        "an update has integers of one range, and clip sends a count beside it",
    ),
    (
        canaries.seen,
        "fedavg",
        LOCAL | {"wire": {"rows": "all", "shuffle": True}},
        "a canary's bits are seen with its name, and the epsilon of wire.shuffle is of bits without it",
    ),
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
        "scaffold",
        SHUFFLED,
        "with method scaffold what clients send depends on the bits that they have sent before",
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
