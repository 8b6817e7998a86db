"""From the words of a command to finished trials: parse, check everything that can be known to fail, run, print."""

import argparse
import sys
from collections.abc import Sequence
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
from tune_spaces.cases import Case
from tune_spaces.cases import cases as make_cases
from tune_spaces.loader import find, load

ROOT = Path(__file__).resolve().parent.parent


def launch(words: argparse.Namespace, sweep: bool) -> int:
    """Runs what the command line asks for. Exit status 0 if every trial ended well, 1 if one failed."""
    if words.keys:
        print(keys())
        return 0
    if not words.experiment:
        raise UserError("name an experiment file, such as demo.yaml (--help shows examples)")
    content, experiment = load(words.experiment, words.overrides, {} if words.seed is None else {"seed": words.seed})
    if not sweep:
        content, experiment = _single(content, experiment)
    source = find(words.experiment).name
    planned = make_cases(content, experiment, source)
    store = mlflow_store.resolve(experiment.tracking.uri, home())
    mlflow_store.check(store, experiment.tracking.experiment or experiment.name)
    data = _data(words.data)
    folder = RunFolder.choose(home() / experiment.storage, words.name, words.resume, experiment)

    corpora = _prepare(planned, data)
    cluster.connect(words.address, words.num_cpus, words.num_gpus)
    nodes = cluster.nodes()
    plans = {
        case.id: placement.plan(case.experiment.resources, len(corpora[_key(case.experiment)].clients), nodes)
        for case in planned
    }
    folder.create(content, experiment)
    _announce(planned, corpora, plans, folder, nodes)

    shape = {"nodes": str(len(nodes)), "cpus": f"{sum(n.get('CPU', 0) for n in nodes):g}"}
    shape["gpus"] = f"{sum(n.get('GPU', 0) for n in nodes):g}"
    tags = {f"cluster.{name}": value for name, value in shape.items()}
    tracker = Tracker(store, folder.path, experiment, sweep=sweep, tags=tags)
    with progress(planned) as display:
        callback = TrialCallback(
            planned,
            tracker,
            display,
            history=lambda case: history(folder.case(case) / "checkpoint"),
            about=lambda case: _about(case, corpora[_key(case.experiment)], plans[case.id]),
            on_end=folder.record,
        )
        try:
            tracker.open()
            _run(planned, corpora, plans, folder, callback, experiment)
        finally:
            outcomes = callback.outcomes
            left = len(planned) - len(outcomes)
            winner = best(planned, outcomes, experiment.tune.metric, experiment.tune.mode)
            tracker.close("KILLED" if left else "FINISHED", (winner, outcomes[winner.id].rows) if winner else None)
    print_table(planned, outcomes, experiment.tune.metric, experiment.tune.mode)
    print(mlflow_store.ui_hint(store, ROOT, tracker.charts_path() if sweep else None))
    if left:
        print(f"{left} trials have not ended: --resume {folder.path.name} continues them")
    return 1 if left or any(outcome.status == "failed" for outcome in outcomes.values()) else 0


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


def _prepare(planned: Sequence[Case], data: Path | None) -> dict[str, Corpus]:
    corpora: dict[str, Corpus] = {}
    for case in planned:
        if _key(case.experiment) not in corpora:
            experiment = case.experiment
            corpora[_key(experiment)] = prepare(experiment.corpus, experiment.model.embedding, experiment.seed, data)
    return corpora


def _about(case: Case, corpus: Corpus, plan: placement.Plan) -> About:
    experiment = case.experiment
    tags = {f"reveals.{n}": said for n, said in enumerate(reveals(experiment))}
    tags |= {"actors": str(plan.actors), "cpus_per_actor": f"{plan.cpus:g}", "gpus_per_actor": f"{plan.gpus:.4g}"}
    profile = {"clients": len(corpus.clients), "vocabulary": len(corpus.vocabulary)}
    for split in ("train", "validation", "test"):
        profile[split] = sum(len(getattr(client, split)) for client in corpus.clients)
    return About(tags, Dataset(corpus.name, corpus.digest, profile=profile))


def _announce(
    planned: Sequence[Case],
    corpora: dict[str, Corpus],
    plans: dict[str, placement.Plan],
    folder: RunFolder,
    nodes: Sequence[dict[str, Any]],
) -> None:
    """What is about to run, on what, and what it gives away."""
    print(f"{folder.path.name}: {len(planned)} trials, state in {folder.path}")
    for corpus in corpora.values():
        texts = sum(len(client.train) for client in corpus.clients)
        words = len(corpus.vocabulary)
        print(f"  corpus {corpus.name}: {len(corpus.clients)} clients, {texts:,} train texts, {words:,} words")
    for plan in sorted(set(plans.values()), key=lambda plan: plan.actors):
        share = f"{plan.cpus:g} CPUs" + (f", {plan.gpus:.4g} GPUs" if plan.gpus else "")
        print(f"  {plan.actors} client actors of {share} on {len(nodes)} node(s), {plan.trials} trial(s) at a time")
    swept = [case for case in planned if not case.baseline]
    for sentence in reveals(swept[0].experiment):
        print(f"  {sentence}")
    sys.stdout.flush()


def _run(
    planned: Sequence[Case],
    corpora: dict[str, Corpus],
    plans: dict[str, placement.Plan],
    folder: RunFolder,
    callback: TrialCallback,
    experiment: Experiment,
) -> None:
    """The trials that have not ended yet, through Tune."""
    ended = folder.ended()
    order = tune_sweep.scheduler(experiment.tune, experiment.training.rounds, [c.id for c in planned if c.baseline])
    reached = {case.id: history(folder.case(case.id) / "checkpoint") for case in planned}
    if isinstance(order, tune_sweep.SparingASHA):
        order.remember({case: rows for case, rows in reached.items() if rows})
    for case, status in ended.items():
        callback.restore(case, Outcome(status, tuple(reached[case])))
    left = [case for case in planned if case.id not in ended]
    if not left:
        return
    shipments: dict[tuple[str, bool], Shipment] = {}
    assignments = {}
    for case in left:
        key = (_key(case.experiment), case.experiment.method.pooled)
        if key not in shipments:
            shipments[key] = ship(case.experiment, corpora[key[0]])
        assignments[case.id] = Assignment(case.experiment, shipments[key], plans[case.id], folder.case(case.id))
    concurrent = experiment.tune.concurrent
    if concurrent == "auto":
        concurrent = min(plan.trials for plan in plans.values())
    tune_sweep.run(assignments, folder.path, [callback], order, concurrent, experiment.resources.max_restarts)
