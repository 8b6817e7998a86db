"""Which MLflow store is used, and what is said of one that cannot be."""

import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from dashboards import store as stores
from dashboards.store import Store
from fedtext.errors import UserError


def test_the_store_is_the_files_own_then_the_environments_then_a_database_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    default = stores.resolve(None, tmp_path)
    assert default == Store(f"sqlite:///{tmp_path}/mlflow.db", (tmp_path / "mlartifacts").as_uri())
    assert stores.ui_hint(default, tmp_path).endswith(f": cd '{tmp_path}' && make ui")
    assert f"dashboards.ui --store 'sqlite:///{tmp_path}/mlflow.db'" in stores.ui_hint(default, tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path)
    assert stores.ui_hint(default, tmp_path).endswith(": make ui")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracker:5000")
    assert stores.resolve(None, tmp_path) == Store("http://tracker:5000", None)
    assert "http://tracker:5000" in stores.ui_hint(stores.resolve(None, tmp_path), tmp_path)
    relative = stores.resolve("sqlite:///other/x.db", tmp_path)
    assert relative == Store(f"sqlite:///{tmp_path}/other/x.db", (tmp_path / "other/mlartifacts").as_uri())
    assert "secret" not in Store("https://me:secret@tracker/mlflow").shown


def test_a_store_that_cannot_be_used_is_one_sentence_within_seconds(tmp_path: Path, store: Store) -> None:
    began = time.monotonic()
    with pytest.raises(UserError, match=r"MLflow server at http://127.0.0.1:9 cannot be reached.*start it"):
        stores.check("http://127.0.0.1:9")
    (tmp_path / "text.db").write_text("no database at all, but long enough to be looked at as one" * 50)
    with pytest.raises(UserError, match=r"text\.db cannot be written.*not a database"):
        stores.check(stores.resolve("sqlite:///text.db", tmp_path))
    assert time.monotonic() - began < 10
    client = store.client()
    client.delete_experiment(client.create_experiment("gone"))
    with pytest.raises(UserError, match="'gone' was deleted"):
        stores.check(store, "gone")
    stores.check(store, "another")


def test_a_new_store_has_the_tables_that_mlflow_makes(tmp_path: Path, ready: Path) -> None:
    MlflowClient(f"sqlite:///{tmp_path / 'theirs.db'}")
    found = []
    for path in (tmp_path / "theirs.db", ready):
        with closing(sqlite3.connect(path)) as database:
            entries = database.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
            version = database.execute("SELECT version_num FROM alembic_version").fetchall()
        # A table's constraints come in any order: its words are compared.
        found.append(
            (sorted((kind, name, sorted(re.findall(r"\w+", sql or ""))) for kind, name, sql in entries), version)
        )
    assert len(found[0][0]) > 100
    assert found[0] == found[1]


def test_refused_credentials_are_named() -> None:
    body = "API request to endpoint /api/2.0/x failed with error code 401 != 200. Response body: ''"
    assert stores.cause(MlflowException(body)) == (
        "it refuses the credentials: $MLFLOW_TRACKING_USERNAME and $MLFLOW_TRACKING_PASSWORD have them"
    )
