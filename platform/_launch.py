"""From the words of a command to finished trials: parse, check everything that can be known to fail, run, print."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from platform._folder import RunFolder, home  # type: ignore[import-not-found]
from typing import Any

from actors import cluster, placement
from actors import sweep as tune_sweep
from actors.fleet import Shipment, ship
from actors.trial import Assignment
from dashboards import store as mlflow_store
from dashboards.callback import TrialCallback
from dashboards.progress import progress
from dashboards.table import best, print_table
from dashboards.tracking import Tracker
from dashboards.trial import About, Dataset, Outcome
from fedtext.checkpoint import history
from fedtext.config import keys
from fedtext.corpora.prepare import prepare
from fedtext.corpora.types import Corpus
from fedtext.disclosure import reveals
from fedtext.errors import UserError
from fedtext.experiment import Experiment
from fedtext.fleet import participants
from tune_spaces.cases import Case
from tune_spaces.cases import cases as make_cases
from tune_spaces.loader import find, load

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Job:
    """Everything a command has decided before its first trial starts. ``corpora`` are by what they depend on (_key),
    ``plans`` by case, ``nodes`` are the cluster's resources."""

    sweep: bool
    experiment: Experiment
    cases: list[Case]
    corpora: dict[str, Corpus]
    plans: dict[str, placement.Plan]
    nodes: list[dict[str, float]]
    store: mlflow_store.Store
    folder: RunFolder


def launch(words: argparse.Namespace, sweep: bool) -> int:
    """Runs what the command line asks for. Exit status 0 if every trial ended well, 1 if one did not."""
    if words.keys:
        print(keys())
        return 0
    job = _decide(words, sweep)
    _announce(job)
    tracker = Tracker(job.store, job.folder.path, job.experiment, sweep=sweep, tags=_shape(job.nodes))
    outcomes = _run(job, tracker)
    tune, left = job.experiment.tune, len(job.cases) - len(outcomes)
    print_table(job.cases, outcomes, tune.metric, tune.direction)
    print(mlflow_store.ui_hint(job.store, ROOT, tracker.charts_path() if sweep else None))
    if left:
        print(f"{left} trials have not ended: --resume {job.folder.path.name} continues them")
    return 1 if left or any(outcome.status == "failed" for outcome in outcomes.values()) else 0


def _decide(words: argparse.Namespace, sweep: bool) -> Job:
    """Reads and checks everything that can be known to fail; only then is the run's folder made."""
    if not words.experiment:
        raise UserError("name an experiment file, such as demo.yaml (--help shows examples)")
    content, experiment = load(words.experiment, words.overrides, {} if words.seed is None else {"seed": words.seed})
    if not sweep:
        content, experiment = _single(content, experiment)
    cases = make_cases(content, experiment, find(words.experiment).name)
    store = mlflow_store.resolve(experiment.tracking.uri, home())
    mlflow_store.check(store, experiment.tracking.experiment or experiment.name)
    data = _data(words.data)
    folder = RunFolder.choose(home() / experiment.storage, words.name, words.resume, experiment)
    corpora: dict[str, Corpus] = {}
    for one in (case.experiment for case in cases):
        if _key(one) not in corpora:
            corpora[_key(one)] = prepare(one.corpus, one.model.embedding, one.seed, data)
    cluster.connect(words.address, words.num_cpus, words.num_gpus)
    nodes = cluster.nodes()
    plans = {}
    for case in cases:
        clients = len(participants(case.experiment, corpora[_key(case.experiment)]))
        plans[case.id] = placement.plan(case.experiment.resources, clients, nodes)
    folder.create(content, experiment)
    return Job(sweep, experiment, cases, corpora, plans, nodes, store, folder)


def _single(content: dict[str, Any], experiment: Experiment) -> tuple[dict[str, Any], Experiment]:
    """The same experiment without what only a sweep uses; says so where that leaves something aside."""
    if experiment.space or experiment.baselines:
        print("one run: the experiment's space and baselines are left aside (platform.sweep runs them)")
    left = {key: value for key, value in content.items() if key not in ("space", "baselines")}
    return left, experiment.model_copy(update={"space": {}, "baselines": ()})


def _data(given: Path | None) -> Path | None:
    if given and not given.is_dir():
        raise UserError(f"--data: there is no folder {given}")
    return given.resolve() if given else None


def _key(experiment: Experiment) -> str:
    """What an encoded corpus depends on: cases that agree in it share one."""
    return f"{experiment.corpus!r} {experiment.model.embedding!r} {experiment.seed}"


def _shape(nodes: Sequence[dict[str, float]]) -> dict[str, str]:
    total = {name: sum(node.get(name, 0) for node in nodes) for name in ("CPU", "GPU")}
    return {"cluster.nodes": str(len(nodes))} | {f"cluster.{n.lower()}s": f"{v:g}" for n, v in total.items()}


def _about(case: Case, job: Job) -> About:
    """What MLflow is to know of a trial beyond its experiment."""
    corpus, plan = job.corpora[_key(case.experiment)], job.plans[case.id]
    tags = {f"reveals.{n}": said for n, said in enumerate(reveals(case.experiment))}
    tags |= {"actors": str(plan.actors), "cpus_per_actor": f"{plan.cpus:g}", "gpus_per_actor": f"{plan.gpus:.4g}"}
    profile = {"clients": len(corpus.clients), "vocabulary": len(corpus.vocabulary)}
    for split in ("train", "validation", "test"):
        profile[split] = sum(len(getattr(client, split)) for client in corpus.clients)
    return About(tags, Dataset(corpus.name, corpus.digest, profile=profile))


def _announce(job: Job) -> None:
    """What is about to run, on what, and what it gives away."""
    print(f"{job.folder.path.name}: {len(job.cases)} trials, state in {job.folder.path}")
    for corpus in job.corpora.values():
        texts, words = sum(len(client.train) for client in corpus.clients), len(corpus.vocabulary)
        print(f"  corpus {corpus.name}: {len(corpus.clients)} clients, {texts:,} train texts, {words:,} words")
        if corpus.coverage:
            shares = f"{corpus.coverage.vocabulary:.1%} of the vocabulary, {corpus.coverage.tokens:.1%} of train"
            print(f"  vectors for {shares}; the other words start at random")
    for plan in sorted(set(job.plans.values()), key=lambda plan: plan.actors):
        share = f"{plan.cpus:g} CPUs" + (f", {plan.gpus:.4g} GPUs" if plan.gpus else "")
        print(f"  {plan.actors} client actors of {share} on {len(job.nodes)} node(s), {plan.trials} trial(s) at a time")
    print(f"  engine {job.experiment.engine}")
    for sentence in reveals(next(case for case in job.cases if not case.baseline).experiment):
        print(f"  {sentence}")
    sys.stdout.flush()


def _run(job: Job, tracker: Tracker) -> dict[str, Outcome]:
    """Runs the trials under a live display and in MLflow; how each of them ended."""
    tune = job.experiment.tune
    with progress(job.cases) as display:
        callback = TrialCallback(
            job.cases,
            tracker,
            display,
            history=lambda case: history(job.folder.case(case) / "checkpoint"),
            about=lambda case: _about(case, job),
            on_end=job.folder.record,
        )
        try:
            tracker.open()
            _train(job, callback)
        finally:
            outcomes = callback.outcomes
            winner = best(job.cases, outcomes, tune.metric, tune.direction)
            whole = len(outcomes) == len(job.cases)
            tracker.close("FINISHED" if whole else "KILLED", (winner, outcomes[winner.id].rows) if winner else None)
    return outcomes


def _train(job: Job, callback: TrialCallback) -> None:
    """The trials that have not ended yet, through Tune."""
    experiment, ended = job.experiment, job.folder.ended()
    reached = {case.id: history(job.folder.case(case.id) / "checkpoint") for case in job.cases}
    baselines = [case.id for case in job.cases if case.baseline]
    order = tune_sweep.scheduler(experiment.tune, max(case.experiment.training.rounds for case in job.cases), baselines)
    if isinstance(order, tune_sweep.SparingASHA):
        order.remember({case: rows for case, rows in reached.items() if rows})
    for case_id, status in ended.items():
        callback.restore(case_id, Outcome(status, tuple(reached[case_id])))
    shipments: dict[tuple[str, bool], Shipment] = {}
    assignments = {}
    for case in job.cases:
        if case.id in ended:
            continue
        key = (_key(case.experiment), case.experiment.method.pooled)
        if key not in shipments:
            shipments[key] = ship(case.experiment, job.corpora[key[0]])
        folder = job.folder.case(case.id)
        assignments[case.id] = Assignment(case.experiment, shipments[key], job.plans[case.id], folder)
    if not assignments:
        return
    concurrent = experiment.tune.concurrent
    if concurrent == "auto":
        concurrent = min(plan.trials for plan in job.plans.values())
    tune_sweep.run(assignments, job.folder.path, [callback], order, concurrent, experiment.resources.max_restarts)
