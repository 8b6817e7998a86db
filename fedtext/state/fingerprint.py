"""Names of what is computed: by these a checkpoint knows its run, and reproducible noise its experiment."""

import hashlib
import json
from typing import Any

from fedtext.config.engine import stack_size
from fedtext.config.experiment import Experiment
from fedtext.ledger import noise_multiplier
from fedtext.text.pretrained import identity

# Raised whenever the same experiment computes something else than in the version before: a run of that version is not
# continued, and draws other noise.
RESULTS = 1

# What a run computes depends on these parts of an experiment and on no others.
SCIENCE = {
    *("seed", "corpus", "model", "method", "uplink", "wire", "training", "participation", "server", "evaluation"),
    "privacy",
}

# Keys that were added since, by the section they stand in, each with the value under which a run computes what it
# computed without the key. With this value a key is left out of all names, so that runs of before can be continued and
# draw the same noise.
ADDED: dict[str, dict[str, Any]] = {"server": {"aggregation": {"name": "auto"}}}


def named(experiment: Experiment, parts: set[str]) -> dict[str, Any]:
    """Return these parts of an experiment as they enter a name: without the keys of ``ADDED`` at their defaults."""
    content = experiment.model_dump(mode="json", include=parts)
    for section, defaults in ADDED.items():
        for key, default in defaults.items() if section in content else ():
            if content[section][key] == default:
                del content[section][key]
    return content


def fingerprint(experiment: Experiment, content: str, clients: int) -> str:
    """Name what ``clients`` clients compute on a corpus of this content: equal for two runs that must give equal
    numbers, whatever cluster they run on.

    The number of rounds is left out where a run may be made longer: its state after a round does not depend on it.
    """
    parts = _computed(experiment, clients)
    if not fixed_length(experiment):
        del parts["training"]["rounds"]
    return _digest([parts, content])[:16]


def fixed_length(experiment: Experiment) -> str:
    """Return why a run that was made longer would not equal one begun with as many rounds; empty if it would."""
    evaluation, noise = experiment.evaluation, experiment.server.noise
    if evaluation.select != "last":
        return "evaluation.select has had the test texts evaluated by the model it selected"
    if noise and noise.target_epsilon is not None:
        return "server.noise.target_epsilon is spent over the rounds it was begun with"
    if evaluation.thresholds and evaluation.every > 1:
        return "evaluation.thresholds were looked for in its last round, which evaluation.every would leave out"
    return ""


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
    parts = named(experiment, SCIENCE)
    parts["training"] |= {"engine": experiment.engine, "stack": stack_size(experiment, clients)[0]}
    parts = _identified(parts)
    if experiment.all_plugins:
        parts["plugins"] = sorted(plugin.digest for plugin in experiment.all_plugins)
    return parts


def _digest(parts: Any) -> str:
    return hashlib.sha256(json.dumps([RESULTS, parts], sort_keys=True).encode()).hexdigest()


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
