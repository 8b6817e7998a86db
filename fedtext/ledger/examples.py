"""The guarantee of DP-SGD (``training.dp_sgd``): of a text, not of a client.

A text is in one batch of each epoch of its client. With zeros in the place of its gradients a batch's sum changes by
clip_norm or less, so that each such batch is a Gaussian mechanism, and all that comes of it a function of what it
releases: later steps, updates, and the client's private state. Batches without the text do not depend on it. The order
in which texts are drawn amplifies nothing here.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fedtext.accounting import composition
from fedtext.accounting.entry import Entry
from fedtext.accounting.gaussian import FLOATS, gaussian_entry
from fedtext.ledger.assumptions import ROUNDS, drawn
from fedtext.ledger.outside import outside
from fedtext.matrix_noise.strategy import participations

if TYPE_CHECKING:
    from fedtext.config.experiment import Experiment

EXAMPLES = "training.dp_sgd"
_ASSUMED = (
    "with the gradients of a text or with zeros in their place, while all other texts are in the same batches, against "
    "all who see its client's updates, the server among them"
)

_SEVERAL = ": what consists of several texts has a weaker guarantee, of as many together"
_OWN_WORDS = "the words that its client knows, on which all of the client's texts decide"


def example_multiplier(experiment: "Experiment") -> float:
    """Return the noise multiplier of ``training.dp_sgd``: as given, or the one for ``target_epsilon``.

    Raises:
        UserError: No multiplier gives this epsilon, or dp-accounting is not installed.
    """
    asked = experiment.training.dp_sgd
    assert asked is not None
    if asked.multiplier is not None:
        return asked.multiplier
    assert asked.target_epsilon is not None
    count = _batches(experiment, experiment.training.rounds)
    key = "training.dp_sgd.target_epsilon"
    return composition.multiplier_for(asked.target_epsilon, 1.0, count, asked.delta, key)


def entries(experiment: "Experiment", rounds: int) -> Iterator[Entry]:
    """Yield the entry of a text, if there is ``training.dp_sgd``.

    Args:
        experiment: The experiment.
        rounds: Number of rounds after which the guarantee is stated.
    """
    asked = experiment.training.dp_sgd
    if not asked:
        return
    count, epochs = _batches(experiment, rounds), experiment.training.local_epochs
    beside = f", {_OWN_WORDS}" if experiment.own_vocabularies else ""
    part = experiment.corpus.part
    said = [_ASSUMED, *([f"a text is {part}{_SEVERAL}"] if part else []), drawn(experiment), ROUNDS, FLOATS]
    assumptions = "; ".join([*said, outside(experiment) + beside])
    about = f"in {count} batches with the text: {count // epochs} rounds of {epochs} epochs, in any order"
    multiplier = example_multiplier(experiment)
    yield gaussian_entry(EXAMPLES, "text", multiplier, 1.0, count, asked.delta, assumptions, about)


def _batches(experiment: "Experiment", rounds: int) -> int:
    """Return how many batches a text is in, at most."""
    return participations(rounds, experiment.participation.apart or 1) * experiment.training.local_epochs
