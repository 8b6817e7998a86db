"""From a request to a job: everything that can be checked is checked before the first trial starts."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from actors import cluster
from actors.coming import wait_for
from dashboards import store as mlflow_store
from fedtext.api.disclosed import numbers
from fedtext.config import files
from fedtext.config.experiment import Experiment
from fedtext.config.loading import Plugin, find_plugin, only_audits
from fedtext.config.overrides import override, parse_overrides, with_seed
from fedtext.config.single import describes_several
from fedtext.config.tune import Tune
from fedtext.corpora.types import Corpus
from fedtext.errors import UserError, option
from fedtext.state.checkpoint import KEPT
from sweeps.arrange import arranged, with_corpora
from sweeps.extension import check_longer
from sweeps.folder import RunFolder
from sweeps.job import Job, key
from sweeps.names import places
from sweeps.places import PLAN, STORAGE, home
from sweeps.population import evolved
from sweeps.request import Cluster, Given, Request
from sweeps.search_log import begun_search, write_log
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
    data = folder.data(request.data)
    searched = begun_search(found.content, experiment, found.source, data, folder)
    cases = make_cases(found.content, experiment, found.source, searched.search.points if searched else ())
    if folder.longer(experiment):
        check_longer(cases, folder.path.name, experiment.training.rounds)
    evolving = (found.content, found.source) if experiment.tune.scheduler == "pbt" else None
    if evolving and folder.copy:
        raise UserError(
            "tune.scheduler: pbt exchanges checkpoints between trials, and a storage with a URI copies those of each "
            "trial alone: set storage to a folder"
        )
    cases = evolved(cases, folder, experiment, *evolving) if evolving else cases
    store = reached(experiment)
    job = planned(request.cluster, data, experiment, cases, store, folder, request.command == "sweep")
    folder = folder.owned()
    folder.create(found.content, experiment, request.command, data, cases)
    job = replace(job, folder=folder, aside=found.aside, searched=searched, evolving=evolving)
    write_log(job)
    folder.copy_files()
    return job


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
    overrides, aside = with_seed(overrides, request.seed), False
    if named is not None:
        try:
            content, experiment, source = given(named, overrides, request.plugins)
        except UserError:
            if request.resume is not None:
                _check_packages(request, named, overrides)  # its parts are unknown where their package is gone
            raise
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
        pairs, kept = parse_overrides(overrides), folder.content()
        if "storage" in pairs:
            raise UserError(
                f"{option('resume')}: {folder.path.name} goes on in its own folder, and storage has no effect: leave "
                f"it out (a run elsewhere is named by its path: {option('resume', 'FOLDER')})"
            )
        kept = kept | {"plugins": _left(files.plugins_of(kept), request.plugins)}
        content = files.with_plugins(override(kept, pairs), more=request.plugins)
        experiment = files.validate(content, source, overridden=pairs)
    else:
        raise UserError("name an experiment file, such as demo.yaml (--help shows examples)")
    folder.check(experiment)
    return Asked(content, experiment, source, folder, aside)


def _check_packages(request: Request, named: Given, overrides: Sequence[str]) -> None:
    """Check that the packages of the run that is resumed are installed, if there is such a run.

    Args:
        request: The request, which names the run.
        named: Its experiment, which cannot be used as it is.
        overrides: Changes to it, ``key=value``.

    Raises:
        UserError: A package is missing.
    """
    assert request.resume is not None
    storage = STORAGE
    with suppress(UserError):
        content = files.read(files.find(named)) if isinstance(named, str | Path) else files.content_of(named)
        storage = str(override(content, parse_overrides(overrides)).get("storage", STORAGE))
    try:
        folder = RunFolder.begun(places(storage)[0], request.resume, request.command)
    except UserError:  # what is wrong with the experiment is said first
        return
    folder.check_packages()


def _left(kept: Iterable[Plugin], more: Iterable[str | Path]) -> list[Plugin]:
    """Return the plug-ins of a run that goes on, without those for which others of their names are given.

    Raises:
        UserError: One of the latter defines more than audits, and the other one has another text.
    """
    mine = {plugin.name: plugin for plugin in kept}
    for found in map(find_plugin, more):
        before = mine.get(found.name)
        if before is None or before == found:
            continue
        if not (only_audits(before) and only_audits(found)):
            raise UserError(
                f"{option('plugin')}: a run goes on with its own copy of {found.name}, and this one has another text: "
                "start a new run to use it"
            )
        del mine[found.name]
    return list(mine.values())


def given(
    named: Given,
    overrides: Sequence[str],
    plugins: Sequence[str | Path],
) -> tuple[files.Content, Experiment, str]:
    """Load and validate an experiment.

    Args:
        named: A file, a name, or a content.
        overrides: Changes, ``key=value``.
        plugins: Files or modules with parts, in addition to those that the experiment lists.

    Returns:
        The content of the experiment, the experiment, and its name in messages.
    """
    if isinstance(named, str | Path):
        return *files.load(named, overrides, more=plugins), files.find(named).name
    pairs = parse_overrides(overrides)
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
    with ThreadPoolExecutor(1) as aside:  # imports that take 2 s: Ray's start is mostly waiting
        taken = None
        if not mlflow_store.is_new(store):
            named, register = experiment.tracking.experiment or experiment.name, experiment.tracking.register_as
            taken = aside.submit(mlflow_store.open_, store, named, bool(register))
        cases, corpora = with_corpora(experiment, cases, data, folder)
        folder.check_space(sum(state_bytes(case.experiment, corpora[key(case.experiment)]) for case in cases))
        if taken and taken.done():
            taken.result()
        for name in ("sweeps.trials", "mlflow"):  # with Ray Tune, which imports MLflow before the first trial
            aside.submit(import_module, name)
        processes = sum(1 + len(corpora[key(case.experiment)].clients) for case in cases)  # if all cases ran at once
        cluster.connect(place.address, place.num_cpus, place.num_gpus, processes)
        if cluster.joined():
            wait_for(place.num_cpus, place.num_gpus)
        if taken:
            taken.result()
    return arranged(sweep, experiment, cases, corpora, cluster.nodes(), store, folder)


def state_bytes(experiment: Experiment, corpus: Corpus) -> int:
    """Return the least size of a trial's checkpoints on disk: those that are kept, and the one being written."""
    return (KEPT + 1) * 4 * numbers(experiment, corpus)


def _single(content: files.Content, experiment: Experiment) -> tuple[files.Content, Experiment, bool]:
    """Return the experiment without space, baselines and seeds, and whether it had any."""
    aside = describes_several(experiment)
    left = {key: value for key, value in content.items() if key not in ("space", "baselines", "seeds")}
    if isinstance(tune := content.get("tune"), dict):
        left["tune"] = {key: value for key, value in tune.items() if key in ("metric", "mode")}
    tune = experiment.tune
    alone = {"space": {}, "baselines": (), "seeds": 1, "tune": Tune(metric=tune.metric, mode=tune.mode)}
    return left, experiment.model_copy(update=alone), aside
