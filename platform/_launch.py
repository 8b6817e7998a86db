"""From the words of a command to finished trials: parse, check everything that can be known to fail, run, print."""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from platform._folder import PLAN, STORAGE, RunFolder, home  # type: ignore[import-not-found]
from platform._job import Job, disclosed, key
from typing import Any

from actors import cluster, placement
from dashboards import store as mlflow_store
from fedtext import config
from fedtext.auditing import audited_words
from fedtext.checkpoint import recorded
from fedtext.corpora.prepare import prepare
from fedtext.corpora.types import Corpus
from fedtext.errors import UserError
from fedtext.experiment import Experiment
from fedtext.fingerprint import fingerprint
from fedtext.fleet import count
from fedtext.ledger import noise_multiplier
from fedtext.models.inits import RandomInit
from fedtext.parameters import check_classes
from fedtext.text.vocabulary import SPECIAL
from fedtext.training.choice import check_engine, engine_reason, stack_size
from tune_spaces.cases import Case
from tune_spaces.cases import cases as make_cases
from tune_spaces.loader import find, load


def launch(words: argparse.Namespace, sweep: bool) -> int:
    """Runs what the command line asks for. Exit status 0 if every trial ended well, 1 if one did not."""
    if words.keys:
        print(config.keys())
        return 0
    job = _decide(words, sweep)
    announce(job)
    from platform._trials import run  # with Ray Tune, which only now is there

    return run(job)


def _decide(words: argparse.Namespace, sweep: bool) -> Job:
    """Reads and checks everything that can be known to fail; only then is the run's folder made."""
    command = "sweep" if sweep else "run"
    content, experiment, source, folder = _asked(words, command)
    cases = make_cases(content, experiment, source)
    data = folder.data(words.data)
    store = reached(experiment)
    job = planned(words, data, experiment, cases, store, folder, sweep)
    folder.create(content, experiment, command, data)
    return job


def _asked(words: argparse.Namespace, command: str) -> tuple[config.Content, Experiment, str, RunFolder]:
    """The experiment, what names it in errors, and the run's folder. A run that is resumed has its experiment with it;
    one that is named again must be the same."""
    if words.resume is not None and words.name is not None:
        raise UserError("--resume continues a run under the name it has: leave out --name")
    file, overrides = words.experiment, words.overrides
    if words.resume is not None and file and "=" in file and not Path(file).is_file():  # a change, and no file named
        file, overrides = None, [file, *overrides]
    changes = {} if words.seed is None else {"seed": words.seed}
    if file:
        content, experiment = load(file, overrides, changes)
        if command == "run":
            content, experiment = _single(content, experiment)
        source, storage = find(file).name, home() / experiment.storage
        if words.resume is None:
            return content, experiment, source, RunFolder.new(storage, words.name, experiment.name, command)
        folder = RunFolder.begun(storage, words.resume, command)
    elif words.resume is not None:
        folder = RunFolder.begun(home() / STORAGE, words.resume, command)
        source = str(folder.path / PLAN)
        pairs = dict(map(config.parse_override, overrides)) | changes
        content = config.override(folder.content(), pairs)
        experiment = config.validate(content, source, overridden=pairs)
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
        corpora = _corpora(experiment, cases, data)
        _same_data(folder, cases, corpora)
        if taken and taken.done():
            taken.result()
        aside.submit(import_module, "ray.tune")
        processes = sum(1 + len(corpora[key(case.experiment)].clients) for case in cases)  # if there were room for all
        cluster.connect(words.address, words.num_cpus, words.num_gpus, processes)
        if taken:
            taken.result()
    nodes = cluster.nodes()
    plans = _plans(experiment, cases, corpora, nodes, len(cases) - len(folder.ended()))
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
    plans, made = {}, dict[tuple[str, int, int], placement.Plan]()
    for case in cases:
        clients = count(case.experiment, corpora[key(case.experiment)])
        resources, stack = case.experiment.resources, stack_size(case.experiment, clients)[0]
        alike = repr(resources), clients, stack
        if alike not in made:
            made[alike] = placement.plan(resources, clients, nodes, stack, max(1, left), concurrent)
        plans[case.id] = made[alike]
        if not plans[case.id].gpus:  # otherwise each actor looks at what is there
            check_engine(case.experiment, gpu=False)
    return plans


def _corpora(experiment: Experiment, cases: Sequence[Case], data: Path | None) -> dict[str, Corpus]:
    """The corpora of all cases, by what they depend on. Raises UserError where a case cannot use its own."""
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


def announce(job: Job) -> None:
    """What is about to run, on what, and what it gives away."""
    print(f"{job.folder.path.name}: {len(job.cases)} trials, state in {job.folder.path}")
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
    for plan in sorted(set(job.plans.values()), key=lambda plan: plan.actors):
        print(f"  {plan.sentence(job.nodes)}")
    chosen = {}
    for case in job.cases:
        clients = count(case.experiment, job.corpora[key(case.experiment)])
        sentence = f"{engine_reason(case.experiment)}; {stack_size(case.experiment, clients)[1]}"
        chosen.setdefault(sentence, []).append(case)
    for sentence, cases in chosen.items():
        names = ", ".join(dict.fromkeys(case.experiment.method.name for case in cases))
        print(f"  {sentence}" if len(chosen) == 1 else f"  {names}: {sentence}")
    said: dict[str, list[Case]] = {}
    for case in job.cases:
        for sentence in () if case.baseline else job.disclosed[case.id]:
            said.setdefault(sentence, []).append(case)
    searched = [case for case in job.cases if not case.baseline]
    for sentence, cases in said.items():
        names = ", ".join(dict.fromkeys(case.experiment.method.name for case in cases))
        print(f"  {sentence}" if len(cases) == len(searched) else f"  {names}: {sentence}")
    sys.stdout.flush()
