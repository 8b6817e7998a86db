"""The clients of a round. They depend on the experiment alone, so that every process can compute them."""

from collections.abc import Sequence

from fedtext.config.experiment import Experiment
from fedtext.corpora.types import Corpus
from fedtext.errors import UserError
from fedtext.seeding import generator
from fedtext.state.noise_key import NoiseKey


def most(experiment: Experiment, clients: int) -> int:
    """Return the largest number of ``clients`` clients that a round can have."""
    fraction = experiment.participation.fraction
    return clients if experiment.participation.sampling == "poisson" else max(1, round(fraction * clients))


def adversaries(experiment: Experiment, clients: int) -> frozenset[int]:
    """Return the ids of the adversaries among ``clients`` clients. Those of a smaller share are among them."""
    if experiment.adversaries is None:
        return frozenset()
    count = round(experiment.adversaries.fraction * clients)
    return frozenset(generator(experiment.seed, "adversaries").permutation(clients)[:count].tolist())


def check_adversaries(experiment: Experiment, corpus: Corpus, clients: int) -> None:
    """Check that an attack fits a corpus.

    Args:
        experiment: The experiment.
        corpus: The corpus.
        clients: Number of its clients.

    Raises:
        UserError: It does not, or no client would be an adversary.
    """
    asked = experiment.adversaries
    if asked is None:
        return
    if problem := asked.attack.problem(corpus):
        raise UserError(problem)
    if asked.fraction and not adversaries(experiment, clients):
        raise UserError(
            f"adversaries.fraction: {asked.fraction:g} of {clients} clients is less than half a client: raise it to "
            f"{1 / clients:.3g}, or set it to 0"
        )


def sampled(
    experiment: Experiment, clients: Sequence[int], round_: int, noise: NoiseKey, attempt: int = 1
) -> list[int]:
    """Sample the clients of a round.

    Args:
        experiment: Its ``participation`` defines the sample.
        clients: Ids of all clients, ascending.
        round_: Number of the round.
        noise: The run's key. A Poisson sample amplifies the guarantee of the server's noise only if it is unknown:
            with a secret key it is drawn from the key.
        attempt: Number of the attempt at the round, from 1; each has a sample of its own.

    Returns:
        Ids, ascending, without those that drop out. A Poisson sample may be empty.
    """
    config, seed, ids = experiment.participation, experiment.seed, list(clients)
    size = most(experiment, len(ids))
    again = f"/{attempt}" if attempt > 1 else ""
    if config.sampling == "poisson":
        chances = noise.paired(seed, f"cohort{again}", round_).random(len(ids))
        ids = [i for i, chance in zip(ids, chances, strict=True) if chance < config.fraction]
    elif size < len(ids):
        ids = sorted(generator(seed, f"cohort{again}", round_).choice(ids, size, replace=False).tolist())
    if config.dropout:
        ids = [i for i in ids if generator(seed, f"dropout{again}", round_, i).random() >= config.dropout]
    return ids
