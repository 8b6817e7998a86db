"""``--dry-run``: the trials of a command and their shares of the cluster, without running them."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from actors import cluster
from actors.placement import Node, counted, total
from dashboards import store as mlflow_store
from dashboards.trial import title
from fedtext.runtime.devices import no_cuda
from sweeps.arrange import arranged, corpora_of
from sweeps.folder import home
from sweeps.job import Job
from sweeps.population import evolved
from sweeps.prepare import asked
from sweeps.request import Cluster, Request
from sweeps.search_log import begun_search
from sweeps.summary import ASIDE, details
from tune_spaces.cases import cases as make_cases

SHOWN = 40  # at most this many cases are listed one by one


def plan(request: Request) -> list[str]:
    """Return lines on the trials that would run, and on their shares of the cluster.

    No trial starts, and neither the run's folder nor MLflow is touched.

    Raises:
        UserError: As the command itself would, except for MLflow.
    """
    found = asked(request)
    experiment, folder = found.experiment, found.folder
    data = folder.data(request.data)
    searched = begun_search(found.content, experiment, found.source, data, folder)
    cases = make_cases(found.content, experiment, found.source, searched.search.points if searched else ())
    if experiment.tune.scheduler == "pbt":
        cases = evolved(cases, folder, experiment, found.content, found.source)
    corpora = corpora_of(experiment, cases, data)
    store = mlflow_store.resolve(experiment.tracking.uri, home())
    job = arranged(request.command == "sweep", experiment, cases, corpora, _nodes(request.cluster), store, folder)
    job = replace(job, searched=searched)
    baselines, count = sum(case.baseline for case in cases), len(cases) + job.unsuggested
    heading = f"{experiment.name}: {count} trials" + (f", {baselines} of them baselines" if baselines else "")
    heading += f"; {job.unsuggested} are suggested later, by the results of these" if job.unsuggested else ""
    lines = [*([ASIDE] if found.aside else []), heading, *_list(job), *details(job)]
    if (reserved := max(plan.gpus_in_use for plan in job.plans.values())) and (reason := no_cuda()):
        there = counted(total(job.nodes, "GPU"), "GPU")
        lines.append(f"  {reserved} of {there} would be reserved, but here {reason}: clients would train on the CPU")
    return lines


def _nodes(place: Cluster) -> Sequence[Node]:
    """Return the resources of the cluster: the given numbers, if both are given and no address; else those of the Ray
    that the command would use."""
    elsewhere = place.address or os.environ.get("RAY_ADDRESS")
    if not elsewhere and place.num_cpus is not None and place.num_gpus is not None:
        return [{"CPU": place.num_cpus, "GPU": place.num_gpus}]
    cluster.connect(place.address, place.num_cpus, place.num_gpus)
    return cluster.nodes()


def _list(job: Job) -> Iterator[str]:
    """Yield the cases, with the status of those that have ended."""
    ended = job.folder.ended()
    for case in job.cases[:SHOWN]:
        yield f"    {title(case)}" + (f"  ({ended[case.id]} before)" if case.id in ended else "")
    if left := job.cases[SHOWN:]:
        methods = Counter(case.experiment.method.name for case in left)
        yield f"    and {len(left)} more: " + ", ".join(f"{count} of {name}" for name, count in methods.items())
