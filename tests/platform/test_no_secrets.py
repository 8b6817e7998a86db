"""Secrets wherever a person can put them, and every byte that a run and a sweep leave behind."""

import gzip
import io
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.commands import ROOT, environment, reached, write
from tests.loops import nonempty
from tests.stores import SECRET, Store, object_store
from tests.traces import files, holders
from tests.tracking import free_port, server

STATE_KEY = "5a17c0de" * 8
# Nothing but these: what a person may have in the environment, or in an address there.
SECRETS = {
    "password in $MLFLOW_TRACKING_URI": "pass-in-the-address-9Q/w",
    "MLFLOW_TRACKING_PASSWORD": "tracking-password-4711",
    "MLFLOW_TRACKING_TOKEN": "tracking-token-4712",
    "FEDTEXT_STATE_KEY": STATE_KEY,
    "RAY_AUTH_TOKEN": "6b5d" * 16,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_SESSION_TOKEN": "session-token-4713",
    "HF_TOKEN": "hf_hubtoken4714",
}
MARK = "a-word-that-everybody-may-read"
# In tracking.json whatever MLflow has taken by then: the mark is there only if the run was not yet described.
DELIVERY = '"last_round"'
# A plug-in whose clients and server print a word: it shows how far the search reaches.
PLUGIN = f"""
from typing import Literal
from fedtext.methods.fedavg import FedAvg

class Chatty(FedAvg):
    \"\"\"FedAvg that prints.\"\"\"

    name: Literal["chatty"] = "chatty"

    def loss(self, model, received, batch):
        print("{MARK}", flush=True)
        return super().loss(model, received, batch)
"""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Store]:
    with object_store(monkeypatch, tmp_path / "cache") as store:
        yield store


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder for everything that is written: short, since sockets are below it."""
    folder = Path(tempfile.mkdtemp(prefix="ft-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def surroundings(place: Path, tracking: str) -> dict[str, str]:
    """The environment of a command that keeps every file below ``place``, and has all secrets."""
    folders = {"HOME": place, "TMPDIR": place / "tmp", "RAY_TMPDIR": place / "tmp", "FEDTEXT_CACHE": place / "cache"}
    for folder in folders.values():
        folder.mkdir(exist_ok=True)
    given = {name: secret for name, secret in SECRETS.items() if " " not in name}
    names = {name: str(folder) for name, folder in folders.items()}
    ray = {"RAY_AUTH_MODE": "token", "RAY_ADDRESS": ""}
    return environment(place / "home") | names | given | ray | {"MLFLOW_TRACKING_URI": tracking}


@contextmanager
def started(place: Path, tracking: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-m", f"platform.{words[0]}", *words[1:]]
    with ExitStack() as stack:
        out, err = (stack.enter_context((place / f"{words[0]}.{name}").open("a")) for name in ("stdout", "stderr"))
        with subprocess.Popen(
            argv, cwd=ROOT, env=surroundings(place, tracking), stdout=out, stderr=err, text=True
        ) as command:
            yield command


@pytest.mark.ray
def test_no_secret_is_in_anything_that_is_written(store: Store, place: Path, tmp_path: Path) -> None:
    """The sweep loses its tracking server in its last trial, so that errors of connections are written, too."""
    port, served = free_port(), place / "mlflow"
    served.mkdir()
    (place / "home").mkdir()
    (place / "chatty.py").write_text(PLUGIN)
    password = SECRETS["password in $MLFLOW_TRACKING_URI"].replace("/", "%2F")
    tracking = f"http://me:{password}@127.0.0.1:{port}"
    parts = {"plugins": ["chatty.py"], "method": "chatty", "tune": {"metric": "Ap_val"}}
    file = write(place, **parts, name=MARK, space={"seed": {"grid": [0, 1]}})
    words = ["--name", f"spied-{MARK}", f"storage={store.uri('runs')}", "training.rounds=8"]
    run, found = place / "home" / "runs" / f"spied-{MARK}", []
    with ExitStack() as serving:
        serving.enter_context(server(served, port))
        with started(place, tracking, "sweep", str(file), *words) as sweep:
            reached(run / "00-fedavg" / "checkpoint", 1, sweep)
            found += holders(files(place), SECRETS)  # what is removed at the end, too
            reached(run / "02-chatty" / "checkpoint", 2, sweep)
            serving.close()
            found += holders(files(place), SECRETS)
    said = (place / "sweep.stderr").read_text()
    assert sweep.returncode == 0, said
    assert "did not take what was sent" in said
    for refused in (f"storage=s3://me:{SECRET}@bucket/runs", f"tracking.uri={tracking}"):
        with started(place, tracking, "run", str(file), refused) as three:
            assert three.wait(120) == 2
    there = [(name, store.get(name)) for name in nonempty(store.files())]
    found += holders(files(place), SECRETS) + holders(there, SECRETS)
    assert not found

    read = {where for where, _ in holders([*files(place), *there], {"mark": MARK, "delivery": DELIVERY})}
    for reached_by in (
        r"runs/spied[^/]*/plan\.json",
        r"runs/spied[^/]*/report/report\.html",
        r"runs/spied[^/]*/02-chatty/tracking\.json",
        r"mlflow/mlflow\.db",
        r"mlflow/files/.*/experiment\.yaml",
        r"tmp/ray/.*/logs/worker-.*\.out",
        r"/sweep\.stdout",
        r"^runs/spied[^/]*/plan\.json",  # at the store
    ):
        assert [where for where in read if re.search(reached_by, where)], (reached_by, sorted(read))


def test_the_search_finds_a_secret_in_whatever_form_it_was_written(tmp_path: Path) -> None:
    secret, key = "pass-in-the-address-9Q/w", STATE_KEY
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("inner.log", f"token={secret}")
    contents = {
        "plain": f"at http://me:{secret}@host".encode(),
        "quoted": b"http://me:pass-in-the-address-9Q%2Fw@host",
        "header": b"Authorization: Basic " + b64encode(f"me:{secret}".encode()),
        "longer-header": b"Authorization: Basic " + b64encode(f"you:{secret}:x".encode()),
        "hexadecimal": secret.encode().hex().encode(),
        "compressed": gzip.compress(secret.encode()),
        "archived": archive.getvalue(),
        "key": b"\0\1" + bytes.fromhex(key) + b"\2",
        "nothing": b"http://me:***@host",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    found = holders(files(tmp_path), {"secret": secret, "key": key})
    assert {(Path(where.partition("!")[0]).name, what) for where, what in found} == {
        (name, "key" if name == "key" else "secret") for name in contents if name != "nothing"
    }
