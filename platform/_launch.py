"""From the words of a command to finished trials: parse, check everything that can be known to fail, run, print."""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from platform._announce import announce
from platform._folder import PLAN, STORAGE, RunFolder, home  # type: ignore[import-not-found]
from platform._job import Job, disclosed, key, numbers
from typing import Any

from actors import cluster, placement
from dashboards import store as mlflow_store
from fedtext.client.audit_runner import audited_words
from fedtext.client.participants import count
from fedtext.config import files, keys
from fedtext.config.engine import check_engine, stack_size, trainees
from fedtext.config.experiment import Experiment
from fedtext.config.files import find, load
from fedtext.corpora.prepare import prepare
from fedtext.corpora.types import Corpus
from fedtext.errors import UserError
from fedtext.ledger import noise_multiplier
from fedtext.parameters import check_classes
from fedtext.state.checkpoint import KEPT, recorded
from fedtext.state.fingerprint import fingerprint
from tune_spaces.cases import Case
from tune_spaces.cases import cases as make_cases


def launch(words: argparse.Namespace, sweep: bool) -> int:
    """Runs what the command line asks for. Returns the exit status: 0 if every trial ended well."""
    if words.keys is not None:
        files.use_plugins(words.experiment, words.plugin)
        print(keys.about(words.keys))
        return 0
    if words.plan:
        from platform._plan import show  # it is all that this command does

        return show(words, sweep)
    job = _decide(words, sweep)
    announce(job)
    from platform._trials import run  # with Ray Tune, which only now is there

    return run(job)


def _decide(words: argparse.Namespace, sweep: bool) -> Job:
    """Reads and checks everything that can be known to fail; only then is the run's folder made."""
    command = "sweep" if sweep else "run"
    content, experiment, source, folder = asked(words, command)
    folder.claim()
    cases = make_cases(content, experiment, source)
    data = folder.data(words.data)
    store = reached(experiment)
    job = planned(words, data, experiment, cases, store, folder, sweep)
    folder.create(content, experiment, command, data)
    return job


def asked(words: argparse.Namespace, command: str) -> tuple[files.Content, Experiment, str, RunFolder]:
    """The experiment, what names it in errors, and the run's folder. A run that is resumed has its experiment with it;
    one that is named again must be the same."""
    if words.resume is not None and words.name is not None:
        raise UserError("--resume continues a run under the name it has: leave out --name")
    file, overrides = words.experiment, words.overrides
    if words.resume is not None and file and "=" in file and not Path(file).is_file():  # a change, and no file named
        file, overrides = None, [file, *overrides]
    changes = {} if words.seed is None else {"seed": words.seed}
    if file:
        content, experiment = load(file, overrides, changes, words.plugin)
        if command == "run":
            content, experiment = _single(content, experiment)
        source, storage = find(file).name, home() / experiment.storage
        if words.resume is None:
            return content, experiment, source, RunFolder.new(storage, words.name, experiment.name, command)
        folder = RunFolder.begun(storage, words.resume, command)
    elif words.resume is not None:
        folder = RunFolder.begun(home() / STORAGE, words.resume, command)
        source = str(folder.path / PLAN)
        pairs = dict(map(files.parse_override, overrides)) | changes
        content = files.with_plugins(files.override(folder.content(), pairs), more=words.plugin)
        experiment = files.validate(content, source, overridden=pairs)
    else:
        raise UserError("name an experiment file, such as demo.yaml (--help shows examples)")
    folder.check(experiment)
    return content, experiment, source, folder


def reached(experiment: Experiment) -> mlflow_store.Store:
    """The MLflow store, which answers."""
    store = mlflow_store.resolve(experiment.tracking.uri, home())
    mlflow_store.reach(store)
    return store


def planned(
    words: argparse.Namespace,
    data: Path | None,
    experiment: Experiment,
    cases: list[Case],
    store: mlflow_store.Store,
    folder: RunFolder,
    sweep: bool,
) -> Job:
    """The cases with their corpora from ``data``, and with their places on Ray, which is started or joined here. Raises
    UserError if trials that are there were made from other data, or if MLflow's store does not take the experiment."""
    with ThreadPoolExecutor(1) as aside:  # to import MLflow and Ray Tune takes 2 s, and Ray's start is mostly waiting
        taken = None
        if not mlflow_store.is_new(store):
            taken = aside.submit(mlflow_store.open_, store, experiment.tracking.experiment or experiment.name)
        corpora = corpora_of(experiment, cases, data, folder)
        folder.check_space(sum(_state_bytes(case.experiment, corpora[key(case.experiment)]) for case in cases))
        if taken and taken.done():
            taken.result()
        aside.submit(import_module, "ray.tune")
        processes = sum(1 + len(corpora[key(case.experiment)].clients) for case in cases)  # if there were room for all
        cluster.connect(words.address, words.num_cpus, words.num_gpus, processes)
        if taken:
            taken.result()
    return arranged(sweep, experiment, cases, corpora, cluster.nodes(), store, folder)


def arranged(
    sweep: bool,
    experiment: Experiment,
    cases: list[Case],
    corpora: dict[str, Corpus],
    nodes: list[dict[str, float]],
    store: mlflow_store.Store,
    folder: RunFolder,
) -> Job:
    """The cases with their places on ``nodes``, and what each reveals. Raises UserError if they do not fit."""
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
    """The share of the cluster for each case, while ``left`` trials are to be run. Raises UserError if it has none, or
    not what its engine needs."""
    concurrent = None if experiment.tune.concurrent == "auto" else experiment.tune.concurrent
    plans, made = {}, dict[tuple[str, int, int, int], placement.Plan]()
    for case in cases:
        clients = count(case.experiment, corpora[key(case.experiment)])
        resources, stack = case.experiment.resources, stack_size(case.experiment, clients)[0]
        alike = repr(resources), clients, stack, trainees(case.experiment, clients)
        if alike not in made:
            made[alike] = placement.plan(resources, clients, nodes, stack, max(1, left), concurrent, alike[-1])
        plans[case.id] = made[alike]
        if not plans[case.id].gpus:  # otherwise each actor looks at what is there
            check_engine(case.experiment, gpu=False)
    return plans


def _state_bytes(experiment: Experiment, corpus: Corpus) -> int:
    """What the checkpoints of a trial take on disk at least: those that are kept, and the one being written."""
    return (KEPT + 1) * 4 * numbers(experiment, corpus)


def corpora_of(
    experiment: Experiment, cases: Sequence[Case], data: Path | None, folder: RunFolder
) -> dict[str, Corpus]:
    """The corpora of all cases, by what they depend on. Raises UserError where a case cannot use its own, or if trials
    in ``folder`` were made from other data."""
    corpora: dict[str, Corpus] = {}
    for one in (case.experiment for case in cases):
        if key(one) not in corpora:
            corpora[key(one)] = prepare(one.corpus, one.model.embedding, one.seed, data, one.own_vocabularies)
            check_classes("tune.metric", experiment.tune.metric, corpora[key(one)])
    for case in cases:
        audited_words(case.experiment, corpora[key(case.experiment)].vocabulary)
        if case.experiment.server.noise:
            noise_multiplier(case.experiment)
    _same_data(folder, cases, corpora)
    return corpora


def _single(content: dict[str, Any], experiment: Experiment) -> tuple[dict[str, Any], Experiment]:
    """The same experiment without what only a sweep uses; says so where that leaves something aside."""
    if experiment.space or experiment.baselines or experiment.seeds > 1:
        print("one run: the experiment's space, baselines and seeds are left aside (platform.sweep runs them)")
    left = {key: value for key, value in content.items() if key not in ("space", "baselines", "seeds")}
    return left, experiment.model_copy(update={"space": {}, "baselines": (), "seeds": 1})


def _same_data(folder: RunFolder, cases: Iterable[Case], corpora: Mapping[str, Corpus]) -> None:
    """Raises UserError if a trial that is there was made from other data: others would be compared with it."""
    for case in cases:
        corpus, made_from = corpora[key(case.experiment)], recorded(folder.case(case.id) / "checkpoint")
        if made_from is None:
            continue
        if made_from != fingerprint(case.experiment, corpus.content, count(case.experiment, corpus)):
            raise UserError(
                f"{folder.case(case.id)} was made from other data or by another version of this code: give the --data "
                "it was made from, or remove it, and it is run again"
            )
