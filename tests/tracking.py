"""A real MLflow server, for tests."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def free_port() -> int:
    """A port that nothing listens on, and that the system gives to no other process before it is used: these are from
    32768 on, and Ray's workers take some up to 19999."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_768)
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port


@contextmanager
def server(base: Path, port: int) -> Iterator[None]:
    """``mlflow server`` on ``base``'s database, killed with its workers at the end."""
    command = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{base}/mlflow.db", "--artifacts-destination", str(base / "files")]
    environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (base / "server.log").open("a") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment)
    try:
        for _ in range(480):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, (base / "server.log").read_text()
                time.sleep(0.25)
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
