"""States of a run on disk, whatever became of the one who wrote them."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from fedtext.checkpoint import Checkpoints
from fedtext.errors import UserError


def rows(rounds: int) -> list[dict]:
    return [{"round": round_} for round_ in range(1, rounds + 1)]


def test_the_latest_state_comes_back_and_it_alone_is_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, "one")
    assert checkpoints.load() is None
    for round_ in (1, 2):
        checkpoints.save(np.full(3, round_, np.float32), {0: b"private", 1: b""}, rows(round_))
    snapshot = checkpoints.load()
    assert snapshot is not None
    assert (snapshot.round, snapshot.flat.tolist(), snapshot.clients) == (2, [2, 2, 2], {0: b"private", 1: b""})
    assert [path.name for path in tmp_path.iterdir()] == ["round-000002"]


def test_what_a_writer_left_that_died_is_removed_when_it_is_read(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, "one")
    checkpoints.save(np.zeros(1, np.float32), {}, rows(1))
    shutil.copytree(tmp_path / "round-000001", tmp_path / "kept")
    checkpoints.save(np.ones(1, np.float32), {}, rows(2))
    (tmp_path / "kept").rename(tmp_path / "round-000001")  # it died before it could remove this,
    (tmp_path / ".draft-123").mkdir()  # another while it wrote,
    (tmp_path / "round-000003").mkdir()  # and this is no state at all
    snapshot = checkpoints.load()
    assert snapshot is not None
    assert snapshot.round == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["round-000002", "round-000003"]


def test_a_writer_that_dies_while_it_removes_leaves_one_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(tmp_path, "one")
    checkpoints.save(np.zeros(1, np.float32), {}, rows(1))

    def dies(folder: Path, ignore_errors: bool = False) -> None:
        if folder.exists():
            (folder / "state.json").unlink()
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", dies)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.save(np.ones(1, np.float32), {}, rows(2))
    assert [path.name for path in tmp_path.glob("round-*")] == ["round-000002"]
    assert checkpoints.load() is not None
    assert [path.name for path in tmp_path.iterdir()] == ["round-000002"]


def test_the_state_of_another_experiment_is_refused_and_left_alone(tmp_path: Path) -> None:
    Checkpoints(tmp_path, "one").save(np.zeros(1, np.float32), {}, rows(1))
    with pytest.raises(UserError, match="was made by another experiment or from other data"):
        Checkpoints(tmp_path, "other").load()
    assert Checkpoints(tmp_path, "one").load() is not None
