"""``--dry-run``: everything is checked and prepared as by the command itself; its trials are described, none starts."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile

import torch

from actors import cluster
from actors.address import named
from actors.placement import Node, counted, total
from dashboards import store as mlflow_store
from dashboards.trial import title
from fedtext.config.single import aside
from fedtext.errors import UserError
from fedtext.runtime.devices import no_cuda
from fedtext.state.checkpoint import glance, recorded
from sweeps import cost
from sweeps.arrange import arranged, with_corpora
from sweeps.extension import check_longer
from sweeps.job import Job, key
from sweeps.places import home
from sweeps.population import evolved
from sweeps.prepare import asked, state_bytes
from sweeps.request import Cluster, Request
from sweeps.search_log import begun_search
from sweeps.summary import details
from tune_spaces.cases import cases as make_cases

SHOWN = 40  # at most this many cases are listed one by one


def plan(request: Request) -> list[str]:
    """Return lines on the trials that would run, on their shares of the cluster, and on what they cost.

    The experiment, the corpora, the cluster, the storage and MLflow are checked. No trial starts, Ray does not, and
    neither the run's folder nor MLflow is touched. Word vectors that are not in the cache are not trained, unless
    clients have vocabularies of their own, which depend on them, or the folder has a run, whose data are compared.

    Raises:
        UserError: As the command itself would.
    """
    found = asked(request)
    experiment, folder = found.experiment, found.folder
    folder.claim()
    data = folder.data(request.data)
    searched = begun_search(found.content, experiment, found.source, data, folder)
    cases = make_cases(found.content, experiment, found.source, searched.search.points if searched else ())
    if folder.longer(experiment):
        check_longer(cases, folder.path.name, experiment.training.rounds)
    if experiment.tune.scheduler == "pbt":
        cases = evolved(cases, folder, experiment, found.content, found.source)
    store = mlflow_store.resolve(experiment.tracking.uri, home())
    _check(store, experiment.tracking.experiment or experiment.name)
    # No plan depends on the numbers of word vectors. What a run in the folder was made from does, and is compared.
    begun = any(recorded(folder.case(case.id) / "checkpoint") for case in cases)
    cases, corpora = with_corpora(experiment, cases, data, folder, train=begun)
    folder.check_space(sum(state_bytes(case.experiment, corpora[key(case.experiment)]) for case in cases))
    job = arranged(request.command == "sweep", experiment, cases, corpora, _nodes(request.cluster), store, folder)
    job = replace(job, searched=searched)
    baselines, count = sum(case.baseline for case in cases), len(cases) + job.unsuggested
    heading = f"{experiment.name}: {counted(count, 'trial')}" + (
        f", {baselines} of them baselines" if baselines else ""
    )
    heading += f"; {job.unsuggested} are suggested later, by the results of these" if job.unsuggested else ""
    lines = [*([aside()] if found.aside else []), heading, *_list(job), *details(job)]
    if (reserved := max(plan.gpus_in_use for plan in job.plans.values())) and (reason := no_cuda()):
        there = counted(total(job.nodes, "GPU"), "GPU")
        lines.append(f"  {reserved} of {there} would be reserved, but here {reason}: clients would train on the CPU")
    return [*lines, "nothing was started: the same command without --dry-run runs it"]


def _check(store: mlflow_store.Store, experiment: str) -> None:
    """Check MLflow as the command does, without making a database.

    Raises:
        UserError: It cannot be used.
    """
    path = mlflow_store.sqlite_path(store.uri)
    if path is None or path.exists():
        mlflow_store.reach(store)
        if not mlflow_store.is_new(store):
            mlflow_store.open_(store, experiment)
        return
    nearest = next(folder for folder in Path(path).absolute().parents if folder.exists())
    try:
        TemporaryFile(dir=nearest).close()  # leaves nothing behind
    except OSError as error:
        problem = f"the MLflow database {path} cannot be written ({error.strerror}): correct tracking.uri"
        raise UserError(problem) from error


def _nodes(place: Cluster) -> Sequence[Node]:
    """Return the resources of the cluster that has an address; else those of a Ray that would be started here, as given
    or as this machine has them."""
    if named(place.address):
        cluster.connect(place.address, place.num_cpus, place.num_gpus)
        return cluster.nodes()
    cpus = place.num_cpus if place.num_cpus is not None else os.cpu_count() or 1
    return [{"CPU": cpus, "GPU": place.num_gpus if place.num_gpus is not None else torch.cuda.device_count()}]


def _list(job: Job) -> Iterator[str]:
    """Yield the cases with their cost, or the status of those that have ended, and the cost of all."""
    ended = job.folder.done(job.experiment)
    costs = {}
    for case in job.cases:
        if case.id not in ended:
            done = len(glance(job.folder.case(case.id) / "checkpoint"))
            costs[case.id] = cost.cost(case.experiment, job.corpora[key(case.experiment)], done)
    shown = job.cases[:SHOWN]
    cells = {case.id: cost.in_words(costs[case.id]) for case in shown if case.id in costs}
    widths = [max(map(len, column)) for column in zip(*cells.values(), strict=True)]
    width = max(len(title(case)) for case in shown)
    for case in shown:
        about = [cell.rjust(wide) for cell, wide in zip(cells.get(case.id, ()), widths, strict=False)]
        about = [f"({ended[case.id]} before)"] if case.id in ended else about
        yield f"    {title(case).ljust(width)}  {'  '.join(about)}"
    if left := job.cases[SHOWN:]:
        methods = Counter(case.experiment.method.name for case in left)
        yield f"    and {len(left)} more: " + ", ".join(f"{count} of {name}" for name, count in methods.items())
    if costs:
        yield f"  {cost.total(list(costs.values()))}"
