"""Settings and fixtures that tests share."""

import os
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from dashboards.store import Store

# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile("fedtext", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("fedtext")

# Test processes side by side would otherwise each start as many threads of torch as there are cores.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# A test's Ray must not attach to a cluster that happens to run on this machine, nor report anywhere.
os.environ.pop("RAY_ADDRESS", None)
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.pop("MLFLOW_TRACKING_URI", None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where tests run side by side, one process has all that start Ray: two clusters would fight for the cores."""
    for item in items:
        if item.get_closest_marker("ray"):
            item.add_marker(pytest.mark.xdist_group("ray"))


@pytest.fixture(autouse=True)
def own_plugins() -> Iterator[None]:
    """Leave no plug-in of a test to those that follow it in its process."""
    yield
    if "fedtext.config.experiment" in sys.modules:
        from fedtext.config import plugins
        from fedtext.config.experiment import use

        if plugins.active():
            use(())


@pytest.fixture(autouse=True)
def own_spelling() -> Iterator[None]:
    """Leave the form in which messages name commands to the tests that follow in its process."""
    yield
    if "fedtext.errors" in sys.modules:
        from fedtext.errors import called_by

        called_by("python -m platform.")


@pytest.fixture(scope="session")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty MLflow database, copied by each test: creating one takes seconds."""
    from dashboards import store  # here, since MLflow reads the settings above when it is imported

    base = tmp_path_factory.mktemp("mlflow")
    store.check(store.resolve(None, base))
    return base / "mlflow.db"


@pytest.fixture
def store(tmp_path: Path, ready: Path) -> "Store":
    """An MLflow store of the test's own."""
    from dashboards.store import resolve

    with sqlite3.connect(ready) as source, sqlite3.connect(tmp_path / "mlflow.db") as copy:
        source.backup(copy)
    return resolve(None, tmp_path)


@pytest.fixture(scope="session", params=["bert", "distilbert", "roberta"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny checkpoint."""
    from tests.checkpoints import saved  # here, since what it needs takes seconds to import

    return saved(request.param, tmp_path_factory.mktemp(request.param))
