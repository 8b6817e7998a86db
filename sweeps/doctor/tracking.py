"""The MLflow store: whether it answers and can be written, its schema, its artifacts and its registry."""

import json
import re
import sqlite3
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import requests

from dashboards import store as mlflow_store
from dashboards.store import Store
from fedtext.errors import UserError
from sweeps.doctor.finding import About, Finding
from sweeps.doctor.software import numbers, version_of
from sweeps.places import home

if TYPE_CHECKING:
    from mlflow import MlflowClient

PROBE = "fedtext.doctor"  # a tag and a file that are written, and removed at once
_about = About("tracking")


def reachable(
    uri: str | None = None, experiment: str | None = None, registry_needed: bool = False
) -> Iterator[Finding]:
    """Yield what is found of the store. Whatever is written to it is removed again.

    Args:
        uri: Its address; None: $MLFLOW_TRACKING_URI, else the database in the folder of results.
        experiment: Name of an experiment in it that runs would be logged to; None: none.
        registry_needed: Whether a store without a registry of models is a problem.
    """
    if version_of("mlflow") is None:
        yield _about.warning(
            "MLflow is not installed", 'sweeps need it: pip install -c constraints.txt -e ".[platform]"'
        )
        return
    store = mlflow_store.resolve(uri, home())
    database = mlflow_store.sqlite_path(store.uri)
    if database and (not database.exists() or mlflow_store.is_new(store)):
        yield new_database(database)
        return
    try:
        mlflow_store.reach(store)
        if store.uri.startswith("http"):
            yield server_version(store)
        mlflow_store.open_(store, experiment, registry_needed)
    except UserError as error:
        yield _about.problem(str(error))
        return
    yield from writable(store, database)


def new_database(path: Path) -> Finding:
    """Check that a database that is not there yet can be created."""
    nearest = next(folder for folder in path.parents if folder.exists())
    try:
        tempfile.TemporaryFile(dir=nearest).close()
    except OSError as error:
        return _about.problem(
            f"{path} cannot be created ({error.strerror})", "make its folder writable, or set $MLFLOW_TRACKING_URI"
        )
    return _about.ok(f"{path} will be created by the first run (a server: set $MLFLOW_TRACKING_URI)")


def server_version(store: Store) -> Finding:
    """Compare the version of an MLflow server with that of MLflow here."""
    here = version_of("mlflow") or ""
    try:
        answer = requests.get(store.uri.rstrip("/") + "/version", timeout=mlflow_store.CHECK_SECONDS)
        answer.raise_for_status()
    except requests.RequestException:  # its message may have the password
        return _about.warning(f"{store.shown} does not say its version")
    there = answer.text.strip()
    if not re.fullmatch(r"[\w.+-]+", there):
        return _about.warning(f"{store.shown} answers, but not as an MLflow server", "correct $MLFLOW_TRACKING_URI")
    if numbers(there)[:1] != numbers(here)[:1]:
        return _about.warning(f"{store.shown} has MLflow {there}, and here is {here}", "use the same major version")
    return _about.ok(f"server {store.shown}: MLflow {there}" + (f", here {here}" if there != here else ""))


def writable(store: Store, database: Path | None) -> Iterator[Finding]:
    """Yield whether a store that answers can be written: its records, its files, and its registry.

    Args:
        store: The store.
        database: Its file, if it is a SQLite database.
    """
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    client = store.client()
    try:
        first, *_ = client.search_experiments(max_results=1)
        client.set_experiment_tag(first.experiment_id, PROBE, "a check")
        client.delete_experiment_tag(first.experiment_id, PROBE)
    except (MlflowException, SQLAlchemyError, OSError) as error:
        remedy = "see the rights of its database or of your account"
        yield _about.problem(f"{store.shown} answers and cannot be written: {mlflow_store.cause(error)}", remedy)
        return
    except ValueError:
        yield _about.ok(f"{store.shown} answers; it has no experiment yet")
        return
    schema = f", schema {revision(database)}" if database else ""
    yield _about.ok(f"{store.shown} can be written{schema}")
    yield artifacts(store, store.artifacts or first.artifact_location)
    yield registry(client)


def revision(database: Path) -> str:
    """Return the version of a SQLite database's schema, as Alembic names it."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as opened:
        (found,) = opened.execute("SELECT version_num FROM alembic_version").fetchone()
    return str(found)


def artifacts(store: Store, root: str) -> Finding:
    """Write a file where runs put theirs, and remove it.

    Args:
        store: The store.
        root: The address of the files of an experiment.
    """
    from mlflow.exceptions import MlflowException
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    if store.remote and re.match(r"/|file:", root):
        return _about.warning(
            f"{store.shown} tells clients to write files to {root} on their own machine",
            "start it with --artifacts-destination (mlflow server --help), and new experiments use that",
        )
    if re.match(r"/|file:", root):
        folder = Path(root.removeprefix("file://"))
        nearest = next(one for one in (folder, *folder.parents) if one.exists())
        try:
            tempfile.TemporaryFile(dir=nearest).close()
        except OSError as error:
            return _about.problem(f"files of runs: {folder} cannot be written ({error.strerror})", "make it writable")
        return _about.ok(f"files of runs: {folder} can be written")
    place = f"{PROBE}-{uuid.uuid4().hex[:8]}"
    try:
        repository = get_artifact_repository(root, tracking_uri=store.uri)
        with tempfile.TemporaryDirectory() as folder_:
            probe = Path(folder_, "probe.json")
            probe.write_text(json.dumps({PROBE: "a check"}))
            repository.log_artifact(str(probe), place)
        repository.delete_artifacts(place)
    except (MlflowException, OSError, ImportError, NotImplementedError) as error:
        remedy = "see the server's --artifacts-destination and its rights there"
        return _about.warning(f"files of runs: {root} cannot be written: {mlflow_store.cause(error)}", remedy)
    return _about.ok(f"files of runs: {root} can be written")


def registry(client: "MlflowClient") -> Finding:
    """Ask the registry of models."""
    from mlflow.exceptions import MlflowException

    try:
        found = client.search_registered_models(max_results=100)
    except MlflowException as error:
        return _about.warning(f"no registry of models: {mlflow_store.cause(error)}", "use a database as the store")
    return _about.ok(f"registry of models: {len(found)}{' or more' if found.token else ''} in it")
