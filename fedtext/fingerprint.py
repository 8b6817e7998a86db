"""Names of what is computed: by these a checkpoint knows its run, and reproducible noise its experiment."""

import hashlib
import json
from typing import Any

from fedtext.experiment import Experiment
from fedtext.ledger import noise_multiplier
from fedtext.pretrained import identity
from fedtext.training.choice import stack_size

# What a run computes depends on these parts of an experiment and on no others.
SCIENCE = {
    *("seed", "corpus", "model", "method", "uplink", "wire", "training", "participation", "server", "evaluation"),
    "privacy",
}


def fingerprint(experiment: Experiment, content: str, clients: int) -> str:
    """Names what is computed by so many clients on a corpus of this content: equal for two runs that must give equal
    numbers, whatever cluster they run on."""
    return _digest([_computed(experiment, clients), content])[:16]


def released(experiment: Experiment, content: str, clients: int) -> str:
    """Names everything that the updates and the shared parameters of a round depend on.

    It leaves out what cannot change them: how the model is evaluated, and how many rounds follow. A longer run of the
    same experiment therefore draws the same noise, round for round, and releases the same parameters.

    Args:
        experiment: The experiment, with its seed.
        content: Digest of the corpus as the clients hold it.
        clients: Number of participants.

    Returns:
        A hexadecimal SHA-256 digest.
    """
    parts = _computed(experiment, clients)
    del parts["evaluation"], parts["training"]["rounds"]
    if experiment.server.noise:  # a target epsilon asks for other noise where the number of rounds is another
        parts["server"]["noise"] = {"multiplier": noise_multiplier(experiment)}
    return _digest([parts, content, clients])


def _computed(experiment: Experiment, clients: int) -> dict[str, Any]:
    parts = experiment.model_dump(mode="json", include=SCIENCE)
    parts["training"] |= {"engine": experiment.engine, "stack": stack_size(experiment, clients)[0]}
    return _identified(parts)


def _digest(parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _identified(part: Any) -> Any:
    """An experiment's content with the identity of each checkpoint in the place of its path."""
    if isinstance(part, dict):
        named = {
            key: value for key, value in part.items() if key in ("checkpoint", "source") and isinstance(value, str)
        }
        return {key: _identified(value) for key, value in part.items()} | {
            key: identity(value) for key, value in named.items()
        }
    return [_identified(each) for each in part] if isinstance(part, list) else part
