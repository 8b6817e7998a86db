"""Corpora, engines and places of cases: of those that are known at first, and of suggested ones."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import get_args

from actors import cluster, placement
from dashboards import store as mlflow_store
from dashboards.trial import say
from fedtext.api.disclosed import disclosed
from fedtext.client.audit_runner import check_words
from fedtext.config.engine import check_engine, choose_engine, stack_size, trainees, with_engine
from fedtext.config.experiment import Experiment
from fedtext.corpora.prepare import prepare
from fedtext.corpora.stored import StoredClients
from fedtext.corpora.types import Corpus
from fedtext.errors import UserError, option
from fedtext.ledger import noise_multiplier
from fedtext.ledger.central import with_coefficients
from fedtext.ledger.distributed import is_distributed
from fedtext.runtime.slow import said_if_slow
from fedtext.server.fit import check_classes
from fedtext.server.start import participant_count
from fedtext.state.checkpoint import coefficients, recorded
from fedtext.state.fingerprint import fingerprint
from fedtext.training.config import Engine
from sweeps.folder import RunFolder
from sweeps.job import Job, key
from tune_spaces.cases import Case, refused

READING_S = 5.0  # after which it is said that a corpus is being read


def corpora_of(
    experiment: Experiment,
    cases: Sequence[Case],
    data: Path | None,
    known: Mapping[str, Corpus] | None = None,
    train: bool = True,
) -> dict[str, Corpus]:
    """Return the corpora of all cases, by ``key``.

    Args:
        experiment: The experiment, for its ``tune.metric``.
        cases: The cases.
        data: The folder given with --data, if any.
        known: Corpora that have been prepared.
        train: Whether word vectors are trained, as in ``prepare``.

    Raises:
        UserError: A case cannot use its corpus.
    """
    corpora, groups = dict(known or {}), defaultdict[str, list[Experiment]](list)
    for case in cases:
        groups[key(case.experiment)].append(case.experiment)
    for name, group in groups.items():  # all that need a corpus are checked before the next one is read
        audited = any(one.audits for one in group)
        if name not in corpora or (audited and not _is_compared(corpora[name])):
            one = group[0]
            facts = one.corpus, one.model.embedding, one.seed, data, one.own_vocabularies
            reading = f"reading the texts of corpus {one.corpus.name}"
            with said_if_slow(READING_S, partial(say, reading)):
                corpora[name] = prepare(*facts, train, audited)
            check_classes("tune.metric", experiment.tune.metric, corpora[name])
        for one in group:
            participant_count(one, corpora[name])
            check_words(one, corpora[name].vocabulary)
            if one.server.noise and not is_distributed(one):
                noise_multiplier(one)
    return corpora


def _is_compared(corpus: Corpus) -> bool:
    """Return whether audits have what they need of a corpus: that of a case before may have been prepared without."""
    return bool(corpus.repeated) or isinstance(corpus.clients, StoredClients)


def with_corpora(
    experiment: Experiment, cases: Sequence[Case], data: Path | None, folder: RunFolder, train: bool = True
) -> tuple[list[Case], dict[str, Corpus]]:
    """Return the cases that are known at first, and their corpora by ``key``.

    Args:
        experiment: The experiment.
        cases: The cases. Of a search, points that cannot use their corpora get a ``problem``.
        data: The folder given with --data, if any.
        folder: The folder of the run.
        train: Whether word vectors are trained, as in ``prepare``.

    Raises:
        UserError: Another case cannot use its corpus.
    """
    corpora: dict[str, Corpus] = {}

    def use(case: Case) -> None:
        corpora.update(corpora_of(experiment, [case], data, corpora, train))

    cases = _tried(experiment, cases, folder, use)
    return cases, corpora_of(experiment, cases, data, corpora, train)


def _tried(
    experiment: Experiment, cases: Sequence[Case], folder: RunFolder, use: Callable[[Case], object]
) -> list[Case]:
    """Return the cases of a search. A point that ``use`` refuses is one of its failures, unless it has been trained or
    the given experiment is refused too: then the cause lies elsewhere.

    Raises:
        UserError: The cause lies elsewhere.
    """
    if experiment.tune.search == "random":
        return list(cases)
    found = []
    for case in cases:
        try:
            use(case)
        except UserError as error:
            if case.baseline or case.problem or recorded(folder.case(case.id) / "checkpoint"):
                raise
            case = refused(case, experiment, str(error))
            use(case)
        found.append(case)
    return found


def arranged(
    sweep: bool,
    experiment: Experiment,
    cases: list[Case],
    corpora: dict[str, Corpus],
    nodes: Sequence[placement.Node],
    store: mlflow_store.Store,
    folder: RunFolder,
) -> Job:
    """Return the job: cases, their places, and what they reveal.

    Args:
        sweep: Whether the job is a sweep rather than a single run.
        experiment: The experiment.
        cases: The cases.
        corpora: The corpora, by ``key``.
        nodes: The cluster's nodes.
        store: The store of MLflow.
        folder: The folder of the run.

    Raises:
        UserError: The cases do not fit on the cluster, or trials in ``folder`` were computed from other data.
    """
    cases = [_continued(case, folder) for case in cases]
    gpu, problem, begun = placement.total(nodes, "GPU") > 0, cluster.compile_problem(), _begun(folder, cases, corpora)
    chosen = partial(choose_engine, gpu=gpu, problem=problem, begun=begun)
    cases = [replace(case, experiment=chosen(case.experiment)) for case in cases]
    _same_data(folder, cases, corpora)
    done = folder.done(experiment)  # perhaps also trials of other commands
    left = _together(experiment, sum(case.id not in done for case in cases))
    placed = partial(_plans, experiment, corpora=corpora, nodes=nodes, left=left)
    cases = _tried(chosen(experiment), cases, folder, lambda case: placed([case]))
    plans = placed(cases)
    said = {case.id: disclosed(case.experiment, corpora[key(case.experiment)]) for case in cases}
    return Job(sweep, experiment, cases, corpora, plans, said, list(nodes), store, folder, chosen)


def _continued(case: Case, folder: RunFolder) -> Case:
    """Return a case with the coefficients of correlated noise with which its trial was begun, if it was."""
    kept = coefficients(folder.case(case.id) / "checkpoint")
    return replace(case, experiment=with_coefficients(case.experiment, kept))


def _together(experiment: Experiment, left: int) -> int:
    """Return the number of trials that can run at the same time, of which ``left`` are known and have not ended."""
    tune = experiment.tune
    return left if tune.search == "random" else max(left, experiment.seeds * min(tune.pending, tune.samples))


def added(job: Job, cases: Sequence[Case]) -> list[Case]:
    """Add suggested cases to a job: with their corpora, engines and places.

    Args:
        job: The job of a search.
        cases: The cases.

    Returns:
        The same cases with the engines that they use. Those that cannot use their corpora, or do not fit on the
        cluster, get a ``problem``.

    Raises:
        UserError: The given experiment cannot use its corpus either, or does not fit.
    """
    assert job.searched is not None
    data, corpora, left = job.searched.data, dict(job.corpora), _together(job.experiment, 1)

    def use(case: Case) -> None:
        corpora.update(corpora_of(job.experiment, [case], data, corpora))
        _plans(job.experiment, [case], corpora, job.nodes, left)

    cases = [_continued(replace(case, experiment=job.choose_engine(case.experiment)), job.folder) for case in cases]
    cases = _tried(job.choose_engine(job.experiment), cases, job.folder, use)
    plans = _plans(job.experiment, cases, corpora, job.nodes, left)
    said = {case.id: disclosed(case.experiment, corpora[key(case.experiment)]) for case in cases}
    job.corpora.update(corpora)
    job.plans.update(plans)
    job.disclosed.update(said)
    job.cases.extend(cases)
    return cases


def arranged_again(job: Job, cases: Sequence[Case]) -> str:
    """Plan cases of a job again, on the nodes that the cluster has now.

    Args:
        job: The job. It gets the new plans.
        cases: The cases.

    Returns:
        The new plans in words.

    Raises:
        UserError: A case does not fit on the cluster, or only without the GPUs that it was planned for.
    """
    nodes, left = cluster.nodes(), _together(job.experiment, len(cases))
    plans = _plans(job.experiment, cases, job.corpora, nodes, left)
    if any(job.plans[case].gpus and not plan.gpus for case, plan in plans.items()):
        raise UserError("they were planned for GPUs, and no node has one")
    job.plans.update(plans)
    job.nodes[:] = nodes
    return "; ".join(dict.fromkeys(plan.sentence(nodes) for plan in plans.values()))


def _plans(
    experiment: Experiment,
    cases: Sequence[Case],
    corpora: Mapping[str, Corpus],
    nodes: Sequence[placement.Node],
    left: int,
) -> dict[str, placement.Plan]:
    """Return the share of the cluster of each case, for ``left`` trials to run.

    Raises:
        UserError: A case does not fit, or its engine cannot run there.
    """
    concurrent = None if experiment.tune.concurrent == "auto" else experiment.tune.concurrent
    plans, made = {}, dict[tuple[str, int, int, int], placement.Plan]()
    for case in cases:
        clients = participant_count(case.experiment, corpora[key(case.experiment)])
        resources, stack = case.experiment.resources, stack_size(case.experiment, clients)[0]
        alike = repr(resources), clients, stack, trainees(case.experiment, clients)
        if alike not in made:
            made[alike] = placement.plan(resources, clients, nodes, stack, max(1, left), concurrent, alike[-1])
        plans[case.id] = made[alike]
        if not plans[case.id].gpus:  # with GPUs each actor checks those it has
            check_engine(case.experiment, "cpu")
    return plans


def _begun(folder: RunFolder, cases: Iterable[Case], corpora: Mapping[str, Corpus]) -> Engine | None:
    """Return the engine of the trials in the folder: the one with which a case has the fingerprint recorded there."""
    for case in cases:
        corpus, made_from = corpora[key(case.experiment)], recorded(folder.case(case.id) / "checkpoint")
        for engine in get_args(Engine) if made_from else ():
            made = with_engine(case.experiment, engine)
            if fingerprint(made, corpus.content, participant_count(made, corpus)) == made_from:
                return engine
    return None


def _same_data(folder: RunFolder, cases: Iterable[Case], corpora: Mapping[str, Corpus]) -> None:
    """Raise UserError if a trial in the folder was computed from other data: others would be compared with it."""
    for case in cases:
        corpus, made_from = corpora[key(case.experiment)], recorded(folder.case(case.id) / "checkpoint")
        if made_from is None:
            continue
        if made_from != fingerprint(case.experiment, corpus.content, participant_count(case.experiment, corpus)):
            raise UserError(
                f"{folder.case(case.id)} was made from other data or by another version of this code: give the "
                f"{option('data')} it was made from, or remove it, and it is run again"
            )
