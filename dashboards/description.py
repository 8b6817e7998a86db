"""Descriptions and ends of runs, as MLflow gets them."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from dashboards.groups import Found, Group, Spread
from dashboards.names import DEVIATION, logged, short_keys
from dashboards.provenance import experiment_tags
from dashboards.trial import About, Case, Dataset, RunStatus, flatten
from fedtext.runtime.secrets import redacted

RESOLVED = "experiment.yaml"
OF_THE_SWEEP = ("space", "tune", "baselines", "seeds")  # keys that describe the search, not a trial
LACKING = "seeds.lacking"  # a tag with the metrics that some of the seeds that have ended lack
ELSEWHERE = ("name", "plugins", "seed")  # keys of which tags, artifacts or the experiment in MLflow tell otherwise


@dataclass
class Description:
    """The content of a new run. ``started`` is in unix seconds, ``resolved`` is the experiment as YAML, ``files`` are
    other texts by name."""

    name: str
    started: float
    tags: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    dataset: Dataset | None = None
    resolved: str = ""
    files: dict[str, str] = field(default_factory=dict)

    def texts(self) -> dict[str, str]:
        return ({RESOLVED: self.resolved} if self.resolved else {}) | self.files


@dataclass
class End:
    """How a run ended, at ``time`` (unix seconds). ``tags`` are set then, ``metrics`` are summary values, ``name`` is
    its new name if not empty."""

    status: RunStatus
    time: float
    tags: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    name: str = ""


def described(
    name: str, dump: dict[str, Any], params: dict[str, str], tags: dict[str, str], at: float | None = None
) -> Description:
    """Return the description of a run, whose YAML has no passwords.

    Args:
        name: Name of the run.
        dump: The experiment, as plain values.
        params: Parameters of the run.
        tags: Tags of the run.
        at: Its start in unix seconds; None: now.
    """
    text = yaml.safe_dump(dump, sort_keys=False, allow_unicode=True)
    return Description(name, at or time.time(), tags, params, resolved=redacted(text))


def of_trial(
    case: Case, name: str, about: About, tags: Mapping[str, str], at: float | None = None, sweep: bool = False
) -> Description:
    """Return the description of a trial's run.

    Args:
        case: The trial.
        name: The name of its run.
        about: What is recorded of it beyond its experiment.
        tags: Tags of every run.
        at: Its start in unix seconds; None: now.
        sweep: Whether it is a trial of a sweep: its parameters are then what varies in the sweep.
    """
    dump = case.experiment.model_dump(mode="json")
    own = {
        **tags,
        **(_tagged(case) if sweep else {}),
        **experiment_tags(case.experiment),
        "baseline": str(case.baseline).lower(),
        "fedtext.case": case.id,
        "fedtext.group": case.group,
        **(about.tags or {}),
    }
    if sweep:
        params = varying(case, seed=case.group != case.id)
    else:
        params = flatten({key: value for key, value in dump.items() if key not in OF_THE_SWEEP})
    return replace(described(name, dump, params, own, at), dataset=about.dataset, files=dict(about.files))


def varying(case: Case, seed: bool = False) -> dict[str, str]:
    """Return the parameters of a trial of a sweep: its method, and its values of the swept keys under short names.

    MLflow's pages begin with the parameters that differ. Values that all trials share would only hide these.

    Args:
        case: The trial.
        seed: Whether to include its seed.
    """
    short = short_keys(case.overrides, case.experiment.model_dump(mode="json"))
    found = {"method": case.experiment.method.name} | ({"seed": str(case.experiment.seed)} if seed else {})
    for key, value in case.overrides.items():
        found |= flatten(value, short[key]) or {short[key]: json.dumps(value)}
    return found


def _tagged(case: Case) -> dict[str, str]:
    """Return the keys of a trial whose values are no defaults, and the swept ones. All keys are in ``RESOLVED``."""
    dump = case.experiment.model_dump(mode="json", exclude_defaults=True)
    found = flatten({key: value for key, value in dump.items() if key not in (*OF_THE_SWEEP, *ELSEWHERE)})
    for key, value in case.overrides.items():
        found |= flatten(value, key)
    return found


def of_group(
    group: Group, values: Mapping[str, Spread], status: RunStatus, now: float, tags: Mapping[str, str]
) -> tuple[Description, End]:
    """Return the run of a case with several seeds: mean and standard deviation of every metric.

    Its name and its tags on seeds are set at its end, since the next command in this folder may have more seeds. The
    tag ``LACKING`` has the metrics that are means of fewer seeds than have ended, with their numbers of seeds.

    Args:
        group: The case.
        values: Mean and deviation of each metric.
        status: How the run ended.
        now: Its end in unix seconds.
        tags: Tags that all runs of the sweep have.

    Returns:
        The description of the run, and its end.
    """
    dump = group.case.experiment.model_dump(mode="json")
    kept = {key: value for key, value in dump.items() if key not in (*OF_THE_SWEEP, "seed")}
    own = {**tags, **_tagged(group.case), **experiment_tags(group.case.experiment, seed=False)}
    own |= {"fedtext.group": group.id}
    name = f"{group.title}: {len(group.cases)} seeds"
    seeds = ", ".join(str(case.experiment.seed) for case in group.cases)
    metrics = {logged(name): value.mean for name, value in values.items()}
    metrics |= {logged(f"{name}{DEVIATION}"): v.deviation for name, v in values.items() if v.deviation is not None}
    ended = max(value.count for value in values.values())
    metrics["seeds.ended"] = ended
    fewer = [f"{logged(name)}: {v.count} of {ended}" for name, v in values.items() if v.count < ended]
    told = {"seeds": seeds, LACKING: ", ".join(fewer) or "none"}  # "none" replaces what an earlier end has set
    return described(name, kept, varying(group.case), own), End(status, now, told, metrics, name)


def ended(status: RunStatus, when: float, error: str, stopped: str) -> End:
    """Return the end of a trial's run.

    Args:
        status: How it ended.
        when: The time in unix seconds.
        error: The cause of a failure, which becomes a tag; empty: none.
        stopped: When the search stopped the trial, which becomes a tag; empty: it did not.
    """
    return End(status, when, {name: text for name, text in (("error", error), ("stopped", stopped)) if text})


def summed_up(status: RunStatus, now: float, metric: str, best: Found | None) -> End:
    """Return the end of a sweep, with ``best.case`` and its value of the metric as ``best.<metric>``.

    The metric has a name of its own: under its usual one the parent would be listed among its trials.

    Args:
        status: How the sweep ended.
        now: Its end in unix seconds.
        metric: The metric of the search.
        best: The best case, with its metrics; None if there is none.
    """
    if best is None:
        return End(status, now)
    group, values = best
    metrics = {f"best.{metric}": values[metric].mean} if metric in values else {}
    return End(status, now, {"best.case": group.id, "best.label": group.case.label}, metrics)
