"""The assumptions of guarantees, in the words of the ledger."""

from typing import TYPE_CHECKING

from fedtext.models.inits import Word2VecInit

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
WITHOUT_MASKS = "of the run with masks: without them (masks: false) the server sees each update by itself"
_SIMULATED = (
    "simulated: the noise is drawn from the seed and the experiment, and anyone who knows both, as the server here "
    "does, can draw it again; privacy.noise: secret draws it from the operating system"
)
_SECRET = (
    "the noise is drawn from the operating system's entropy; where the run's state is kept, so is its key (noise.key), "
    "and anyone who can read that can remove the noise"
)


def drawn(experiment: "Experiment") -> str:
    """Return where the noise comes from."""
    return _SIMULATED if experiment.privacy.noise == "reproducible" else _SECRET


def neighbours(experiment: "Experiment") -> str:
    """Return which inputs the server's noise makes hard to tell apart, and against whom."""
    return ZERO_OUT if experiment.participation.sampling in ("separated", "epochs") else ADD_REMOVE


def pooled_vectors(experiment: "Experiment") -> bool:
    """Return whether word vectors were trained on all clients' texts, which no noise hides."""
    sources = experiment.model.embedding.sources
    return any(isinstance(source, Word2VecInit) and source.corpus != "unlabeled" for source in sources)
