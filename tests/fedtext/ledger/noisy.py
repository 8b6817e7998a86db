"""Experiments with a guarantee, and the epsilons of their ledger."""

from typing import Any

from tests import tiny

DENSE, ROUNDS = 506_451, 25  # coordinates of the RR-LDP paper's dense network, and its rounds


def pair(epsilon: float, q: float = 0.001) -> list[Any]:
    return [{"quantize": {"q": q}}, {"randomized_response": {"epsilon": epsilon}}]


def epsilons(entries: list[Any]) -> dict[tuple[str, float], float | None]:
    """The epsilon of each unit and delta."""
    return {(entry.unit, entry.delta): entry.epsilon for entry in entries}


def central(fraction: float, noise: dict[str, float], **changes: Any) -> Any:
    settings = {
        "uplink": ["clip"],
        "server": {"weights": "uniform", "noise": noise},
        "participation": {"fraction": fraction, "sampling": "poisson"},
        "training": tiny.TRAINING | {"rounds": ROUNDS},
    }
    return tiny.experiment(**(settings | changes))
