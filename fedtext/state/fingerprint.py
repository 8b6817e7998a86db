"""Digests of experiments, by which checkpoints are matched with runs and reproducible noise is derived."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from fedtext.config.engine import stack_size
from fedtext.config.experiment import Experiment
from fedtext.ledger.central import noise_multiplier, round_multiplier, strategy
from fedtext.ledger.distributed import is_distributed
from fedtext.ledger.examples import example_multiplier
from fedtext.state.versions import VERSIONS, ways
from fedtext.text.pretrained import identity

# Increased whenever the same experiment gives other results than in the version before: runs of that version are not
# continued, and noise is different.
RESULTS = 1

# The results of a run depend on these parts of an experiment only.
SCIENCE = {
    *("seed", "corpus", "model", "method", "uplink", "wire", "training", "participation", "server", "evaluation"),
    "privacy",
    "adversaries",
}

# Keys added since then, by section, each with the value that gives the results of versions without the key. With this
# value a key is left out of all digests, so that earlier runs can be continued and draw the same noise.
ADDED: dict[str, dict[str, Any]] = {
    "": {"adversaries": None},  # at the top level
    "server": {"aggregation": {"name": "auto"}, "secure_aggregation": None, "buffer": None},
    "evaluation": {"personalize_at": "last", "clients": "all", "generate": None},
    "evaluation.union": {"best_round": False},
    "participation": {
        "min_clients": 1,
        "availability": None,
        "pace": None,
        "deadline_s": None,
        "over_selection": 1.0,
        "separation": None,
    },
    "participation.availability": {"hour_s": None},
    "privacy": {"canaries": None},
    "corpus": {"secrets": None, "date": None, "since": None, "until": None, "test_from": None, "classes": None},
    "corpus.text.words": {"normalize": False},
    "model": {"projection": False, "kv_heads": None},
    "uplink.clip": {"adaptive": None},
    "training": {"dp_sgd": None},
    "model.adapter.lora": {"checkpoint": None, "blocks": None, "ranks": None, "lr_ratio": 1.0},
    "server.noise.mechanism": {"coefficients": None},
    "server.noise": {"mechanism": {"name": "independent"}, "cohort_size": None},
}


def named(experiment: Experiment, parts: set[str]) -> dict[str, Any]:
    """Return these parts of an experiment for a digest: without the keys of ``ADDED`` at their defaults."""
    content = experiment.model_dump(mode="json", include=parts, by_alias=False)
    if "corpus" in content:
        content["corpus"].pop("storage", None)  # results do not depend on where texts are
    model = content.get("model", {})
    if model.get("name") == "causal" and model.get("architecture") in ("gpt2", None):  # a key that was added later
        del model["architecture"]
    if adapter := model.get("adapter"):
        adapter.pop("cache_mb", None)  # nor on how many outputs are stored
    for section, defaults in ADDED.items():
        for there in _sections(content, section.split(".") if section else []):
            for key, default in defaults.items():
                if key in there and there[key] == default:
                    del there[key]
    return content


def _sections(content: Any, path: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the sections at a path, of which a list has several."""
    if isinstance(content, list):
        for each in content:
            yield from _sections(each, path)
    elif isinstance(content, dict):
        if path:
            yield from _sections(content.get(path[0]), path[1:])
        else:
            yield content


def fingerprint(experiment: Experiment, content: str, clients: int) -> str:
    """Compute the fingerprint of a run. It is equal for runs that must give equal results, on whatever cluster.

    The number of rounds is left out if a run can be extended: its state after a round does not depend on it.

    Args:
        experiment: The experiment, with its seed.
        content: Digest of the corpus (``Corpus.content``).
        clients: Number of participants.

    Returns:
        16 hexadecimal digits.
    """
    parts = _computed(experiment, clients)
    if not fixed_length(experiment):
        del parts["training"]["rounds"]
    if made := strategy(experiment):  # its coefficients are the same whether they are given or computed
        parts["server"]["noise"]["mechanism"].pop("coefficients", None)
        parts["server"]["noise"]["coefficients"] = made.coefficients
    return _digest([parts, content])[:16]


def fixed_length(experiment: Experiment) -> str:
    """Return why an extended run would differ from one begun with that number of rounds; empty if it would not."""
    evaluation, noise = experiment.evaluation, experiment.server.noise
    if evaluation.select != "last":
        return "evaluation.select has had the test texts evaluated by the model it selected"
    if strategy(experiment):
        return "server.noise.mechanism makes noise for the rounds it was begun with"
    if noise and noise.target_epsilon is not None:
        return "server.noise.target_epsilon is spent over the rounds it was begun with"
    examples = experiment.training.dp_sgd
    if examples and examples.target_epsilon is not None:
        return "training.dp_sgd.target_epsilon is spent over the rounds it was begun with"
    if evaluation.thresholds and evaluation.every > 1:
        return "evaluation.thresholds were looked for in its last round, which evaluation.every would leave out"
    return ""


def released(experiment: Experiment, content: str, clients: int) -> str:
    """Compute a digest of everything on which the updates and the shared parameters of a round depend.

    The evaluation and the number of rounds are left out, since they cannot change them. A longer run of the same
    experiment therefore draws the same noise in each round, and releases the same parameters.

    Args:
        experiment: The experiment, with its seed.
        content: Digest of the corpus (``Corpus.content``).
        clients: Number of participants.

    Returns:
        A hexadecimal SHA-256 digest.
    """
    parts = _computed(experiment, clients)
    del parts["evaluation"], parts["training"]["rounds"]
    parts.pop("unseen", None)  # no update depends on an audit
    if not experiment.server.noise:  # canaries are in no sum
        parts["privacy"].pop("canaries", None)
    if experiment.training.dp_sgd:  # with a target epsilon the noise depends on the number of rounds
        parts["training"]["dp_sgd"] = [experiment.training.dp_sgd.clip_norm, example_multiplier(experiment)]
    if experiment.server.secure_aggregation:  # masks cancel
        parts["server"]["secure_aggregation"] = experiment.server.secure_aggregation.model_dump(
            include={"range", "bits", *(["colluding"] if is_distributed(experiment) else [])}
        )
    if is_distributed(experiment):  # what else it follows from is among these parts
        target = experiment.server.noise and experiment.server.noise.target_epsilon
        parts["server"]["noise"] |= {"rounds": experiment.training.rounds if target else None}
    elif experiment.server.noise:  # with a target epsilon the noise depends on the number of rounds
        parts["server"]["noise"] = {"multiplier": noise_multiplier(experiment)}
        if cohort_size := experiment.server.noise.cohort_size:
            parts["server"]["noise"]["cohort_size"] = cohort_size
    if made := strategy(experiment):
        parts["server"]["noise"] |= {"factor": round_multiplier(experiment), "coefficients": made.coefficients}
        parts["server"]["noise"] |= {"kind": type(made).__name__, "rounds": made.rounds}
    return _digest([parts, content, clients])


def _computed(experiment: Experiment, clients: int) -> dict[str, Any]:
    parts = named(experiment, SCIENCE)
    parts["wire"].pop("shuffle", None)  # sums do not depend on order
    stack = stack_size(experiment, clients)[0]
    parts |= {name: VERSIONS[name] for name, used in ways(experiment, stack, clients).items() if used}
    parts["training"] |= {"engine": experiment.engine, "stack": stack}
    parts = _identified(parts)
    if used := experiment.training_plugins:
        parts["plugins"] = sorted(plugin.digest for plugin in used)
    return parts


def _digest(parts: Any) -> str:
    return hashlib.sha256(json.dumps([RESULTS, parts], sort_keys=True).encode()).hexdigest()


def _identified(part: Any) -> Any:
    """Replace the paths of checkpoints in an experiment's content by their identities."""
    if isinstance(part, dict):
        named = {
            key: value for key, value in part.items() if key in ("checkpoint", "source") and isinstance(value, str)
        }
        return {key: _identified(value) for key, value in part.items()} | {
            key: identity(value) for key, value in named.items()
        }
    return [_identified(each) for each in part] if isinstance(part, list) else part
