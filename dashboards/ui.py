"""``python -m dashboards.ui``: MLflow's pages of the runs recorded in a folder, on this machine alone."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import requests

from dashboards import store as stores
from dashboards import views
from fedtext.commands import Parser
from fedtext.errors import UserError

HOST, FIRST_PORT, PORTS = "127.0.0.1", 5000, 100

LEAN = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # nothing here runs jobs on the server
# Of the server errors are shown, and neither how it starts and ends nor warnings for its developers.
QUIET = ["--uvicorn-opts", "--log-level=warning"]
WARNINGS = "PYTHONWARNINGS"


def free_port(first: int = FIRST_PORT) -> int:
    """Return the first port from ``first`` on that nothing listens on. Raises UserError if there is none."""
    for port in range(first, min(first + PORTS, 65536)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
            return port
    raise UserError(f"--port: no port from {first} on is free: name another")


def page(store: stores.Store) -> str:
    """Return the path of the runs of the sweep that was recorded last, or of its experiment if it has no saved view.

    Raises:
        UserError: the store cannot be used, or has no runs.
    """
    stores.check(store)
    client = store.client()
    found = {experiment.experiment_id: experiment for experiment in client.search_experiments()}
    latest = client.search_runs(list(found), max_results=1, order_by=["attributes.start_time DESC"]) if found else []
    if not latest:
        raise UserError(f"MLflow at {store.shown} has no runs yet: make some, for example with make sweep")
    experiment = found[latest[0].info.experiment_id]
    name = latest[0].data.tags.get("fedtext.run", "")
    return views.path(experiment.experiment_id, name if f"{views.TAG}{name}" in experiment.tags else None)


def main(words: Sequence[str] | None = None) -> int:
    """Serve the pages until interrupted; return the exit status."""
    parser = Parser(prog="python -m dashboards.ui", description=__doc__)
    store = "MLflow store (else $MLFLOW_TRACKING_URI; else mlflow.db in $FEDTEXT_HOME, or here)"
    parser.add_argument("--store", metavar="URI", help=store)
    parser.add_argument("--port", type=int, default=FIRST_PORT, help=f"port to try first (else {FIRST_PORT})")
    arguments = parser.parse_args(words)
    if not 1 <= arguments.port <= 65535:
        parser.error(f"--port: {arguments.port} is no port: name one from 1 to 65535")
    try:
        return _serve(arguments.store, arguments.port)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _serve(uri: str | None, port: int) -> int:
    base = Path(os.environ.get("FEDTEXT_HOME") or Path.cwd())
    store = stores.resolve(uri, base)
    if store.uri.startswith(("http://", "https://")):
        print(f"an MLflow server has them: {store.shown}")
        return 0
    file = stores.sqlite_path(store.uri)
    if file is not None and not file.is_file():
        raise UserError(f"there are no runs yet: {file} is made by the first one, for example by make sweep")
    path, port = page(store), free_port(port)
    argv = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", store.uri]
    argv += ["--host", HOST, "--port", str(port), "--workers", "1", *QUIET]
    variables = {WARNINGS: "ignore"} | os.environ | LEAN
    # A session of its own, so that all of MLflow's processes can be ended together.
    # Such a session does not hear of a terminal that is closed: this process has to end it, whatever it ends of.
    with _signals_end_it():
        server = subprocess.Popen(argv, stdout=subprocess.DEVNULL, env=variables, start_new_session=True)
        try:
            _await(server, port)
            print(f"http://{HOST}:{port}{path}    (Ctrl-C ends it)", flush=True)
            return server.wait()
        finally:
            _end(server)


@contextlib.contextmanager
def _signals_end_it() -> Iterator[None]:
    """Turn SIGHUP and SIGTERM into SystemExit with the shell's status of them, 129 and 143."""

    def end(number: int, frame: object) -> None:
        for each in before:  # a second one is not to interrupt the end
            signal.signal(each, signal.SIG_IGN)
        sys.exit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGHUP, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(server: "subprocess.Popen[bytes]") -> None:
    for how, seconds in ((signal.SIGTERM, 5.0), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(seconds)


def _await(server: "subprocess.Popen[bytes]", port: int) -> None:
    while server.poll() is None:  # however long a busy machine takes
        with contextlib.suppress(requests.RequestException):
            if requests.get(f"http://{HOST}:{port}/health", timeout=2).ok:
                return
        time.sleep(0.2)
    raise UserError(f"MLflow's pages did not start on port {port}: see what it says above, or name another --port")


if __name__ == "__main__":
    sys.exit(main())
