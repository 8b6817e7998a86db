"""The content of a report, read from the records of a sweep: a row for each of its cases."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from dashboards.groups import Group, Spread, groups
from dashboards.report.costs import costs
from dashboards.table import UNIGRAM, best, rank, short_keys
from dashboards.trial import Case, Outcome, names_method, one_line, short
from fedtext.accounting.entry import Entry
from fedtext.canaries.measure import FILE as CANARIES
from fedtext.canaries.pairs import Run, of_pairs, run
from fedtext.config.experiment import Experiment
from fedtext.config.files import resolved
from fedtext.ledger import FILE as LEDGER
from fedtext.ledger import read
from fedtext.ledger.report import guarantees, of_trials, reveals
from fedtext.ledger.together import Trial
from fedtext.records import RoundRecord
from fedtext.runtime.secrets import redacted
from fedtext.server.last import last_values

LABEL = 90  # characters of a row's name in tables


@dataclass(frozen=True)
class Sample:
    """One trial of a row, under one seed.

    Args:
        case_id: Id of its case.
        seed: Its seed.
        status: How it ended; ``left`` if it has not ended.
        records: The records of its rounds.
        values: Its metrics (``last_values``) and costs; empty unless it ended well.
        error: The cause of a failure.
    """

    case_id: str
    seed: int
    status: str
    records: tuple[RoundRecord, ...] = ()
    values: Mapping[str, float] = field(default_factory=dict)
    error: str = ""

    @cached_property
    def ledger(self) -> list[Entry]:
        """The entries of the privacy ledger, from the records; empty if no round has been completed."""
        for record in reversed(self.records):  # a run that was made longer has a later one
            if LEDGER in record.files:
                return read(record.files[LEDGER])
        return []


@dataclass(frozen=True)
class Row:
    """A case with all of its seeds, or the unigram model.

    Args:
        id: Id of its group.
        label: Its name in tables and plots.
        method: Name of its method.
        baseline: Whether it is a baseline.
        keys: Its values of the swept keys, as text.
        point: The same, as they are in the experiment.
        samples: Its trials, a seed each.
        experiment: The experiment of its first trial; None for the unigram model.
    """

    id: str
    label: str
    method: str
    baseline: bool
    keys: Mapping[str, str]
    point: Mapping[str, object]
    samples: tuple[Sample, ...]
    experiment: Experiment | None = None

    @property
    def name(self) -> str:
        """The label, marked if this is a baseline."""
        return f"{self.label} (baseline)" if self.baseline else self.label

    def by_seed(self, name: str) -> dict[int, float]:
        """Return the finite values of a metric or cost, by seed."""
        found = {sample.seed: sample.values[name] for sample in self.samples if name in sample.values}
        return {seed: value for seed, value in found.items() if math.isfinite(value)}

    def spread(self, name: str) -> Spread | None:
        """Return mean and deviation over seeds of a metric or cost; None if no seed has it."""
        values = list(self.by_seed(name).values())
        return Spread.of(values) if values else None

    def complete(self, name: str) -> bool:
        """Whether every seed has a finite value of a metric or cost: else the mean of the others would be biased."""
        return len(self.by_seed(name)) == len(self.samples)

    @property
    def ended(self) -> int:
        """The number of seeds that have values."""
        return sum(bool(sample.values) for sample in self.samples)

    @property
    def ledger(self) -> list[Entry]:
        """The entries of the privacy ledger of the first seed that has one; empty if none has completed a round."""
        return next((sample.ledger for sample in self.samples if sample.ledger), [])

    def canaries(self) -> Iterator[Run]:
        """Yield what the canaries of each seed's run have shown."""
        for sample in self.samples:
            content = next((made.files[CANARIES] for made in reversed(sample.records) if CANARIES in made.files), "")
            if content and self.experiment:
                yield run(Trial(self.experiment.model_copy(update={"seed": sample.seed}), sample.ledger), content)

    def reveals(self) -> list[str]:
        """Return the sentences on what a run discloses and guarantees; empty without a ledger."""
        if not self.experiment or not self.ledger:
            return []
        said = reveals(self.experiment, self.ledger)
        return [*said, *(sentence for sentence in guarantees(self.ledger) if sentence not in said)]


@dataclass(frozen=True)
class Sweep:
    """A run or a sweep, as far as it has come.

    Args:
        name: Name of the run.
        experiment: The experiment, with its space.
        cases: The planned trials.
        outcomes: The outcomes of trials that have ended, by id of the case.
        left: The records of the other trials, by id of the case.
        problems: Sentences on what could not be read.
        commands: How it is repeated, continued and reported, by purpose.
        versions: The versions of the software that worked on it, in order.
        machines: Names of the machines on which its clients have been trained (``state.machine``).
        running: Whether a command works on it.
        unread: Ids of the cases whose records cannot be read.
    """

    name: str
    experiment: Experiment
    cases: Sequence[Case]
    outcomes: Mapping[str, Outcome]
    left: Mapping[str, tuple[RoundRecord, ...]]
    problems: Sequence[str] = ()
    commands: Mapping[str, str] = field(default_factory=dict)
    versions: Sequence[Mapping[str, str]] = ()
    machines: Sequence[str] = ()
    running: bool = False
    unread: Collection[str] = ()

    @property
    def metric(self) -> str:
        """The metric by which trials are sorted."""
        return self.experiment.tune.metric

    @cached_property
    def keys(self) -> dict[str, str]:
        """The swept keys, with their short names."""
        return short_keys(self.cases)

    @cached_property
    def rows(self) -> list[Row]:
        """All cases, the best first, then those without values; last the unigram model of language models."""
        known = rank(self.cases, self.outcomes, self.metric, self.experiment.tune.direction)
        every = [*known, *(group for group in groups(self.cases) if group.id not in {one.id for one in known})]
        labels = _labels(every, self.keys)
        rows = [self._row(group, labels[group.id]) for group in every]
        return [*rows, *_unigrams(rows)]

    @cached_property
    def winner(self) -> Row | None:
        """The best case of the space by ``metric``; None if there is none."""
        found = best(self.cases, self.outcomes, self.metric, self.experiment.tune.direction)
        return next((row for row in self.rows if found and row.id == found.id), None)

    @property
    def seeds(self) -> list[int]:
        """All seeds, in order."""
        return sorted({case.experiment.seed for case in self.cases})

    @property
    def yaml(self) -> str:
        """The experiment with all defaults, without passwords."""
        return redacted(resolved(self.experiment))

    def guarantees(self) -> list[str]:
        """Return sentences on the guarantee of all trials together; empty if their keys change while they run."""
        changing = self.experiment.tune.scheduler == "pbt"
        if changing:
            return []
        pairs = of_pairs([run for row in self.rows for run in row.canaries()])
        known = {sample.case_id: sample.ledger for row in self.rows for sample in row.samples}
        lost = set(self.unread) | {case for case, outcome in self.outcomes.items() if outcome.status != "failed"}
        trials = [Trial(one.experiment, known.get(one.id, []), one.id in lost) for one in self.cases]
        return [*of_trials(trials), *pairs]

    def names(self) -> list[str]:
        """Return the names of all metrics and costs that some row has."""
        found = (name for row in self.rows for sample in row.samples for name in sample.values)
        return list(dict.fromkeys(found))

    def _row(self, group: Group, label: str) -> Row:
        first, samples = group.case, tuple(self._sample(case) for case in group.cases)
        point = {} if first.baseline else dict(first.overrides)
        keys, method = {key: told(value) for key, value in point.items()}, first.experiment.method.name
        return Row(group.id, label, method, first.baseline, keys, point, samples, first.experiment)

    def _sample(self, case: Case) -> Sample:
        seed, outcome = case.experiment.seed, self.outcomes.get(case.id)
        if outcome is None:
            return Sample(case.id, seed, "left", self.left.get(case.id, ()))
        well = outcome.status != "failed"
        values = last_values(outcome.rows) | dict(costs(outcome.rows)) if well else {}
        return Sample(case.id, seed, outcome.status, outcome.rows, values, one_line(outcome.error))


def told(value: object) -> str:
    """Return a value of a swept key in few words: ``[{clip: {norm: 0.5}}]`` -> ``clip(norm=0.5)``."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        name = str(value.get("name", ""))
        inner = ", ".join(_part(key, each) for key, each in value.items() if key != "name")
        return (f"{name}({inner})" if inner else name) if name else inner
    if isinstance(value, list | tuple):
        return " + ".join(map(told, value)) or "none"
    return one_line(str(value))


def _part(key: object, value: object) -> str:
    if isinstance(value, Mapping):
        return f"{one_line(str(key))}({told(value)})"
    return f"{one_line(str(key))}={told(value)}"


def _labels(every: Iterable[Group], keys: Mapping[str, str]) -> dict[str, str]:
    """Return a short name for each group, none of them twice.

    Args:
        every: The groups.
        keys: The swept keys, with their short names.
    """
    found: dict[str, str] = {}
    for group in every:
        case = group.case
        method, point = case.experiment.method.name, {} if case.baseline else case.overrides
        if case.baseline:
            text = one_line(case.label) or method
        else:
            name = told(point["method"]) if "method" in point else method
            said = {"method", *(key for key in point if names_method(case, key))}
            text = " ".join([name, *(f"{keys[key]}={told(point[key])}" for key in point if key not in said)])
        text = short(text, LABEL)
        found[group.id] = short(f"{group.id} {text}", LABEL) if text in found.values() else text
    return found


def _unigrams(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of the unigram model: one for each of the rows' corpora."""
    made: dict[str, Row] = {}
    for row in rows:
        samples = []
        for sample in row.samples:
            values = {n.replace(UNIGRAM, ""): v for n, v in sample.values.items() if UNIGRAM in n}
            if values:
                samples.append(Sample("", sample.seed, sample.status, (), values))
        if samples:
            made.setdefault(repr([(sample.seed, sample.values) for sample in samples]), _unigram(row, samples))
    if len(made) == 1:
        return [_unigram(None, row.samples) for row in made.values()]
    return list(made.values())


def _unigram(of: Row | None, samples: Sequence[Sample]) -> Row:
    label = f"unigram of {of.label}" if of else "unigram"
    return Row(label, label, "unigram", True, {}, {}, tuple(samples))
