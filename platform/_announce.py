"""What a command says of a job before its first trial starts."""

import sys
from collections.abc import Iterable
from platform._job import Job, key  # type: ignore[import-not-found]

from fedtext.client.participants import count
from fedtext.config.engine import engine_reason, stack_size
from fedtext.models.inits import RandomInit
from fedtext.text.vocabulary import SPECIAL
from tune_spaces.cases import Case


def announce(job: Job) -> None:
    """Print what is about to run, on what, and what it gives away."""
    print(f"{job.folder.path.name}: {len(job.cases)} trials, state in {job.folder.path}")
    describe(job)
    sys.stdout.flush()


def describe(job: Job) -> None:
    """Print the corpora of a job, how its trials are placed and trained, and what they reveal."""
    for made, corpus in job.corpora.items():
        experiment = next(case.experiment for case in job.cases if key(case.experiment) == made)
        texts = sum(len(client.train) for client in corpus.clients)
        words = sum(word not in SPECIAL for word in corpus.vocabulary) - corpus.features
        read = f"{words:,} {experiment.corpus.text.units}"
        read += f", {corpus.features} features" if corpus.features else ""
        print(f"  corpus {corpus.name}: {len(corpus.clients)} clients, {texts:,} train texts, {read}")
        if corpus.coverage:
            shares = f"{corpus.coverage.vocabulary:.1%} of the vocabulary, {corpus.coverage.tokens:.1%} of train"
            first = next(one for one in experiment.model.embedding.sources if not isinstance(one, RandomInit))
            start = "as zeros" if first.missing == "zero" else "at random"
            print(f"  vectors for {shares}; the other words start {start}")
    placed = [(job.plans[case.id].sentence(job.nodes), case) for case in job.cases if case.id in job.plans]
    _print_each(placed, len(job.cases))
    trained = []
    for case in job.cases:
        clients = count(case.experiment, job.corpora[key(case.experiment)])
        trained.append((f"{engine_reason(case.experiment)}; {stack_size(case.experiment, clients)[1]}", case))
    _print_each(trained, len(job.cases))
    searched = [case for case in job.cases if not case.baseline]
    revealed = [(sentence, case) for case in searched for sentence in job.disclosed[case.id]]
    _print_each(revealed, len(searched))


def _print_each(said: Iterable[tuple[str, Case]], cases: int) -> None:
    """Print every sentence once, with the methods it is about unless it is about all ``cases``."""
    about: dict[str, list[Case]] = {}
    for sentence, case in said:
        about.setdefault(sentence, []).append(case)
    for sentence, those in about.items():
        names = ", ".join(dict.fromkeys(case.experiment.method.name for case in those))
        print(f"  {sentence}" if len(those) == cases else f"  {names}: {sentence}")
