"""The MLflow store: its address, a check whether it can be used, and the addresses of its pages.

MLflow is imported where it is first needed: that takes seconds, and finding the address does not need it.
"""

import logging
import os
import re
import shlex
import shutil
import sqlite3
import sys
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

# Experiments here are about private text: MLflow is not to send usage data anywhere unless a person asks for it. It
# reads this when it is imported.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

import requests

from fedtext.errors import UserError
from fedtext.runtime.secrets import redacted

if TYPE_CHECKING:
    from mlflow import MlflowClient

CHECK_SECONDS = 5
# MLflow itself waits 120 s and tries 7 times with growing pauses: a dead server would hold up every round for minutes.
# Tracker tries again by itself; the one retry here is for an idle connection that the server has closed.
HTTP_LIMITS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "AWS_MAX_ATTEMPTS": "1",  # of MLflow's library for artifacts on S3: one may take a minute
}
# Keeps MLflow from printing into the progress display.
QUIET = {"MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true", "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false"}
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")


@dataclass(frozen=True)
class Store:
    """An MLflow store. ``artifacts``: the address of a new experiment's files; None leaves it to the server."""

    uri: str
    artifacts: str | None = None

    @property
    def shown(self) -> str:
        """The address, with its password hidden."""
        return redacted(self.uri)

    @property
    def remote(self) -> bool:
        """Whether the store is a server, rather than a database or a folder opened by this process."""
        return self.uri.startswith(("http://", "https://", "databricks"))

    def client(self) -> "MlflowClient":
        """Return a client with short timeouts. Raises MlflowException if a database cannot be opened."""
        from mlflow import MlflowClient

        _be_brief()
        return MlflowClient(tracking_uri=self.uri)


def resolve(uri: str | None, base: Path) -> Store:
    """Return the store at ``uri``, else at $MLFLOW_TRACKING_URI, else at ``sqlite:///<base>/mlflow.db``.

    Relative sqlite paths begin in ``base``. Files of a sqlite store go to ``mlartifacts`` beside the database.
    """
    base = base.absolute()
    uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{base / 'mlflow.db'}"
    path = sqlite_path(uri)
    if path is None:
        return Store(uri if _scheme(uri) else (base / uri).as_uri())
    path = base / path
    return Store(f"sqlite:///{path}", (path.parent / "mlartifacts").as_uri())


def check(store: Store | str, experiment: str | None = None) -> None:
    """Check that the store can be used now; fails within seconds.

    Args:
        store: The store, or its address.
        experiment: An experiment to look up as well: one that was deleted in MLflow accepts no runs.

    Raises:
        UserError: It cannot be used; one sentence with the cause and the remedy.
    """
    if isinstance(store, str):
        store = Store(store)
    reach(store)
    open_(store, experiment)


def reach(store: Store) -> None:
    """Check that a server answers or a file can be written: the first half of ``check``, without importing MLflow."""
    _be_brief()  # now: the environment must not change while Ray starts
    scheme = _scheme(store.uri).split("+")[0]
    if scheme in ("http", "https"):
        _check_server(store)
    elif scheme == "sqlite":
        _check_sqlite(store)
    elif scheme in DATABASES:
        _check_database(store)


def is_new(store: Store) -> bool:
    """Whether the store is an empty file, as ``reach`` creates it: MLflow can find nothing wrong there."""
    path = sqlite_path(store.uri)
    return path is not None and path.is_file() and not path.stat().st_size


def open_(store: Store, experiment: str | None = None, registry: bool = False) -> None:
    """Check that MLflow accepts the store: the second half of ``check``. Creates the tables of a new database.

    Args:
        store: The store.
        experiment: Name of the experiment that runs are logged to; None: it is not checked.
        registry: Whether its model registry is needed.

    Raises:
        UserError: MLflow cannot be used, the experiment was deleted in it, or it has no registry.
    """
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        if is_new(store):
            _make_tables(store)
        client = store.client()
        client.search_experiments(max_results=1)
        found = client.get_experiment_by_name(experiment) if experiment else None
    except (MlflowException, SQLAlchemyError, requests.RequestException, OSError, ImportError) as error:
        raise UserError(f"MLflow at {store.shown} cannot be used: {cause(error)}; check tracking.uri") from None
    if registry:
        try:
            client.search_registered_models(max_results=1)
        except (MlflowException, SQLAlchemyError, requests.RequestException) as error:
            raise UserError(
                f"tracking.register: MLflow at {store.shown} has no model registry ({cause(error)}): leave the key "
                "out, or name a store that has one in tracking.uri or $MLFLOW_REGISTRY_URI"
            ) from None
    if found and found.lifecycle_stage == "deleted":
        raise UserError(
            f"the experiment {experiment!r} was deleted in MLflow at {store.shown}: restore it there, or choose "
            "another name with tracking.experiment"
        )


def _make_tables(store: Store) -> None:
    """Create the tables of a new database file as a copy of those that MLflow creates in memory: it takes some sixty
    steps, and in a file each of them waits for the disk. If this fails, MLflow creates them itself."""
    from mlflow.exceptions import MlflowException

    path, memory = sqlite_path(store.uri), "file:fedtext?mode=memory&cache=shared"
    assert path is not None
    with suppress(MlflowException, sqlite3.Error), closing(sqlite3.connect(memory, uri=True)) as made:
        Store(f"sqlite:///{memory}&uri=true").client()
        with closing(sqlite3.connect(path)) as file:  # one transaction, which fails if another command was quicker
            file.executescript("\n".join(made.iterdump()))


def ui_hint(store: Store, repository: Path, path: str | None = None) -> str:
    """Return one line on how to open the pages of ``store``.

    Args:
        store: The store.
        repository: ``make ui`` opens the store of this folder.
        path: Of the page to open on a server (Tracker.charts_path), added to its address.
    """
    if store.uri.startswith(("http://", "https://")):
        return f"Compare the trials in MLflow: {store.shown.rstrip('/')}{path or ''}"
    own = store == Store(*_default(repository))
    there = "" if Path.cwd() == repository else f"cd '{repository}' && "  # it is no package that is installed
    found = shutil.which("python")
    python = "python" if found and Path(found).parent == Path(sys.executable).parent else shlex.quote(sys.executable)
    command = "make ui" if own else f"{python} -m dashboards.ui --store '{store.shown}'"
    return f"Compare the trials in MLflow: {there}{command}"


def cause(error: BaseException) -> str:
    """Return why a request failed, in a few words, without the addresses and object names that libraries add."""
    text = " ".join(str(error).split())
    for words, plain in (
        ("Connection refused", "the connection was refused (nothing listens there)"),
        ("Failed to resolve", "its host name is not known"),
        ("Name or service not known", "its host name is not known"),
        ("timed out", "it did not answer in time"),
        ("timeout", "it did not answer in time"),
        ("No route to host", "there is no route to its host"),
        ("Network is unreachable", "the network is unreachable"),
        ("Connection reset", "the connection was cut"),
        ("Remote end closed", "the connection was cut"),
        (
            "error code 401",
            "it refuses the credentials: $MLFLOW_TRACKING_USERNAME and $MLFLOW_TRACKING_PASSWORD have them",
        ),
        ("out-of-date database schema", "its schema is older than this MLflow (mlflow db upgrade brings it up)"),
    ):
        if words in text:
            return plain
    text = redacted(re.sub(r"\(Background on this error at.*", "", text)).strip(" .")
    return f"{type(error).__name__}: {text}" if len(text) <= 200 else f"{type(error).__name__}: {text[:200]}..."


def _default(repository: Path) -> tuple[str, str]:
    folder = repository.absolute()
    return f"sqlite:///{folder / 'mlflow.db'}", (folder / "mlartifacts").as_uri()


def _scheme(uri: str) -> str:
    found = re.match(r"([a-z][a-z0-9+.-]*):|databricks$", uri)
    return (found[1] or "databricks") if found else ""


def sqlite_path(uri: str) -> Path | None:
    """Return the file of a sqlite address, relative if the address is; None for any other address."""
    found = re.match(r"sqlite(?:\+\w+)?:///(?P<path>[^?]+)", uri)
    return Path(found["path"]) if found else None


def _be_brief() -> None:
    """Set short timeouts, and keep libraries from printing into the progress display: Tracker reports failures."""
    for name, value in (HTTP_LIMITS | QUIET).items():
        os.environ.setdefault(name, value)
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)


def _check_server(store: Store) -> None:
    parts = urlsplit(store.uri)
    health = urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") + "/health", "", ""))
    try:
        status = requests.get(health, timeout=CHECK_SECONDS).status_code
    except requests.RequestException as error:
        raise UserError(
            f"the MLflow server at {store.shown} cannot be reached: {cause(error)}; start it, or correct tracking.uri "
            "or $MLFLOW_TRACKING_URI"
        ) from None
    # A proxy in front of the server may not let /health through, so only its own failures are judged here; whether the
    # interface works is seen by the request that follows.
    if status >= 500:
        raise UserError(f"the MLflow server at {store.shown} is not well: it answers {status} on /health; restart it")


def _check_sqlite(store: Store) -> None:
    """Open the file for writing without MLflow, which would try ten times for minutes before it gives up."""
    path = sqlite_path(store.uri)
    if path is None:
        return  # an in-memory database
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with sqlite3.connect(path, timeout=CHECK_SECONDS) as database:
            database.execute("BEGIN IMMEDIATE")
            database.rollback()
        database.close()
    except (sqlite3.Error, OSError) as error:
        raise UserError(
            f"the MLflow database {path} cannot be written: {error}; correct tracking.uri, or free the file"
        ) from None


def _check_database(store: Store) -> None:
    import sqlalchemy

    options: dict[str, Any] = {} if store.uri.startswith("mssql") else {"connect_timeout": CHECK_SECONDS}
    try:
        engine = sqlalchemy.create_engine(store.uri, connect_args=options)
        engine.connect().close()
        engine.dispose()
    except (sqlalchemy.exc.SQLAlchemyError, ImportError) as error:
        raise UserError(
            f"the MLflow database {store.shown} cannot be used: {cause(error)}; start it, or correct tracking.uri"
        ) from None
