"""The guarantee of several runs on the same clients together, such as the trials of a sweep."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedtext.accounting import composition
from fedtext.accounting import distributed as integers
from fedtext.accounting.entry import Added, Entry
from fedtext.ledger import distributed
from fedtext.ledger.assumptions import (
    FAILING,
    MASKS,
    OWN_ROWS,
    OWN_SAMPLES,
    POOLED_VECTORS,
    STACKS,
    UNSEEN,
    ZERO_OUT,
    draws_own_rows,
    neighbours,
    pooled_vectors,
)
from fedtext.ledger.central import CENTRAL, composed, noise_multiplier, strategy
from fedtext.ledger.distributed import is_distributed
from fedtext.ledger.vocabulary import released

if TYPE_CHECKING:
    from fedtext.config.experiment import Experiment

_LATER = (
    "each run is counted with all of its rounds, and may depend on what those before it released, as in a search; what "
    "runs without server.noise release is not counted, nor are the metrics by which runs are compared"
)
# With a sample of each client by itself, and the expected number as the divisor, a client that is not there and one
# whose updates are zeros give the same sums.
_BOTH = "runs that are private with or without a client are so with zeros for its updates too"
_INDEPENDENT = "each run draws samples of clients of its own, from the key of its noise, independent of all others"
_SHARED = (
    "{} runs are composed without amplification: no record of theirs says that their samples of clients are their own, "
    "and earlier versions of fedtext drew the same ones for all runs of a seed"
)
_UNKNOWN = (
    "not computed: clients add the noise, and what it guarantees depends on each run's number of coordinates: it is "
    "known once each of these runs has completed a round"
)


@dataclass(frozen=True)
class Trial:
    """A run, with what its ledger says.

    Attributes:
        experiment: The experiment.
        ledger: The entries of its ledger. They are needed if clients add noise; empty: it has completed no round, or
            its records are lost.
        lost: Whether an empty ledger means that its records are lost: it has completed rounds.
    """

    experiment: "Experiment"
    ledger: Sequence[Entry] = ()
    lost: bool = False

    @property
    def is_noised(self) -> bool:
        """Whether noise of the server, or of clients for it, hides what clients send."""
        run = self.experiment
        return bool(run.server.noise and run.method.shares and not run.method.pooled)

    @property
    def added(self) -> Added | None:
        """The noise that clients add; None if they add none, or it is not known."""
        return next((entry.added for entry in self.ledger if entry.added), None)

    @property
    def is_amplified(self) -> bool:
        """Whether Poisson samples amplify its guarantee."""
        return not is_distributed(self.experiment) and self.experiment.participation.apart is None

    @property
    def draws_own_samples(self) -> bool:
        """Whether its samples do not depend on those of other runs. A run that has no ledger yet is to draw such; of
        one whose ledger is lost it is not known."""
        if self.experiment.privacy.noise == "secret" or not (self.ledger or self.lost):
            return True
        return any(OWN_SAMPLES in entry.assumptions for entry in self.ledger)


def together(trials: Iterable[Trial]) -> Iterator[tuple[Entry, Sequence[Trial]]]:
    """Yield the guarantee of all runs on the same clients together, and these runs.

    If they have different neighbours, it is for a client's updates or zeros in their place: the sum is divided by the
    expected number of clients, so that a client that is not there changes it as zeros do. Runs with ``server.noise``
    are composed, exactly if no sample amplifies, and otherwise by the smallest of three bounds
    (``accounting.composition.several``); by Renyi divergence if clients add the noise. Where the seed
    splits the texts over clients, another seed has other clients, whose guarantees cannot be added up.

    Args:
        trials: The runs. Those that hide nothing by noise of the server, or of clients for it, are left out.
    """
    noised = [trial for trial in trials if trial.is_noised]
    for group in _groups(noised):
        yield _entry(group), group


def _groups(trials: Sequence[Trial]) -> list[list[Trial]]:
    """Return the runs that have clients in common, directly or by others, each group in the order of the runs."""
    groups: list[tuple[Set[str], list[int]]] = []  # the sets of clients, and the places of the runs
    for place, trial in enumerate(trials):
        clients, places = trial.experiment.corpus.clients_of(trial.experiment.seed), [place]
        apart = [group for group in groups if not group[0] & clients]
        for others, there in (group for group in groups if group not in apart):
            clients, places = clients | others, [*there, *places]
        groups = [*apart, (clients, places)]
    return [[trials[place] for place in sorted(places)] for places in sorted(sorted(places) for _, places in groups)]


def _entry(trials: Sequence[Trial]) -> Entry:
    runs = [trial.experiment for trial in trials]
    asked = [run.server.noise for run in runs if run.server.noise]
    delta = min(noise.delta for noise in asked)
    if why := _without(trials):
        return Entry(CENTRAL, "run", None, delta, why)
    adding = [run for run in runs if is_distributed(run)]
    relations = {ZERO_OUT if is_distributed(run) else neighbours(run) for run in runs}
    mixed = len(relations) > 1
    against = sorted(dict.fromkeys(map(distributed.neighbours, adding))) or [ZERO_OUT if mixed else neighbours(runs[0])]
    shared = _sharing(trials)
    said = [*against, *([_BOTH] if mixed else []), *_samples(trials, shared), *_influences(trials), _LATER]
    assumptions = "; ".join(said)
    if not composition.available():
        return Entry(CENTRAL, "run", None, delta, f"not computed: {composition.INSTALL}", assumptions)
    others = tuple(_mechanisms(run, one) for run, one in zip(runs, shared, strict=True) if not is_distributed(run))
    if adding:
        inverse = sum(count / multiplier**2 for multiplier, _, count in others)
        rounds = tuple((trial.added.shares, trial.added.rounds) for trial in trials if trial.added)
        epsilon = integers.several(rounds, inverse, delta)
    else:
        epsilon = composition.several(others, delta)
    how = f"{len(runs)} runs on the same clients"
    # Runs of one corpus and seed have one vocabulary; each other one is released by itself.
    if releases := {repr(run.corpus) + str(run.seed): found for run in runs if (found := released(run))}:
        epsilon += sum(release.epsilon for release in releases.values())
        delta += sum(release.delta for release in releases.values())
        how += " and their vocabulary" if len(releases) == 1 else f" and their {len(releases)} vocabularies"
    return Entry(CENTRAL, "run", epsilon, delta, how, assumptions)


def _without(trials: Sequence[Trial]) -> str:
    """Return why there is no guarantee of all runs, or why it is not known; empty if there is one."""
    runs = [trial.experiment for trial in trials]
    if any(run.server.noise and run.server.noise.cohort_size for run in runs):
        return "no guarantee: server.noise.cohort_size simulates that of other runs"
    if any(map(pooled_vectors, runs)):
        return POOLED_VECTORS
    if any(is_distributed(trial.experiment) and not trial.added for trial in trials):
        return _UNKNOWN
    return ""


def _influences(trials: Sequence[Trial]) -> Iterator[str]:
    """Yield what has to hold because one client can change the updates of others, in any of the runs."""
    if any(draws_own_rows(trial.experiment) for trial in trials):
        yield OWN_ROWS
    if any(MASKS in entry.assumptions for trial in trials for entry in trial.ledger):
        yield MASKS
    if any(STACKS in entry.assumptions for trial in trials for entry in trial.ledger):
        yield STACKS
    said = [part for trial in trials for entry in trial.ledger for part in entry.assumptions.split("; ")]
    yield from dict.fromkeys(part for part in said if part.startswith(FAILING))


def _sharing(trials: Sequence[Trial]) -> list[bool]:
    """Return which runs have Poisson samples that depend on those of another one: both have the same seed.

    Not even the sum of their epsilons holds for these together: a client is in a round of all of them or of none.
    """
    drawn = [trial.is_amplified and not trial.draws_own_samples for trial in trials]
    seeds = Counter(trial.experiment.seed for trial, one in zip(trials, drawn, strict=True) if one)
    return [one and seeds[trial.experiment.seed] > 1 for trial, one in zip(trials, drawn, strict=True)]


def _samples(trials: Sequence[Trial], shared: Sequence[bool]) -> Iterator[str]:
    """Yield what the guarantee of several runs rests on with Poisson samples, and why some of them do not amplify."""
    if any(trial.is_amplified and not one for trial, one in zip(trials, shared, strict=True)):
        yield UNSEEN
    if any(shared):
        yield _SHARED.format(sum(shared))
    if len(trials) > 1 and any(trial.is_amplified and not one for trial, one in zip(trials, shared, strict=True)):
        yield f"of the others {_INDEPENDENT}" if any(shared) else _INDEPENDENT


def _mechanisms(run: "Experiment", shared: bool) -> tuple[float, float, int]:
    """Return noise multiplier, probability of a client to be in a sample, and number of a run's Gaussian mechanisms.

    Args:
        run: The experiment.
        shared: Whether other runs have its samples. The bound then is of the worst samples: a client in each of them.
    """
    if strategy(run):
        return noise_multiplier(run), 1.0, 1
    fraction, count = composed(run, run.training.rounds)
    return noise_multiplier(run), 1.0 if shared else fraction, count
