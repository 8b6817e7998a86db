"""A Prometheus that scrapes a Ray cluster with a sweep, as the guide says: every panel and every rule has data."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.cluster.test_monitoring import ROOM, RULES, expressions
from tests.commands import ROOT, environment, write
from tests.heads import Head, ray_head
from tests.loops import nonempty
from tests.tracking import free_port

ALERTS = {rule["alert"] for rule in RULES if "alert" in rule}


def asked(url: str, what: str, **parameters: str) -> Any:
    """What Prometheus answers."""
    answer = requests.get(f"{url}/api/v1/{what}", params=parameters, timeout=30).json()
    assert answer["status"] == "success", (parameters, answer)
    return answer["data"]


def configured(head: Head, folder: Path) -> None:
    """The files of the repository, for the sessions of this head, and for a test that has not long to wait."""
    text = (ROOM / "prometheus.yml").read_text()
    for before, after in (("/tmp/ray/", f"{head.sessions}/"), ("_interval: 10s", "_interval: 2s")):
        assert before in text
        text = text.replace(before, after)
    (folder / "prometheus.yml").write_text(text)
    shutil.copy(ROOM / "rules.yml", folder)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("prometheus"), reason="there is no prometheus (Debian: apt install prometheus)")
def test_every_expression_gives_data_of_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    server = ["prometheus", "--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{port}"]
    words = ["sweep", str(write(tmp_path)), "training.rounds=4000", "tune.concurrent=1"]
    log = (tmp_path / "log").open("w")
    with ray_head(monkeypatch, cpus=2, dashboard=True) as head:
        configured(head, tmp_path)
        argv = [sys.executable, "-m", f"platform.{words[0]}", *words[1:], "--address", head.address]
        prometheus = subprocess.Popen([*server, f"--storage.tsdb.path={tmp_path}/data"], cwd=tmp_path, stderr=log)
        sweep = subprocess.Popen(argv, cwd=ROOT, env=environment(tmp_path) | dict(os.environ), stdout=log, stderr=log)
        try:
            empty = {name: text for name, text in expressions().items() if name not in ALERTS}
            deadline = time.monotonic() + 240
            while nonempty(list(expressions())) and empty:
                assert time.monotonic() < deadline, empty
                assert sweep.poll() is None, (tmp_path / "log").read_text()
                time.sleep(2)
                if prometheus_is_up(url):
                    empty = {
                        name: text for name, text in empty.items() if not asked(url, "query", query=text)["result"]
                    }
            for name, text in nonempty([(name, text) for name, text in expressions().items() if name in ALERTS]):
                assert "result" in asked(url, "query", query=text), name
            rules = [rule for group in asked(url, "rules")["groups"] for rule in group["rules"]]
            assert {rule["name"]: rule["health"] for rule in rules} == {
                rule.get("record") or rule["alert"]: "ok" for rule in RULES
            }
            assert not [rule["name"] for rule in rules if rule.get("state") == "firing"]
        finally:
            for process in (sweep, prometheus):
                process.send_signal(signal.SIGTERM)
                process.wait(60)
            log.close()


def prometheus_is_up(url: str) -> bool:
    try:
        return requests.get(f"{url}/-/ready", timeout=5).ok
    except requests.ConnectionError:
        return False
