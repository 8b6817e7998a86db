"""MLflow's pages: the port they take, the page they open on, and that they end with their command."""

import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
import requests

from dashboards import ui
from dashboards.store import Store
from fedtext.errors import UserError
from tests.commands import ROOT, environment


def taken() -> socket.socket:
    listening = socket.socket()
    listening.bind((ui.HOST, 0))
    listening.listen()
    return listening


def pages_of(store: Store, home: Path, port: int) -> "subprocess.Popen[str]":
    argv = [sys.executable, "-m", "dashboards.ui", "--store", store.uri, "--port", str(port)]
    with (home / "errors").open("w") as errors:
        return subprocess.Popen(argv, cwd=ROOT, env=environment(home), stdout=subprocess.PIPE, stderr=errors, text=True)


def link_of(pages: "subprocess.Popen[str]") -> str:
    """The link that is printed once the pages are served."""
    assert pages.stdout is not None
    return pages.stdout.readline().split()[0]


def test_a_port_that_is_taken_is_passed_over() -> None:
    with taken() as listening:
        port = listening.getsockname()[1]
        assert port < ui.free_port(port) < port + ui.PORTS
    assert ui.free_port(port) == port


@pytest.mark.parametrize("port", ["0", "-5", "65536"])
def test_what_is_no_port_is_one_sentence(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        ui.main([f"--port={port}"])
    assert ended.value.code == 2
    assert f"--port: {port} is no port: name one from 1 to 65535" in capsys.readouterr().err


def test_a_folder_without_runs_says_what_makes_some(tmp_path: Path, store: Store) -> None:
    with pytest.raises(UserError, match="has no runs yet: make some, for example with make sweep"):
        ui.page(store)
    argv = [sys.executable, "-m", "dashboards.ui", "--store", f"sqlite:///{tmp_path}/none.db"]
    done = subprocess.run(argv, cwd=ROOT, env=environment(tmp_path), capture_output=True, text=True)
    assert done.returncode == 2
    assert (
        done.stderr
        == f"error: there are no runs yet: {tmp_path}/none.db is made by the first one, for example by make sweep\n"
    )


def test_the_page_is_the_view_of_the_sweep_recorded_last(store: Store) -> None:
    client = store.client()
    plain = client.create_experiment("plain")
    client.create_run(plain, start_time=1000, tags={"fedtext.run": "alone"})
    assert ui.page(store) == f"/#/experiments/{plain}/runs?workflowType=machine_learning"
    swept = client.create_experiment("swept", tags={"mlflow.sharedViewState.first": "{}"})
    client.create_run(swept, start_time=2000, tags={"fedtext.run": "first"})
    assert ui.page(store) == f"/#/experiments/{swept}/runs?viewStateShareKey=first&workflowType=machine_learning"


@pytest.mark.slow
def test_the_pages_open_on_the_runs_recorded_last(tmp_path: Path, store: Store) -> None:
    client = store.client()
    for name, start in (("older", 1000), ("newer", 3000), ("between", 2000)):
        experiment = client.create_experiment(name)
        client.create_run(experiment, start_time=start)
    newer = client.get_experiment_by_name("newer")
    assert newer is not None
    with taken() as listening:
        first = listening.getsockname()[1]
        with pages_of(store, tmp_path, first) as pages:
            try:
                link = link_of(pages)
                assert urlsplit(link).port != first
                assert urlsplit(link).hostname == "127.0.0.1", "nobody else on the network sees the pages"
                assert (
                    urlsplit(link).fragment == f"/experiments/{newer.experiment_id}/runs?workflowType=machine_learning"
                )
                assert requests.get(link, timeout=60).ok
            finally:
                pages.send_signal(signal.SIGINT)
                assert pages.wait(120) == 130
    said = (tmp_path / "errors").read_text()
    assert "INFO" not in said, "how the server starts and ends is of no use"
    assert "Warning" not in said
    with pytest.raises(requests.ConnectionError):
        requests.get(link, timeout=10)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
@pytest.mark.slow
def test_the_pages_end_with_their_command_however_it_is_told_to(
    number: signal.Signals, tmp_path: Path, store: Store
) -> None:
    """A terminal that is closed sends SIGHUP."""
    client = store.client()
    client.create_run(client.create_experiment("one"))
    with pages_of(store, tmp_path, ui.free_port()) as pages:
        try:
            link = link_of(pages)
            (server,) = psutil.Process(pages.pid).children()
            serving = [server, *server.children(recursive=True)]
        finally:
            pages.send_signal(number)
            assert pages.wait(120) == 128 + number
    _, left = psutil.wait_procs(serving, timeout=60)
    for process in left:
        process.kill()
    assert not left
    with pytest.raises(requests.ConnectionError):
        requests.get(link, timeout=10)
