"""The guarantee of several runs on the same clients together, such as the trials of a sweep."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fedtext.accounting import composition
from fedtext.accounting.entry import Entry
from fedtext.ledger.assumptions import POOLED_VECTORS, neighbours, pooled_vectors
from fedtext.ledger.central import CENTRAL, composed, noise_multiplier, strategy
from fedtext.ledger.distributed import is_distributed
from fedtext.ledger.vocabulary import released

if TYPE_CHECKING:
    from fedtext.config.experiment import Experiment

_LATER = (
    "each run is counted with all of its rounds, and may depend on what those before it released, as in a search; what "
    "runs without server.noise release is not counted, nor are the metrics by which runs are compared"
)


def together(runs: Sequence["Experiment"]) -> Iterator[tuple[Entry, int]]:
    """Yield the guarantee of all runs together, and of how many, for each corpus and seed.

    Runs with ``server.noise`` are composed, exactly if no sample amplifies, and otherwise by the smallest of three
    bounds (``accounting.composition.several``). Another seed or corpus splits the texts into other clients, whose
    guarantees cannot be added up.

    Args:
        runs: The experiments of the runs. Those that hide nothing by noise of the server are left out.
    """
    groups: dict[str, list[Experiment]] = {}
    for run in runs:
        if run.server.noise and run.method.shares and not run.method.pooled:
            groups.setdefault(f"{run.corpus!r} {run.seed}", []).append(run)
    for group in groups.values():
        yield _entry(group), len(group)


def _entry(runs: Sequence["Experiment"]) -> Entry:
    asked = [run.server.noise for run in runs if run.server.noise]
    delta = min(noise.delta for noise in asked)
    if any(noise.cohort_size for noise in asked):
        return Entry(CENTRAL, "run", None, delta, "no guarantee: server.noise.cohort_size simulates that of other runs")
    if any(map(is_distributed, runs)):
        how = "not computed: the sensitivity of noise that clients add depends on each run's number of coordinates"
        return Entry(CENTRAL, "run", None, delta, how)
    if any(map(pooled_vectors, runs)):
        return Entry(CENTRAL, "run", None, delta, POOLED_VECTORS)
    against = {neighbours(run) for run in runs}
    if len(against) > 1:
        return Entry(CENTRAL, "run", None, delta, "no guarantee: the runs have different neighbours")
    assumptions = f"{against.pop()}; {_LATER}"
    if not composition.available():
        return Entry(CENTRAL, "run", None, delta, f"not computed: {composition.INSTALL}", assumptions)
    epsilon = composition.several(tuple(map(_mechanisms, runs)), delta)
    how = f"{len(runs)} runs on the same clients"
    if release := released(runs[0]):  # all have the same
        epsilon, delta, how = epsilon + release.epsilon, delta + release.delta, f"{how} and their vocabulary"
    return Entry(CENTRAL, "run", epsilon, delta, how, assumptions)


def _mechanisms(run: "Experiment") -> tuple[float, float, int]:
    """Return noise multiplier, probability of a client to be in a sample, and number of a run's Gaussian mechanisms."""
    if strategy(run):
        return noise_multiplier(run), 1.0, 1
    return noise_multiplier(run), *composed(run, run.training.rounds)
