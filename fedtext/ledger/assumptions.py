"""What guarantees rest on, in the words of the ledger."""

from typing import TYPE_CHECKING

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
ROUNDS = "rounds compose adaptively; other runs on the same texts, such as the trials of a sweep, are not counted"
_SIMULATED = (
    "simulated: the noise is drawn from the seed and the experiment, and anyone who knows both, as the server here "
    "does, can draw it again; privacy.noise: secret draws it from the operating system"
)
_SECRET = (
    "the noise is drawn from the operating system's entropy; its key is kept with the run's state (noise.key), and "
    "anyone who can read it can remove the noise"
)


def drawn(experiment: "Experiment") -> str:
    """Return where the noise comes from."""
    return _SIMULATED if experiment.privacy.noise == "reproducible" else _SECRET
