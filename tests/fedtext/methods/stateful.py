"""Runs of methods with state on two clients with a bag of words."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedtext.client.local_fleet import LocalFleet
from fedtext.parameters import initial
from fedtext.server.federation import Federation
from tests import tiny

CORPUS = tiny.TWO
LR, EPOCHS, ROUNDS, ALPHA = 0.2, 3, 3, 0.3
HALF = {"fraction": 0.5}


def configured(method: Any, momentum: float = 0.0, **changes: Any) -> Any:
    training = {"rounds": ROUNDS, "local_epochs": EPOCHS, "batch_size": 99}
    training |= {"optimizer": {"lr": LR, "momentum": momentum}}
    model = {"name": "bag", "embedding": {"dim": 5}, "hidden": ()}
    base = {"model": model, "training": training, "evaluation": {"personalize": None}}
    return tiny.experiment(method, **base | changes)


def trained(experiment: Any) -> tuple[Federation, LocalFleet, dict[str, Tensor]]:
    """Run an experiment from parameters that are drawn. The third result is the shared ones, in float64."""
    rng = np.random.default_rng(2)
    shared, private = (
        {name: np.float32(0.5) * rng.standard_normal(tensor.shape, np.float32) for name, tensor in part.items()}
        for part in initial(experiment, CORPUS)
    )
    fleet = LocalFleet(experiment, CORPUS, private)
    federation = Federation(experiment, shared, fleet, None)
    list(federation.run())
    return federation, fleet, {name: torch.from_numpy(tensor).double() for name, tensor in shared.items()}
