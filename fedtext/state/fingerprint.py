"""Digests of experiments, by which checkpoints are matched with runs and reproducible noise is derived."""

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from torch import nn

from fedtext.accounting import composition
from fedtext.config.engine import stack_size
from fedtext.config.experiment import Experiment
from fedtext.config.participation import FEW
from fedtext.config.secure import counted
from fedtext.layout import is_table
from fedtext.ledger.central import composed, noise_multiplier, round_multiplier, strategy
from fedtext.ledger.distributed import is_distributed
from fedtext.ledger.examples import example_multiplier
from fedtext.methods.asp_mtl import ASPMTL
from fedtext.methods.copies import Copying
from fedtext.methods.fedmmd import FedMMD
from fedtext.methods.frozen import Frozen
from fedtext.methods.kteps import KTEPS
from fedtext.models.places import places_of
from fedtext.models.sizes import without_memory
from fedtext.parameters import build_network
from fedtext.text.pretrained import identity
from fedtext.text.representation import BPE
from fedtext.training.config import decays

# Increased whenever the same experiment gives other results than in the version before: runs of that version are not
# continued, and noise is different.
RESULTS = 1

# As RESULTS, for the experiments alone that compute in this way (see `_ways`).
VERSIONS = {
    # Noise of the server from a secret key. Were it rounded in another way, a round that is repeated would be released
    # with the same draws in another size, and the difference of both releases would cancel them.
    "rounding": 2,
    "inward": 1,  # noise of the server: the parts of its sum are rounded towards zero
    "causal": 2,  # the model of this name: its layers are computed for the tokens alone
    "barred": 1,  # this model from a checkpoint, with byte pairs: what no text has is never predicted
    "stacked": 1,  # stacks with engine native: a recurrent classifier's step is computed in C
    # Transformers with engine native in bfloat16: products have rows of zeros at the end, for which dropout draws too.
    "filled": 1,
    # Transformers with engine native: the draws of dropout, and blocks with an adapter, are computed in C.
    "blocks": 2,
    "halves": 1,  # such blocks in bfloat16
    "fixed": 1,  # methods with a state: it is not about parameters that clients do not move
    "invited": 1,  # participation.over_selection: the number of clients is no longer rounded up by an error of rounding
    "little": 1,  # attack little_is_enough: in rounds that adversaries are the majority of, and of rows that none has
    "based": 1,  # Ditto and APFL with a residual of adapters: it is a part of both models
    "awaited": 1,  # secure aggregation with over_selection: its graph counts clients that a round does not wait for
    # Secure aggregation: shares of colluding and absent clients are no longer rounded up for an error of rounding.
    "counted": 1,
    "finer": 1,  # sampled rounds of many clients: weights are divided by about those of a round, and not by all
    "summed": 1,  # ... of many clients with dropout, over_selection or a buffer: those whose updates come
    "kernels": 1,  # KTEPS, FedMMD and ASP-MTL: texts whose features are equal up to rounding
    "doubles": 1,  # KTEPS with engine native: kernels are computed in float64
    "summands": 1,  # the bits of a sum with secure aggregation leave room for canaries
    "tied": 1,  # networks of plug-ins with a parameter in several places: it is the same in all of them
    # Noise of the server for a target epsilon that is found by privacy losses where the other bounds are above 100.
    "losses": 1,
    "unseen": 1,  # audits of a corpus on disk leave out test texts that other clients train on
    "cohorts": 1,  # noise of the server on Poisson samples: they are drawn from the run's key, and not from the seed
    # FedMMD and FedFusion with weight decay, which leaves the frozen copy alone; and phases of plug-ins that move some
    # of several tables, and no others.
    "still": 1,
}

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
    "corpus": {"secrets": None, "date": None, "since": None, "until": None, "test_from": None},
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
    parts |= {name: VERSIONS[name] for name, used in _ways(experiment, stack, clients).items() if used}
    parts["training"] |= {"engine": experiment.engine, "stack": stack}
    parts = _identified(parts)
    if used := experiment.training_plugins:
        parts["plugins"] = sorted(plugin.digest for plugin in used)
    return parts


def _ways(experiment: Experiment, stack: int, clients: int) -> dict[str, bool]:
    """Return whether an experiment computes in each of the ways of ``VERSIONS``."""
    native, secret = experiment.engine == "native", experiment.privacy.noise == "secret"
    rounded = native and getattr(experiment.model, "precision", "float32") == "bfloat16"
    adapter = getattr(experiment.model, "adapter", None)
    lora = getattr(adapter, "lora", None)
    pretrained = experiment.model.name == "causal" and getattr(experiment.model, "checkpoint", None) is not None
    invited, divided = experiment.participation.invited(clients), not experiment.server.secure_aggregation
    buffer = experiment.server.buffer.size if experiment.server.buffer else None
    come = experiment.participation.summed(clients, buffer)
    amplified = bool(experiment.server.noise) and experiment.participation.apart is None
    needed, times = experiment.participation.largest(clients), experiment.participation.over_selection
    return {
        "invited": math.ceil(times * needed) != experiment.participation.over_selected(needed),
        "rounding": bool(experiment.server.noise) and secret and not is_distributed(experiment),
        "inward": bool(experiment.server.noise) and not is_distributed(experiment),
        "causal": experiment.model.name == "causal",
        "barred": pretrained and isinstance(experiment.corpus.text, BPE),
        "stacked": native and stack > 1,
        "filled": rounded,
        "halves": rounded and adapter is not None,
        "summands": bool(experiment.server.secure_aggregation and experiment.privacy.canaries),
        "losses": amplified and _beyond_others(experiment),
        "cohorts": amplified and not secret and not is_distributed(experiment),
        "fixed": experiment.method.has_hooks() and adapter is not None,
        "little": experiment.adversaries is not None and experiment.adversaries.attack.name == "little_is_enough",
        "awaited": bool(experiment.server.secure_aggregation) and times > 1,
        "counted": _counted_more(experiment, clients),
        "based": isinstance(experiment.method, Copying) and lora is not None and lora.residual,
        "finer": divided and clients > FEW and 2 * invited <= clients,
        "summed": divided and clients > FEW and 2 * come <= clients and come < invited,
        "kernels": isinstance(experiment.method, KTEPS | FedMMD | ASPMTL),
        "doubles": native and isinstance(experiment.method, KTEPS),
        "blocks": native and experiment.model.name in ("transformer", "causal"),
        "tied": _tied(experiment, clients),
        "still": _kept_by_decay(experiment) or _in_some_tables(experiment, clients),
        "unseen": getattr(experiment.corpus, "on_disk", False) and any(a.needs_unseen for a in experiment.audits),
    }


def _counted_more(experiment: Experiment, clients: int) -> bool:
    """Return whether the graph of secure aggregation may have had more neighbours, for a client more in a share."""
    config, participation = experiment.server.secure_aggregation, experiment.participation
    if not config or not config.masks or config.neighbors is not None:
        return False
    most = clients if participation.sampling == "poisson" else participation.invited(clients)
    least = most if participation.sampling == "fixed" and not participation.availability else 2
    return any(_is_miscounted(share, least, most) for share in (config.colluding, config.dropping))


@lru_cache
def _is_miscounted(share: float, least: int, most: int) -> bool:
    """Return whether an error of rounding makes a share of some number from ``least`` to ``most`` one more."""
    return any(math.ceil(share * number) != counted(share, number) for number in range(least, most + 1))


def _tied(experiment: Experiment, clients: int) -> bool:
    """Return whether the network of a plug-in has a parameter in several places; True if it cannot be known here."""
    if all(type(part).__module__.startswith("fedtext.") for part in (experiment.model, experiment.method)):
        return False  # none of ours has
    network = _network(experiment, clients)
    return network is None or bool(places_of(network).tied)


def _kept_by_decay(experiment: Experiment) -> bool:
    """Return whether weight decay has to leave a frozen copy alone."""
    return isinstance(experiment.method, Frozen) and decays(experiment.training.optimizer)


def _in_some_tables(experiment: Experiment, clients: int) -> bool:
    """Return whether some of several tables move in a phase of a plug-in; True if it cannot be known here."""
    method = experiment.method
    if type(method).__module__.startswith("fedtext."):
        return False
    network = _network(experiment, clients)
    if network is None:
        return True
    tables = [name for name, _ in network.named_parameters() if is_table(name)]
    phases = (*method.phases(1), *method.before_evaluation())
    return any(0 < sum(map(phase.moves, tables)) < len(tables) for phase in phases)


def _network(experiment: Experiment, clients: int) -> nn.Module | None:
    """Return the network of an experiment with a plug-in, of two classes; None if its code does not build it."""
    try:
        with without_memory(experiment.model):
            return build_network(experiment, 2, max(1, clients - experiment.method.pooled), weights=False)
    except Exception:  # any of a plug-in's code, which may be for another number of classes
        return None


def _beyond_others(experiment: Experiment) -> bool:
    """Return whether Poisson samples have less noise for a target epsilon than by bounds of other kinds alone."""
    noise = experiment.server.noise
    if noise is None or noise.target_epsilon is None or is_distributed(experiment) or not composition.available():
        return False
    fraction, count = composed(experiment, experiment.training.rounds)
    return composition.beyond_others(noise_multiplier(experiment), fraction, count, noise.delta)


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
