"""A job: everything that is decided before the first trial starts."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from actors import placement
from dashboards.store import Store
from fedtext.config.experiment import Experiment
from fedtext.config.files import Content
from fedtext.corpora.types import Corpus
from fedtext.models.inits import RandomInit
from sweeps.folder import RunFolder
from tune_spaces.cases import Case
from tune_spaces.search import Search


def unchanged(experiment: Experiment) -> Experiment:
    """Return the experiment itself."""
    return experiment


@dataclass(frozen=True)
class Searched:
    """A search, and what makes the cases of the points that it suggests.

    Attributes:
        search: Suggests points.
        content: The content of the experiment file, after overrides.
        source: Its name in messages.
        data: The folder of corpora given with --data, if any.
    """

    search: Search
    content: Content
    source: str
    data: Path | None


@dataclass(frozen=True)
class Job:
    """A run or a sweep that is ready to start. A search adds its cases while it runs.

    Attributes:
        sweep: Whether it is a sweep rather than a single run.
        experiment: The experiment, with its space.
        cases: The planned trials.
        corpora: Encoded corpora, by ``key``.
        plans: The share of the cluster of each case, by its id.
        disclosed: Sentences on what a run reveals and guarantees, by the id of its case.
        nodes: The resources of the cluster's nodes, as they were when trials were last planned.
        store: The MLflow store.
        folder: The run's folder.
        choose_engine: Returns an experiment with the engine that it uses on this cluster, or with which the run began.
        aside: Whether a space, baselines or seeds of the experiment are left aside.
        searched: The search; None if all cases are known.
        evolving: The content of the experiment file and its name, of a population; None if there is none.
    """

    sweep: bool
    experiment: Experiment
    cases: list[Case]
    corpora: dict[str, Corpus]
    plans: dict[str, placement.Plan]
    disclosed: dict[str, list[str]]
    nodes: list[placement.Node]
    store: Store
    folder: RunFolder
    choose_engine: Callable[[Experiment], Experiment] = unchanged
    aside: bool = False
    searched: Searched | None = None
    evolving: tuple[Content, str] | None = None

    def case(self, id_: str) -> Case:
        """Return a case by its id."""
        return next(case for case in self.cases if case.id == id_)

    @property
    def unsuggested(self) -> int:
        """The number of trials whose points have not been suggested yet."""
        return self.experiment.seeds * max(0, self.searched.search.left) if self.searched else 0

    def left(self, ended: Collection[str]) -> int:
        """Return the number of trials that have not ended, given the ids of those that have."""
        return len(self.cases) + self.unsuggested - len(ended)


def key(experiment: Experiment) -> str:
    """Return a key of an encoded corpus: cases with the same key share one. The embedding is part of it only if word
    vectors are loaded or trained."""
    embedding = experiment.model.embedding
    vectors = "" if isinstance(embedding.init, RandomInit) else repr(embedding)
    return f"{experiment.corpus!r} {vectors} {experiment.seed} {experiment.own_vocabularies}"
