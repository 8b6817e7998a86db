"""The files for Prometheus and Grafana: every expression is over metrics that are exported, and gives data."""

import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from actors.metrics import COUNTERS, EXPORTED, GAUGES
from tests import ROOT
from tests.loops import nonempty

ROOM = ROOT / "cluster" / "monitoring"
DASHBOARD = json.loads((ROOM / "grafana" / "dashboards" / "fedtext.json").read_text())
RULES = [rule for group in yaml.safe_load((ROOM / "rules.yml").read_text())["groups"] for rule in group["rules"]]
SERIES = {exported.series: exported for exported in EXPORTED.values()}
# Metrics of Ray's own and of Prometheus, with the labels that are used of them.
OTHERS = {
    "ray_node_cpu_utilization": {"ip"},
    "ray_node_mem_used": {"ip"},
    "ray_node_mem_total": {"ip"},
    "ray_node_disk_free": {"ip"},
    "ray_node_disk_usage": {"ip"},
    "ray_object_store_memory": {"NodeAddress", "Location"},
    "up": {"job", "instance"},
}
SUBSTITUTES = {"$experiment": ".*", "$method": ".*", "$trial": ".*", "$__range": "5m", "$__rate_interval": "10s"}
LABEL = r'(\w+)\s*(?:=~|!~|!=|=)\s*"[^"]*"'


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> dict[str, str]:
    """Every expression of the dashboard and the rules by what it is for, with Grafana's variables replaced."""
    found = {f"{panel['title']} {target['refId']}": target["expr"] for panel in panels() for target in panel["targets"]}
    found |= {rule.get("record") or rule["alert"]: rule["expr"] for rule in RULES}
    for name, expression in nonempty(list(found.items())):
        for variable, value in SUBSTITUTES.items():
            expression = expression.replace(variable, value)
        assert "$" not in expression, name
        found[name] = expression
    return found


def labels_of(name: str) -> set[str]:
    return set(SERIES[name].tags) if name in SERIES else OTHERS[name]


def test_every_expression_is_over_metrics_that_are_exported() -> None:
    recorded = {rule["record"] for rule in RULES if "record" in rule}
    used = set()
    for where, expression in nonempty(list(expressions().items())):
        bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\b(?:by|without|on|ignoring) \([^)]*\)", "", expression)
        names = set(re.findall(r"\b(?:ray_\w+|fedtext:[\w:]+|up)\b", bare))
        assert names, where
        assert names <= set(SERIES) | set(OTHERS) | recorded, where
        used |= names
        filters = re.findall(r"(\b[\w:]+)\{([^}]*)\}", expression)
        assert {name for name, text in filters if not set(re.findall(LABEL, text)) <= labels_of(name)} == set()
    assert set(SERIES) <= used, "a metric that nothing shows"


def test_expressions_group_by_labels_that_their_metrics_have() -> None:
    added = {"NodeAddress", "WorkerId"}  # by Ray's agent
    for where, expression in nonempty(list(expressions().items())):
        if "fedtext:" in expression:
            continue  # of a recorded series
        names = re.findall(r"\bray_\w+\b", expression)
        grouped = {label for by in re.findall(r"\bby \(([^)]*)\)", expression) for label in re.split(r",\s*", by)}
        assert {name for name in names if not grouped <= labels_of(name) | added} == set(), where


def test_every_metric_has_a_bounded_number_of_series() -> None:
    """Counters, which Ray never forgets, have no tag of the trial; nothing else than names is a tag."""
    assert {exported.tags for exported in nonempty(COUNTERS)} == {("experiment", "method")}
    assert {exported.tags for exported in nonempty(GAUGES)} == {("experiment", "method", "trial")}
    assert len(EXPORTED) == len(COUNTERS) + len(GAUGES)


def test_the_guide_describes_every_metric() -> None:
    text = (ROOT / "docs" / "how-to" / "monitor-a-cluster.md").read_text()
    rows = [f"| `{exported.series}` | {exported.description} |" for exported in EXPORTED.values()]
    assert [row for row in text.splitlines() if row.startswith("| `ray_")] == rows


def test_legends_and_messages_name_labels_that_are_there() -> None:
    for panel in nonempty(panels()):
        for target in nonempty(panel["targets"]):
            grouped = re.findall(r"\bby \(([^)]*)\)", target["expr"])
            labels = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert labels <= set(", ".join(grouped).split(", ")), panel["title"]
    by_record = {rule["record"]: rule["expr"] for rule in RULES if "record" in rule}
    for rule in nonempty([rule for rule in RULES if "alert" in rule]):
        expression = rule["expr"]
        for name in re.findall(r"fedtext:[\w:]+", expression):
            expression += by_record[name]
        grouped = {label for by in re.findall(r"\bby \(([^)]*)\)", expression) for label in by.split(", ")}
        texts = " ".join(rule["annotations"].values())
        assert set(re.findall(r"\$labels\.(\w+)", texts)) <= grouped | {"instance"}, rule["alert"]
        assert set(rule["annotations"]) == {"summary", "remedy"}
        assert rule["labels"]["severity"] in ("warning", "critical")


def test_the_dashboard_is_one_that_grafana_lays_out() -> None:
    """Ids are unique, no two panels overlap, none is wider than the page, and all ask the chosen data source."""
    everything = DASHBOARD["panels"]
    assert len({panel["id"] for panel in everything}) == len(everything)
    cells = [
        (x, y)
        for panel in everything
        for x, y in itertools.product(
            range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"]),
            range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"]),
        )
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    assert variables == {"datasource", "experiment", "method", "trial"}
    for panel in nonempty(panels()):
        assert panel["type"] in ("timeseries", "stat", "bargauge")
        assert panel["description"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        for source in (panel, *panel["targets"]):
            assert source["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_grafana_is_provisioned_with_what_the_dashboard_asks() -> None:
    folder = ROOM / "grafana" / "provisioning"
    (source,) = yaml.safe_load((folder / "datasources" / "fedtext.yml").read_text())["datasources"]
    (asked,) = (each for each in DASHBOARD["templating"]["list"] if each["name"] == "datasource")
    assert source["type"] == asked["query"] == "prometheus"
    assert (source["uid"], source["name"]) == (asked["current"]["value"], asked["current"]["text"])
    providers = yaml.safe_load((folder / "dashboards" / "fedtext.yml").read_text())["providers"]
    assert {provider["name"] for provider in providers} == {"fedtext", "Ray"}


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not here (Debian: apt install prometheus)")
def test_promtool_accepts_rules_and_configurations(tmp_path: Path) -> None:
    """The rules with series that make each alert fire, and others that do not."""
    for words in (["check", "rules", "rules.yml"], ["test", "rules", "rules_test.yml"]):
        done = subprocess.run(["promtool", *words], cwd=ROOM, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    for name in ("prometheus.yml", "prometheus-remote.yml"):
        for file in (name, "rules.yml"):
            shutil.copy(ROOM / file, tmp_path)
        (tmp_path / "auth_token").touch()
        done = subprocess.run(["promtool", "check", "config", name], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested() -> None:
    tests = yaml.safe_load((ROOM / "rules_test.yml").read_text())["tests"]
    asked = [(each["alertname"], bool(each["exp_alerts"])) for test in tests for each in test["alert_rule_test"]]
    alerts = {rule["alert"] for rule in RULES if "alert" in rule}
    assert {name for name, fires in asked if fires} == alerts
    assert {name for name, fires in asked if not fires} == alerts
