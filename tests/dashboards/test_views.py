"""Saved views and names of MLflow's pages."""

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dashboards.experiment_page import Page
from dashboards.names import GROUPS, logged, short_keys
from dashboards.store import Store
from dashboards.tracking import Tracker
from fedtext.metrics import METRICS
from tests.planned import experiment, kteps, rows


def view_of(tags: Mapping[str, str], name: str) -> Any:
    """What a view among an experiment's tags opens with, as MLflow's pages unpack it."""
    kept = json.loads(tags[f"mlflow.sharedViewState.{name}"])
    assert kept["name"] == name
    assert isinstance(kept["createdAt"], int)
    form, _, packed = kept["state"].partition(";")
    assert form == "deflate"
    return json.loads(zlib.decompress(base64.b64decode(packed)))


def tracked(folder: Path, store: Store, **changes: Any) -> Tracker:
    """A tracker of a sweep over lambda1."""
    swept = experiment(space={"method.lambda1": {"grid": [0.0, 0.01]}}, **changes)
    tracker = Tracker(store, folder, swept, sweep=True, again="python -m platform.sweep --resume first")
    tracker.open()
    return tracker


def test_a_view_opens_with_the_swept_keys_and_the_metric_that_sorts(tmp_path: Path, store: Store) -> None:
    tracker = tracked(tmp_path / "first", store)
    for case in (kteps(1, 0.0), kteps(2, 0.01)):
        tracker.open_trial(case)
        tracker.deliver(case.id, rows(3))
    client = store.client()
    view = view_of(client.get_experiment("1").tags, "first")
    assert view["selectedColumns"][:3] == ["params.`lambda1`", "params.`method`", "metrics.`eval/Ap_val`"]
    (chart,) = view["compareRunCharts"]
    assert (chart["type"], chart["selectedParams"], chart["selectedMetrics"]) == (
        "PARALLEL",
        ["lambda1"],
        ["eval/Ap_val"],
    )
    names = [section["name"] for section in view["compareRunSections"]]
    assert names[:4] == ["swept keys", "eval", "fine_tuning", "leakage"]
    assert [section.get("columns") for section in view["compareRunSections"][:2]] == [1, None]
    assert chart["metricSectionId"] == view["compareRunSections"][0]["uuid"]
    assert (view["orderByKey"], view["orderByAsc"]) == ("metrics.`eval/Ap_val`", False)
    found = client.search_runs(["1"], view["searchFilter"], order_by=[f"{view['orderByKey']} DESC"])
    assert [run.data.params["lambda1"] for run in found] == ["0.01", "0.0"]
    assert tracker.charts_path() == (
        "/#/experiments/1/runs?viewStateShareKey=first&compareRunsMode=CHART&workflowType=machine_learning"
    )


def test_a_view_has_the_guarantees_that_any_of_its_trials_reports() -> None:
    """Also where they are swept, from a base without any."""
    page = Page(experiment(), "first", True, "again")
    assert {"epsilon", "epsilon_text"}.isdisjoint(page.view().metrics)
    page.owed = False
    private = experiment(uplink=[{"clip": {"norm": 0.5}}, {"gaussian": {"sigma": 1.0}}])
    page.add(replace(kteps(1, 0.0), experiment=private))
    assert page.owed
    assert page.view().metrics[-2:] == ["epsilon", "bytes_total"]
    texts = experiment(method="fedavg", training={"rounds": 3, "dp_sgd": {"multiplier": 1.0}})
    page.add(replace(kteps(2, 0.0), experiment=texts))
    assert page.view().metrics[-3:] == ["epsilon", "epsilon_text", "bytes_total"]
    assert len(page.view().metrics) <= 9


def test_a_description_says_what_was_swept_unless_a_person_has_written_another(tmp_path: Path, store: Store) -> None:
    tracked(tmp_path / "first", store)
    client = store.client()
    said = client.get_experiment("1").tags["mlflow.note.content"]
    assert said.startswith("Sweep **first** of demo: kteps on demo, 3 rounds\n")
    for sentence in (
        '- `method.lambda1`: `{"grid": [0.0, 0.01]}`',
        "- continued by `python -m platform.sweep --resume first`",
        "Trials are sorted by `eval/Ap_val` (larger is better)",
    ):
        assert sentence in said
    tracked(tmp_path / "second", store)
    assert client.get_experiment("1").tags["mlflow.note.content"].startswith("Sweep **second** of demo")
    client.set_experiment_tag("1", "mlflow.note.content", "mine")
    tracked(tmp_path / "third", store)
    assert client.get_experiment("1").tags["mlflow.note.content"] == "mine"


def test_a_structured_value_is_a_parameter_for_each_of_its_keys(tmp_path: Path, store: Store) -> None:
    tracker = tracked(tmp_path / "first", store)
    noisy = replace(kteps(1, 0.0), overrides={"uplink": [{"gaussian": {"sigma": 0.01}}], "audits": []})
    tracker.open_trial(noisy)
    (run,) = store.client().search_runs(["1"], "tags.`fedtext.case` != ''")
    assert run.data.params == {"method": "kteps", "uplink.0.gaussian.sigma": "0.01", "audits": "[]"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Ap_val", "eval/Ap_val"),
        ("Ag.std", "eval/Ag.std"),
        ("perplexity_p90", "eval/perplexity_p90"),
        ("rows_recall", "leakage/rows_recall"),
        ("loss_ce", "loss/loss_ce"),
        ("attention_clients/head.weight", "server/attention_clients/head.weight"),
        ("round_seconds", "time/round_seconds"),
        ("best.Ap_val", "best.Ap_val"),
        ("of_a_plugin", "of_a_plugin"),
    ],
)
def test_metrics_stand_under_their_topic(name: str, expected: str) -> None:
    assert logged(name) == expected


def test_topics_come_in_the_order_in_which_they_matter() -> None:
    """MLflow sorts them by name."""
    assert list(GROUPS.values()) == sorted(GROUPS.values())
    assert {metric.kind for metric in METRICS} == {*GROUPS, "sweep"}


def test_a_short_name_of_a_key_is_that_of_no_other() -> None:
    whole = {"evaluation": {"every": 1}, "checkpoint": {"every": 1}, "server": {"optimizer": {"lr": 1}}}
    whole |= {"training": {"optimizer": {"lr": 0.1}, "rounds": 3}}
    keys = ["training.rounds", "evaluation.every", "training.optimizer.lr"]
    assert list(short_keys(keys, whole).values()) == ["rounds", "evaluation.every", "training.optimizer.lr"]
    assert short_keys(["method.lambda1", "method.lambda2"], whole) == {
        "method.lambda1": "lambda1",
        "method.lambda2": "lambda2",
    }


@pytest.mark.parametrize(
    ("space", "method"),
    [
        ({"method.lambda1": {"grid": [0, 1]}}, "kteps"),
        ({"method": {"grid": ["kteps", "fedavg"]}}, "several methods"),
        ({"method": {"grid": ["fedavg"]}}, "fedavg"),
        ({"method": {"grid": ["kteps", {"name": "kteps", "lambda1": 0.5}]}}, "kteps"),
        ({"method.name": {"grid": ["fedavg"]}}, "fedavg"),
        ({"case": {"grid": {"a": {"method": "fedavg"}, "b": {"method": {"fedavg": {}}}}}}, "fedavg"),
        ({"case": {"grid": {"a": {"method": "kteps"}, "b": {"training.rounds": 2}}}}, "kteps"),
        ({"case": {"grid": {"a": {"method": "fedavg"}, "b": {"training.rounds": 2}}}}, "several methods"),
        ({"case": {"grid": {"a": {"training.rounds": 3}, "b": {"training.rounds": 2}}}}, "kteps"),
    ],
)
def test_the_description_names_the_method_unless_the_space_chooses_it(space: dict[str, Any], method: str) -> None:
    swept = experiment(space=space)
    page = Page(swept, "first", True, "again")
    assert page.note().startswith(f"Sweep **first** of {swept.name}: {method} on {swept.corpus.name}, ")
