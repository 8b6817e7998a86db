"""Who takes part in a round: known from the experiment alone, so that every place can tell."""

from collections.abc import Sequence

from fedtext.config.experiment import Experiment
from fedtext.seeding import generator
from fedtext.state.noise_key import NoiseKey


def most(experiment: Experiment, clients: int) -> int:
    """Return the largest number of ``clients`` clients that a round can have."""
    fraction = experiment.participation.fraction
    return clients if experiment.participation.sampling == "poisson" else max(1, round(fraction * clients))


def sampled(experiment: Experiment, clients: Sequence[int], round_: int, noise: NoiseKey) -> list[int]:
    """Who of these, ascending, trains this round: a seeded share of them, less those that happen to be away. Of a
    Poisson sample that may be no one. Who is in a Poisson sample amplifies the guarantee of the server's noise as long
    as it is not known: under a secret ``noise`` key it is drawn from that."""
    config, seed, ids = experiment.participation, experiment.seed, list(clients)
    size = most(experiment, len(ids))
    if config.sampling == "poisson":
        chances = noise.paired(seed, "cohort", round_).random(len(ids))
        ids = [i for i, chance in zip(ids, chances, strict=True) if chance < config.fraction]
    elif size < len(ids):
        ids = sorted(generator(seed, "cohort", round_).choice(ids, size, replace=False).tolist())
    if config.dropout:
        ids = [i for i in ids if generator(seed, "dropout", round_, i).random() >= config.dropout]
    return ids
