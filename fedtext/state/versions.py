"""Versions of ways to compute: what has changed the results of some experiments, and of which ones."""

import math
from functools import lru_cache

from torch import nn

from fedtext.accounting import composition
from fedtext.accounting.masks import counted
from fedtext.config.experiment import Experiment
from fedtext.config.participation import FEW
from fedtext.layout import TABLE, is_table
from fedtext.ledger.central import composed, noise_multiplier
from fedtext.ledger.distributed import is_distributed
from fedtext.methods.apfl import APFL
from fedtext.methods.asp_mtl import ASPMTL
from fedtext.methods.copies import Copying
from fedtext.methods.fedmmd import FedMMD
from fedtext.methods.frozen import Frozen
from fedtext.methods.kteps import KTEPS
from fedtext.models.checkpointed import in_bfloat16
from fedtext.models.inits import CheckpointInit
from fedtext.models.places import places_of
from fedtext.models.sizes import without_memory
from fedtext.parameters import build_network
from fedtext.text.representation import BPE
from fedtext.training.config import decays

# As RESULTS (fingerprint.py), for the experiments alone that compute in this way (see `ways`).
VERSIONS = {
    # Noise of the server from a secret key. Were it rounded in another way, a round that is repeated would be released
    # with the same draws in another size, and the difference of both releases would cancel them.
    "rounding": 2,
    "inward": 1,  # noise of the server: the parts of its sum are rounded towards zero
    "causal": 2,  # the model of this name: its layers are computed for the tokens alone
    # Byte pairs and a checkpoint: what no text has is never predicted by this model, and the rows of <s>, </s> and
    # <unk> are those of the tokenizer's ends also where it has entries of these names.
    "barred": 2,
    "stacked": 1,  # stacks with engine native: a recurrent classifier's step is computed in C
    # Transformers with engine native in bfloat16: products have rows of zeros at the end, for which dropout draws too.
    "filled": 1,
    # Transformers with engine native: the draws of dropout, and blocks with an adapter, are computed in C.
    "blocks": 2,
    # Adapted layers with engine native in bfloat16: products are computed in C, in tile registers where there are any.
    "halves": 2,
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
    # Parameters that never change are not exchanged: noise of the server was drawn for them too.
    "exchanged": 1,
    "projected": 1,  # APFL: each step ends with alpha in [0, 1]
}


def ways(experiment: Experiment, stack: int, clients: int) -> dict[str, bool]:
    """Return whether an experiment computes in each of the ways of ``VERSIONS``.

    Args:
        experiment: The experiment.
        stack: Number of clients in a stack.
        clients: Number of participants.
    """
    native, secret = experiment.engine == "native", experiment.privacy.noise == "secret"
    rounded = native and in_bfloat16(experiment.model)
    adapter = getattr(experiment.model, "adapter", None)
    lora = getattr(adapter, "lora", None)
    pretrained = experiment.model.name == "causal" and getattr(experiment.model, "checkpoint", None) is not None
    init = experiment.model.embedding.init
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
        "barred": isinstance(experiment.corpus.text, BPE) and (pretrained or isinstance(init, CheckpointInit)),
        "stacked": native and stack > 1,
        "filled": rounded,
        "halves": rounded and adapter is not None,
        "summands": bool(experiment.server.secure_aggregation and experiment.privacy.canaries),
        "losses": amplified and _beyond_others(experiment),
        "cohorts": amplified and not secret and not is_distributed(experiment),
        "exchanged": experiment.fixed(TABLE) or not type(experiment.model).fixes.__module__.startswith("fedtext."),
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
        "projected": isinstance(experiment.method, APFL) and experiment.method.adaptive,
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
