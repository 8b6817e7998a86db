"""A description of a job in sentences, printed before its first trial starts."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from actors.placement import counted
from fedtext.config.engine import engine_reason, stack_size
from fedtext.config.experiment import Experiment
from fedtext.config.single import aside
from fedtext.corpora.totals import totals, unsuited, unused
from fedtext.corpora.types import Corpus
from fedtext.models.inits import RandomInit
from fedtext.server.start import participant_count
from fedtext.text.vocabulary import SPECIAL
from sweeps.job import Job, key
from sweeps.labels import Names
from tune_spaces.cases import Case

NUMBER = re.compile(r"\d+(?:[,.]\d+)*%?")


def summary(job: Job) -> list[str]:
    """Return lines on a job: its trials, corpora, placement, and what it reveals."""
    return [
        *([aside()] if job.aside else []),
        f"{job.folder.path.name}: {counted(len(job.cases) + job.unsuggested, 'trial')}, state in {job.folder.path}",
        *details(job),
    ]


def details(job: Job) -> list[str]:
    """Return lines on the corpora of a job, the placement and training of its trials, and what they reveal."""
    placed = [(job.plans[case.id].sentence(job.nodes), case) for case in job.cases if case.id in job.plans]
    trained = []
    for case in job.cases:
        clients = participant_count(case.experiment, job.corpora[key(case.experiment)])
        trained.append((f"{engine_reason(case.experiment)}; {stack_size(case.experiment, clients)[1]}", case))
    searched = [case for case in job.cases if not case.baseline]
    revealed = [(sentence, case) for case in searched for sentence in job.disclosed[case.id]]
    return [
        *dict.fromkeys(_corpora(job)),
        *repeated(job.cases),
        *_each_once(placed, job.cases),
        *_each_once(trained, job.cases),
        *_each_once(revealed, searched),
    ]


def repeated(cases: Sequence[Case]) -> Iterator[str]:
    """Yield a line on the points of a space that were drawn before: they are trained again, with the same results, and
    means over trials with a value of a key count them again.

    Args:
        cases: All cases of a sweep.
    """
    points = {case.group: repr(case.overrides) for case in cases if not case.baseline and case.overrides}
    if again := len(points) - len(set(points.values())):
        yield (
            f"  {again} of {counted(len(points), 'point')} {'was' if again == 1 else 'were'} drawn before: the same "
            "results again, which means over trials count again; a grid has each point once"
        )


def _corpora(job: Job) -> Iterator[str]:
    """Yield lines on the corpora. Those that differ in their seeds alone have one line with ranges of their numbers."""
    by_seed: dict[str, dict[str, Experiment]] = {}
    for case in job.cases:
        alike = key(case.experiment.model_copy(update={"seed": job.experiment.seed}))
        by_seed.setdefault(alike, {}).setdefault(key(case.experiment), case.experiment)
    for made in by_seed.values():
        yield from _ranges([list(_corpus(one, job.corpora[name])) for name, one in made.items()])


def _ranges(seeds: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of all seeds, those that differ in their numbers alone as one with ranges.

    Args:
        seeds: The lines of each seed.
    """
    alike: dict[tuple[str, ...], list[list[str]]] = {}
    for line in (line for lines in seeds for line in lines):
        alike.setdefault(tuple(NUMBER.split(line)), []).append(NUMBER.findall(line))
    for texts, numbers in alike.items():
        ends = [(min(column, key=_value), max(column, key=_value)) for column in zip(*numbers, strict=True)]
        shown = [least if least == most else f"{least} to {most}" for least, most in ends]
        by_seed = ", by seed" if any(least != most for least, most in ends) else ""
        yield "".join(itertools.chain(*zip(texts, [*shown, by_seed], strict=True)))


def _value(number: str) -> float:
    return float(number.replace(",", "").rstrip("%"))


def _corpus(experiment: Experiment, corpus: Corpus) -> Iterator[str]:
    """Yield lines on the corpus of an experiment: its size, what does not suit it, and its word vectors."""
    texts = totals(corpus)["train"]
    words = sum(word not in SPECIAL for word in corpus.vocabulary) - corpus.features
    size = f"{words:,} {experiment.corpus.text.units}"
    size += f", {corpus.features} features" if corpus.features else ""
    yield f"  corpus {corpus.name}: {len(corpus.clients)} clients, {texts:,} train texts, {size}"
    yield from (f"  {sentence}" for sentence in (*unused(corpus), *unsuited(corpus)))
    if corpus.untrained:
        yield f"  {corpus.untrained}: the command itself does that first"
    if corpus.coverage:
        shares = f"{corpus.coverage.vocabulary:.1%} of the vocabulary, {corpus.coverage.tokens:.1%} of train"
        first = next(one for one in experiment.model.embedding.sources if not isinstance(one, RandomInit))
        start = "as zeros" if first.missing == "zero" else "at random"
        yield f"  vectors for {shares}; the other words start {start}"


def _each_once(sentences: Iterable[tuple[str, Case]], cases: Sequence[Case]) -> Iterator[str]:
    """Yield every sentence once, with the cases it is about unless it is about all ``cases``."""
    about: dict[str, dict[str, Case]] = {}
    for sentence, case in sentences:
        about.setdefault(sentence, {})[case.id] = case
    names = Names(cases)
    for sentence, those in about.items():
        yield f"  {sentence}" if len(those) == len(cases) else f"  {names.of(list(those.values()))}: {sentence}"
