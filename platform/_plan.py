"""``--plan``: what a command would run, and on which share of the cluster, without running it."""

import argparse
import os
from collections import Counter
from platform._announce import describe  # type: ignore[import-not-found]
from platform._folder import home
from platform._job import Job
from platform._launch import arranged, asked, corpora_of

from actors import cluster
from actors.placement import Node, counted, total
from dashboards import store as mlflow_store
from dashboards.trial import title
from fedtext.runtime.devices import no_cuda
from tune_spaces.cases import cases as make_cases

SHOWN = 40  # cases that are listed one by one


def show(words: argparse.Namespace, sweep: bool) -> int:
    """Print the plan of ``words``. No trial starts, and neither the run's folder nor MLflow is touched.

    Raises:
        UserError: where the command itself would, except for MLflow.
    """
    content, experiment, source, folder = asked(words, "sweep" if sweep else "run")
    cases = make_cases(content, experiment, source)
    corpora = corpora_of(experiment, cases, folder.data(words.data), folder)
    store = mlflow_store.resolve(experiment.tracking.uri, home())
    job = arranged(sweep, experiment, cases, corpora, _nodes(words), store, folder)
    baselines = sum(case.baseline for case in cases)
    print(f"{experiment.name}: {len(cases)} trials" + (f", {baselines} of them baselines" if baselines else ""))
    _list(job)
    describe(job)
    if (reserved := max(plan.gpus_in_use for plan in job.plans.values())) and (reason := no_cuda()):
        there = counted(total(job.nodes, "GPU"), "GPU")
        print(f"  {reserved} of {there} would be reserved, but here {reason}: clients would train on the CPU")
    return 0


def _nodes(words: argparse.Namespace) -> list[Node]:
    """The resources of the cluster: assumed, if both numbers are given and no address; else those of the Ray that the
    command would use."""
    elsewhere = words.address or os.environ.get("RAY_ADDRESS")
    if not elsewhere and words.num_cpus is not None and words.num_gpus is not None:
        return [{"CPU": words.num_cpus, "GPU": words.num_gpus}]
    cluster.connect(words.address, words.num_cpus, words.num_gpus)
    return cluster.nodes()


def _list(job: Job) -> None:
    """Print the cases, with the state of those that are there."""
    ended = job.folder.ended()
    for case in job.cases[:SHOWN]:
        print(f"    {title(case)}" + (f"  ({ended[case.id]} before)" if case.id in ended else ""))
    if left := job.cases[SHOWN:]:
        methods = Counter(case.experiment.method.name for case in left)
        print(f"    and {len(left)} more: " + ", ".join(f"{count} of {name}" for name, count in methods.items()))
