"""From a request to a job: everything that can be checked is checked before the first trial starts."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

from actors import cluster, placement
from dashboards import store as mlflow_store
from fedtext.client.audit_runner import audited_words
from fedtext.config import files
from fedtext.config.engine import check_engine, choose_engine, stack_size, trainees, with_engine
from fedtext.config.experiment import Experiment
from fedtext.config.overrides import override, parse_overrides
from fedtext.corpora.prepare import prepare
from fedtext.corpora.types import Corpus
from fedtext.errors import UserError, option
from fedtext.ledger import noise_multiplier
from fedtext.parameters import check_classes
from fedtext.server.start import participant_count
from fedtext.state.checkpoint import KEPT, recorded
from fedtext.state.fingerprint import fingerprint
from fedtext.training.config import Engine
from sweeps.folder import PLAN, STORAGE, RunFolder, home, places
from sweeps.job import Job, disclosed, key, numbers
from sweeps.request import Cluster, Given, Request
from tune_spaces.cases import Case
from tune_spaces.cases import cases as make_cases


def prepared(request: Request) -> Job:
    """Load and check everything that a job needs, and create the run's folder.

    Raises:
        UserError: Something cannot be used. No folder is created then.
    """
    found = asked(request)
    experiment, folder = found.experiment, found.folder
    folder.claim()
    cases = make_cases(found.content, experiment, found.source)
    data = folder.data(request.data)
    store = reached(experiment)
    job = planned(request.cluster, data, experiment, cases, store, folder, request.command == "sweep")
    folder = folder.owned()
    folder.create(found.content, experiment, request.command, data, cases)
    return replace(job, folder=folder, aside=found.aside)


@dataclass(frozen=True)
class Asked:
    """A requested experiment.

    Attributes:
        content: The content of its file, after overrides.
        experiment: The experiment in it.
        source: Its name in messages.
        folder: The run's folder.
        aside: Whether a space, baselines or seeds are left aside.
    """

    content: files.Content
    experiment: Experiment
    source: str
    folder: RunFolder
    aside: bool = False


def asked(request: Request) -> Asked:
    """Return the requested experiment.

    A run that is resumed has its experiment in its folder; one that is given again must be the same.

    Raises:
        UserError: There is no such experiment or run, or they do not agree.
    """
    if request.resume is not None and request.name is not None:
        raise UserError(f"{option('resume')} continues a run under the name it has: leave out {option('name')}")
    named: Given | None = request.experiment
    overrides = list(request.overrides)
    if request.resume is not None and isinstance(named, str) and "=" in named and not Path(named).is_file():
        overrides.insert(0, named)  # an override, not a file
        named = None
    changes = {} if request.seed is None else {"seed": request.seed}
    aside = False
    if named is not None:
        content, experiment, source = given(named, overrides, changes, request.plugins)
        if request.command == "run":
            content, experiment, aside = _single(content, experiment)
        storage, remote = places(experiment.storage)
        if request.resume is None:
            folder = RunFolder.new(storage, request.name, experiment.name, request.command)
            if remote:
                folder = folder.copied(remote, request.command)
            return Asked(content, experiment, source, folder, aside)
        folder = RunFolder.begun(storage, request.resume, request.command)
    elif request.resume is not None:
        folder = RunFolder.begun(home() / STORAGE, request.resume, request.command)
        source = str(folder.path / PLAN)
        pairs = parse_overrides(overrides) | changes
        content = files.with_plugins(override(folder.content(), pairs), more=request.plugins)
        experiment = files.validate(content, source, overridden=pairs)
    else:
        raise UserError("name an experiment file, such as demo.yaml (--help shows examples)")
    folder.check(experiment)
    return Asked(content, experiment, source, folder, aside)


def given(
    named: Given,
    overrides: Sequence[str],
    changes: Mapping[str, Any],
    plugins: Sequence[str | Path],
) -> tuple[files.Content, Experiment, str]:
    """Load and validate an experiment.

    Args:
        named: A file, a name, or a content.
        overrides: Changes, ``key=value``.
        changes: More changes, by dotted key.
        plugins: Files or modules with parts, in addition to those that the experiment lists.

    Returns:
        The content of the experiment, the experiment, and its name in messages.
    """
    if isinstance(named, str | Path):
        return *files.load(named, overrides, changes, plugins), files.find(named).name
    pairs = parse_overrides(overrides) | dict(changes)
    content = files.with_plugins(override(files.content_of(named), pairs), more=plugins)
    return content, files.validate(content, overridden=pairs), "the experiment"


def reached(experiment: Experiment) -> mlflow_store.Store:
    """Return the MLflow store. Raises UserError if it does not respond."""
    store = mlflow_store.resolve(experiment.tracking.uri, home())
    mlflow_store.reach(store)
    return store


def planned(
    place: Cluster,
    data: Path | None,
    experiment: Experiment,
    cases: list[Case],
    store: mlflow_store.Store,
    folder: RunFolder,
    sweep: bool,
) -> Job:
    """Load the corpora of the cases, start Ray or connect to it, and place the cases.

    Args:
        place: The cluster to connect to, or the resources of a Ray started here.
        data: The folder given with --data, if any.
        experiment: The experiment.
        cases: The cases.
        store: The store of MLflow.
        folder: The folder of the run.
        sweep: Whether the job is a sweep rather than a single run.

    Raises:
        UserError: Trials in the folder were computed from other data, MLflow does not accept the experiment, or the
            cases do not fit on the cluster.
    """
    with ThreadPoolExecutor(1) as aside:  # importing MLflow and Ray Tune takes 2 s, and Ray's start is mostly waiting
        taken = None
        if not mlflow_store.is_new(store):
            named, register = experiment.tracking.experiment or experiment.name, experiment.tracking.register_as
            taken = aside.submit(mlflow_store.open_, store, named, bool(register))
        corpora = corpora_of(experiment, cases, data, folder)
        folder.check_space(sum(state_bytes(case.experiment, corpora[key(case.experiment)]) for case in cases))
        if taken and taken.done():
            taken.result()
        aside.submit(import_module, "ray.tune")
        processes = sum(1 + len(corpora[key(case.experiment)].clients) for case in cases)  # if all cases ran at once
        cluster.connect(place.address, place.num_cpus, place.num_gpus, processes)
        if taken:
            taken.result()
    return arranged(sweep, experiment, cases, corpora, cluster.nodes(), store, folder)


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
    gpu, problem, begun = placement.total(nodes, "GPU") > 0, cluster.compile_problem(), _begun(folder, cases, corpora)
    cases = [replace(case, experiment=choose_engine(case.experiment, gpu, problem, begun)) for case in cases]
    _same_data(folder, cases, corpora)
    ended = {} if folder.longer(experiment) else folder.ended()
    plans = _plans(experiment, cases, corpora, nodes, len(cases) - len(ended))
    said = {case.id: disclosed(case.experiment, corpora[key(case.experiment)]) for case in cases}
    return Job(sweep, experiment, cases, corpora, plans, said, nodes, store, folder)


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
            check_engine(case.experiment, gpu=False)
    return plans


def state_bytes(experiment: Experiment, corpus: Corpus) -> int:
    """Return the least size of a trial's checkpoints on disk: those that are kept, and the one being written."""
    return (KEPT + 1) * 4 * numbers(experiment, corpus)


def corpora_of(
    experiment: Experiment, cases: Sequence[Case], data: Path | None, folder: RunFolder
) -> dict[str, Corpus]:
    """Return the corpora of all cases, by ``key``.

    Args:
        experiment: The experiment, for its ``tune.metric``.
        cases: The cases.
        data: The folder given with --data, if any.
        folder: The folder of the run.

    Raises:
        UserError: A case cannot use its corpus.
    """
    corpora: dict[str, Corpus] = {}
    for one in (case.experiment for case in cases):
        if key(one) not in corpora:
            corpora[key(one)] = prepare(one.corpus, one.model.embedding, one.seed, data, one.own_vocabularies)
            check_classes("tune.metric", experiment.tune.metric, corpora[key(one)])
    for case in cases:
        audited_words(case.experiment, corpora[key(case.experiment)].vocabulary)
        if case.experiment.server.noise:
            noise_multiplier(case.experiment)
    return corpora


def _single(content: files.Content, experiment: Experiment) -> tuple[files.Content, Experiment, bool]:
    """Return the experiment without space, baselines and seeds, and whether it had any."""
    aside = bool(experiment.space or experiment.baselines or experiment.seeds > 1)
    left = {key: value for key, value in content.items() if key not in ("space", "baselines", "seeds")}
    return left, experiment.model_copy(update={"space": {}, "baselines": (), "seeds": 1}), aside


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
