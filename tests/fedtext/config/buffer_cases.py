"""What asynchronous training cannot be combined with, each case with the rule that refuses it."""

from typing import Any

from fedtext.config.compatibility import buffer
from tests.checkpoints import SCRATCH

_BUFFER = {"buffer": {"size": 2}}
_PACE = {"server": _BUFFER, "participation": {"pace": {}}}


def _paced(**participation: Any) -> dict[str, Any]:
    return {"server": _BUFFER, "participation": {"pace": {}, **participation}}


BUFFER: list[tuple[Any, Any, dict[str, Any], str]] = [
    (buffer.clock, "fedavg", {"server": _BUFFER}, "how long clients take: set participation.pace"),
    (buffer.clock, "fedavg", _paced(sampling="poisson"), "which participation.sampling is for"),
    (
        buffer.clock,
        "fedavg",
        _paced(availability={}),
        "by which participation.availability counts hours: set availability.hour_s",
    ),
    (buffer.clock, "fedavg", _paced(deadline_s=3), "which participation.deadline_s is for"),
    (buffer.clock, "fedavg", _paced(over_selection=1.5), "which participation.over_selection is for"),
    (buffer.clock, "fedavg", _paced(min_clients=2), "which participation.min_clients is for"),
    (buffer.methods, "local_only", _PACE, "sends no updates, and a buffer is of updates"),
    (buffer.methods, "scaffold", _PACE, "method scaffold has a state or a step of its own at the server"),
    (buffer.methods, "feddyn", _PACE, "method feddyn has a state or a step of its own at the server"),
    (buffer.methods, {"name": "lg_fedavg", "pretrain": 1}, _PACE, "shares other parameters in some rounds"),
    (
        buffer.methods,
        "fedavg",
        _PACE | {"model": SCRATCH | {"adapter": {}}, "server": _BUFFER | {"aggregation": "lora"}},
        "aggregation lora combines factors that began alike",
    ),
    (
        buffer.methods,
        "fedavg",
        _PACE | {"server": _BUFFER | {"aggregation": {"centered_clipping": {"radius": 1.0}}}},
        "aggregation centered_clipping has a state at the server, which is defined for rounds",
    ),
    (
        buffer.guarantees,
        "fedavg",
        _PACE | {"uplink": ["clip"], "server": _BUFFER | {"weights": "uniform", "noise": {"multiplier": 1}}},
        "whose updates server.noise hides",
    ),
    (
        buffer.guarantees,
        "fedavg",
        _PACE | {"server": _BUFFER | {"secure_aggregation": {}}},
        "whose updates server.secure_aggregation hides",
    ),
    (
        buffer.guarantees,
        "fedavg",
        _PACE | {"uplink": ["clip", {"gaussian": {"sigma": 0.1}}], "privacy": {"canaries": {}}},
        "whose updates privacy.canaries hides",
    ),
    (
        buffer.guarantees,
        "fedavg",
        _PACE
        | {
            "uplink": ["quantize", {"randomized_response": {"epsilon": 0.3}}],
            "wire": {"shuffle": True},
            "server": _BUFFER | {"weights": "uniform"},
        },
        "whose updates wire.shuffle hides",
    ),
]
