"""The assumptions of guarantees, in the words of the ledger."""

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from fedtext.accounting import composition
from fedtext.accounting.masks import HIDDEN, graph
from fedtext.config.engine import stack_size
from fedtext.layout import is_table
from fedtext.methods.base import Method
from fedtext.models.base import ModelConfig
from fedtext.models.inits import RandomInit, Word2VecInit
from fedtext.models.parts import Parts
from fedtext.models.sizes import without_memory
from fedtext.seeding import torch_scope

if TYPE_CHECKING:
    from fedtext.config.experiment import Experiment

LOCAL = "for a client that takes part in every round, against the server, for any other texts in place of its own"
ADD_REMOVE = (
    "with or without a client (add-remove), against anyone who sees the shared parameters of all rounds; the server is "
    "trusted"
)
ZERO_OUT = (
    "with a client's updates or with zeros in their place, while all others take part in the same rounds (zero-out), "
    "against anyone who sees the shared parameters of all rounds; the server is trusted"
)
POOLED_VECTORS = "no guarantee: word vectors were trained on all clients' texts"
ROUNDS = "rounds compose adaptively; other runs on the same texts, such as the trials of a sweep, are not counted"
FAILING = "masks may hide less"
WITHOUT_MASKS = "of the run with masks: without them (masks: false) the server sees each update by itself"
_SIMULATED = (
    "simulated: the noise is drawn from the seed and the experiment, and anyone who knows both, as the server here "
    "does, can draw it again; privacy.noise: secret draws it from the operating system"
)
_SECRET = (
    "the noise is drawn from the operating system's entropy; where the run's state is kept, so is its key (noise.key), "
    "and anyone who can read that can remove the noise"
)
# Ledgers of earlier versions do not have it: with reproducible noise, their runs of one seed have the same samples.
OWN_SAMPLES = "the samples of clients are drawn from the key of the run's noise, independent of those of other runs"
UNSEEN = (
    "samples amplify the guarantee only against those who do not see who takes part: traffic and times tell it, and so "
    "does each client's accuracy after a round where clients keep parameters of their own"
)
OWN_ROWS = (
    "an observer of the outputs does not know the seed: the initial rows of clients' own words are drawn from it in "
    "the order of all clients' words, so that with it the words of one client change the updates of others"
)
MASKS = (
    "an observer of the outputs does not know the seed: the dropout masks of clients that are trained in one stack are "
    "drawn from it together, so that with it who is in a stack changes the updates of the others"
)

STACKS = (
    "who is in a stack changes the last bits of the updates of the others in it, since operations on all of them round "
    "by place: unstable training makes this larger, in the worst case each of these updates becomes another one within "
    "its bound; training.stack: 1 excludes it"
)


def drawn(experiment: "Experiment") -> str:
    """Return where the noise comes from."""
    return _SIMULATED if experiment.privacy.noise == "reproducible" else _SECRET


def neighbours(experiment: "Experiment") -> str:
    """Return which inputs the server's noise makes hard to tell apart, and against whom."""
    return ZERO_OUT if experiment.participation.sampling in ("separated", "epochs") else ADD_REMOVE


def failing(experiment: "Experiment", clients: int, rounds: int, delta: float) -> list[str]:
    """Return what the chance that more is seen than a sum means for a guarantee; empty without masks, or below 2^-40.

    Args:
        experiment: The experiment.
        clients: Number of clients that can train.
        rounds: In how many rounds a client is at most.
        delta: Delta of the guarantee.
    """
    secure = experiment.server.secure_aggregation
    if not secure or not secure.masks or not composition.available():
        return []
    asked = secure.neighbors, secure.threshold, secure.colluding, secure.dropping
    invited = experiment.participation.invited(clients)
    chance = graph(invited, *asked, experiment.participation.late(clients, invited)).uncovered
    if rounds * chance > delta:
        colluding = f" with {secure.colluding:.0%} of a round's clients, who" if secure.colluding else ", which"
        return [
            f"{FAILING}: not against a server{colluding} may see more than the sum in each round with a chance of up "
            f"to {chance:.2g}, and delta is {delta:g}: raise server.secure_aggregation.neighbors, or lower "
            f"{'colluding' if secure.colluding else 'dropping or participation.over_selection'}"
        ]
    if chance <= HIDDEN:  # as where neighbors is chosen
        return []
    return [f"{FAILING} with a chance of at most {chance:.2g} in each round, which delta does not count"]


def pooled_vectors(experiment: "Experiment") -> bool:
    """Return whether word vectors were trained on all clients' texts, which no noise hides."""
    sources = experiment.model.embedding.sources
    return any(isinstance(source, Word2VecInit) and source.corpus != "unlabeled" for source in sources)


def influences(experiment: "Experiment", clients: int) -> Iterator[str]:
    """Yield what has to hold because one client can change the updates of others.

    Args:
        experiment: The experiment.
        clients: Number of clients.
    """
    if draws_own_rows(experiment):
        yield OWN_ROWS
    if stack_size(experiment, clients)[0] == 1:
        return
    if getattr(experiment.model, "dropout", 0.0):
        yield MASKS
    if not steps_in_c(experiment, clients):
        yield STACKS


def steps_in_c(experiment: "Experiment", clients: int) -> bool:
    """Return whether all steps of a stack are computed in C, where the bits of a client do not depend on the others.

    Engine ``native`` does so if the loss is a function in C and all parameters move in each step.

    Args:
        experiment: The experiment.
        clients: Number of clients.
    """
    method, optimizer = experiment.method, experiment.training.optimizer
    if experiment.engine != "native" or optimizer.embedding_lr == 0:
        return False
    if not method.fuses() or method.changes_gradients():
        return False
    try:
        return _fused(experiment.model, method, clients)
    except Exception:  # any of a plug-in's code, which may be for another number of classes
        return False


@lru_cache(maxsize=8)
def _fused(model: ModelConfig, method: Method, clients: int) -> bool:
    """Return whether a loss is a function in C and all parameters move; a ledger is computed in every round."""
    with without_memory(model), torch_scope(0, "ledger"):
        network = method.network(Parts(model, 2, clients, 0, False))
    names = [name for name, _ in network.named_parameters()]
    moving = all(phase.moves(name) for phase in method.phases(1) for name in names)
    return moving and method.fused(network) is not None and sum(map(is_table, names)) == 1


def draws_own_rows(experiment: "Experiment") -> bool:
    """Return whether initial rows of clients' own vocabularies are drawn from the seed."""
    embedding = experiment.model.embedding
    if not experiment.own_vocabularies:
        return False
    if embedding.own and experiment.privacy.noise == "reproducible":
        return True
    drawn = any(isinstance(source, RandomInit) or source.missing == "random" for source in embedding.sources)
    return drawn and not (embedding.own and embedding.own.words == "all")
