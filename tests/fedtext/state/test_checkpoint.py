"""States of a run on disk, whatever became of the one who wrote them."""

import errno
import itertools
import logging
import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtext.errors import UserError
from fedtext.records import RoundRecord
from fedtext.state import checkpoint, kept
from fedtext.state.checkpoint import Checkpoints, history, recorded
from tests.loops import nonempty

PRIVATE = {0: b"private", 1: b""}
NEW_IN_2 = (
    "server.f32", "state.json", "clients-000002.states", "server-optimizer.safetensors", "selected.f32", "extra-key",
    "records-000001-000002.jsonl",
)  # fmt: skip


def records(rounds: int) -> list[RoundRecord]:
    return [RoundRecord(round_, 0.0, {}) for round_ in range(1, rounds + 1)]


def saved(folder: Path, rounds: int = 2, size: int = 3) -> Checkpoints:
    """The checkpoints of a run after so many rounds: each parameter is the number of the round."""
    checkpoints = Checkpoints(folder, "one")
    for round_ in range(1, rounds + 1):
        flat = np.full(size, round_, np.float32)
        checkpoints.save(flat, PRIVATE, records(round_), {"m": flat}, flat, {"key": b"secret"})
    return checkpoints


def test_the_latest_state_comes_back_and_the_one_before_it_is_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, "one")
    assert checkpoints.load() is None
    for round_ in (1, 2, 3):
        checkpoints.save(np.full(3, round_, np.float32), PRIVATE, records(round_))
    snapshot = checkpoints.load()
    assert snapshot is not None
    having = {0: b"private"}
    assert (snapshot.round, snapshot.flat.tolist(), snapshot.clients) == (3, [3, 3, 3], having)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["round-000002", "round-000003"]


@pytest.mark.parametrize("when", ["damage", "records_of"])
def test_a_reader_of_checkpoints_that_are_replaced_meanwhile_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    checkpoints, place = saved(tmp_path, rounds=2), {"damage": kept, "records_of": checkpoint}[when]
    read, later = getattr(place, when), iter([4, 6])

    def overtaken(state: Path, *more: Any) -> Any:
        """Two rounds are completed while a checkpoint is read, and then two more."""
        if last := next(later, 0):
            for round_ in (last - 1, last):
                checkpoints.save(np.zeros(3, np.float32), PRIVATE, records(round_))
        return read(state, *more)

    monkeypatch.setattr(place, when, overtaken)
    assert len(history(tmp_path)) == 6
    later = itertools.count(8, 2)
    with pytest.raises(UserError, match="are replaced while they are read: try again"):
        history(tmp_path)


def test_copies_that_lie_beside_checkpoints_are_none(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, rounds=1)
    for stray in ("round-000001.bak", "round-", "round-000009 (copy)"):
        shutil.copytree(tmp_path / "round-000001", tmp_path / stray)
    for round_ in (2, 3):
        checkpoints.save(np.zeros(3, np.float32), PRIVATE, records(round_))
    snapshot = checkpoints.load()
    assert snapshot is not None
    assert snapshot.round == len(history(tmp_path)) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "round-",
        "round-000001.bak",
        "round-000002",
        "round-000003",
        "round-000009 (copy)",
    ]


def test_what_a_writer_left_that_died_is_removed_when_it_is_read(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, "one")
    checkpoints.save(np.zeros(1, np.float32), {}, records(1))
    (tmp_path / ".draft-123").mkdir()
    snapshot = checkpoints.load()
    assert snapshot is not None
    assert snapshot.round == 1
    assert [path.name for path in tmp_path.iterdir()] == ["round-000001"]


def test_a_writer_that_dies_while_it_removes_leaves_one_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(tmp_path, "one")
    for round_ in (1, 2):
        checkpoints.save(np.zeros(1, np.float32), {}, records(round_))

    def dies(folder: Path, ignore_errors: bool = False) -> None:
        if folder.exists():
            (folder / "state.json").unlink()
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", dies)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.save(np.ones(1, np.float32), {}, records(3))
    whole = ["round-000002", "round-000003"]
    assert sorted(path.name for path in tmp_path.glob("round-*")) == whole
    snapshot = checkpoints.load()
    assert snapshot is not None
    assert snapshot.round == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == whole


def test_the_state_of_another_experiment_is_refused_and_left_alone(tmp_path: Path) -> None:
    Checkpoints(tmp_path, "one").save(np.zeros(1, np.float32), {}, records(1))
    with pytest.raises(UserError, match="was made by another experiment or from other data"):
        Checkpoints(tmp_path, "other").load()
    assert Checkpoints(tmp_path, "one").load() is not None


def flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


DAMAGES: list[tuple[str, Callable[[Path], object], str]] = [
    *((name, flipped, f"{name} has changed since") for name in NEW_IN_2),
    *((name, Path.unlink, f"{name} is missing") for name in NEW_IN_2),
    *((name, cut, f"{name} has changed since") for name in NEW_IN_2),
    ("SHA256SUMS", flipped, "is damaged"),
    ("SHA256SUMS", Path.unlink, "it has no SHA256SUMS"),
    ("SHA256SUMS", lambda file: file.write_bytes(file.read_bytes()[:200]), "SHA256SUMS has changed"),
    ("clients-000009.states", Path.touch, "clients-000009.states does not belong to it"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "damage", "words"), DAMAGES, ids=[f"{name}, {words}" for name, _, words in DAMAGES])
def test_damage_is_said_and_the_run_goes_on_from_the_state_before_it(
    name: str, damage: Callable[[Path], object], words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = saved(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert checkpoints.load() is not None
        assert not caplog.messages
        damage(tmp_path / "round-000002" / name)
        snapshot = checkpoints.load()
    assert snapshot is not None
    assert (snapshot.round, snapshot.flat.tolist(), snapshot.clients[0]) == (1, [1, 1, 1], b"private")
    (message,) = caplog.messages
    assert f"{tmp_path}/round-000002 is damaged" in message
    assert words in message
    assert message.endswith("going back to round 1")
    assert len(history(tmp_path)) == 1
    assert recorded(tmp_path) == "one"

    first = name.replace("clients-000002", "clients-000001").replace("000001-000002", "000001-000001")
    damage(tmp_path / "round-000001" / first)
    for read in (checkpoints.load, lambda: history(tmp_path), lambda: recorded(tmp_path)):
        with pytest.raises(UserError, match=f"{words}.*there is no earlier one: remove {tmp_path} to"):
            read()
    saved(tmp_path)  # a damaged state does not stand in the way of the same round's
    assert checkpoints.load() is not None


@pytest.mark.parametrize(("damaged", "later"), [(4, 5), (4, 4), (6, 5)])
def test_a_damaged_state_is_none_of_the_two_that_are_kept(damaged: int, later: int, tmp_path: Path) -> None:
    """A run of four or six rounds goes on from the third one, after which checkpoints are of other rounds."""
    flat = np.zeros(3, np.float32)
    saved(tmp_path, 3).save(flat, PRIVATE, records(damaged))
    (tmp_path / f"round-00000{damaged}" / "server.f32").write_bytes(b"damaged")
    resumed = Checkpoints(tmp_path, "one")
    for _ in range(2):  # reading removes nothing
        snapshot = resumed.load()
        assert snapshot is not None
        assert snapshot.round == 3
    resumed.save(flat, PRIVATE, records(later))
    assert [path.name for path in kept.kept(tmp_path)] == ["round-000003", f"round-00000{later}"]
    (tmp_path / f"round-00000{later}" / "server.f32").write_bytes(b"damaged")
    snapshot = Checkpoints(tmp_path, "one").load()
    assert snapshot is not None
    assert snapshot.round == 3
    resumed.save(flat, PRIVATE, records(later + 1))
    assert [path.name for path in kept.kept(tmp_path)] == [f"round-00000{round_}" for round_ in (later, later + 1)]


def test_a_folder_without_files_is_a_damaged_state(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 1)
    (tmp_path / "round-000002").mkdir()
    snapshot = checkpoints.load()
    assert snapshot is not None
    assert snapshot.round == 1


def test_a_callers_own_files_come_back(tmp_path: Path) -> None:
    snapshot = saved(tmp_path).load()
    assert snapshot is not None
    assert snapshot.extra == {"key": b"secret"}


def test_a_state_that_cannot_be_written_leaves_the_last_one(tmp_path: Path) -> None:
    """Files larger than 100 kB fail, as they do on a full disk."""
    checkpoints = saved(tmp_path, 2)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(UserError) as caught:
            checkpoints.save(np.zeros(100_000, np.float32), PRIVATE, records(3))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    message = str(caught.value)
    assert message.startswith(f"the checkpoint of round 3: {tmp_path} cannot be written (File too large): raise the")
    assert message.endswith("the last checkpoint is that of round 2")
    assert sorted(os.listdir(tmp_path)) == ["round-000001", "round-000002"]
    snapshot = checkpoints.load()
    assert snapshot is not None
    assert snapshot.round == 2


def test_files_are_whole_and_durable_before_they_can_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, seen = dict[str, int](), list[bool]()

    def fsync(descriptor: int) -> None:
        synced[Path(os.readlink(f"/proc/self/fd/{descriptor}")).name] = os.fstat(descriptor).st_size
        seen.append((tmp_path / "round-000001").exists())

    monkeypatch.setattr(os, "fsync", fsync)
    saved(tmp_path, 1)
    draft, folder = f".draft-{os.getpid()}", tmp_path.name
    names = list(synced)
    assert names[-2:] == [draft, folder], "the folder after its files, and that the folder has been renamed"
    assert seen == [False] * (len(seen) - 1) + [True]
    written = {path.name: path.stat().st_size for path in (tmp_path / "round-000001").iterdir()}
    assert {name: size for name, size in synced.items() if name not in (draft, folder)} == written


def test_what_a_dead_writer_left_is_removed_and_stands_in_nobodys_way(tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, 1)
    for name in (".draft-1", f".draft-{os.getpid()}"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "server.f32").write_bytes(b"half")
    (tmp_path / ".draft-file").touch()
    assert checkpoints.load() is not None
    assert [path.name for path in tmp_path.glob(".draft-*")] == [".draft-file"]
    (tmp_path / f".draft-{os.getpid()}").mkdir()
    checkpoints.save(np.ones(4, np.float32), PRIVATE, records(2))
    assert sorted(path.name for path in tmp_path.glob("round-*")) == ["round-000001", "round-000002"]


def test_where_not_even_a_draft_can_be_made_the_cause_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*asked: Any, **how: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(UserError, match=r"\(No space left on device\): free space on that disk.*no checkpoint yet"):
        saved(tmp_path, 1)


def test_a_folder_that_is_a_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"of round 1: .*/file/run cannot be written \(Not a directory\): a part of"):
        saved(tmp_path / "file" / "run")


def test_the_owner_alone_can_read_a_checkpoint(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        saved(tmp_path, rounds=3)
    finally:
        os.umask(before)
    for state in nonempty(tmp_path.glob("round-*")):
        assert state.stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in state.iterdir()} == {0o600}


def test_who_reads_records_alone_is_not_warned_and_who_goes_on_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saved(tmp_path)
    (tmp_path / "round-000002" / "server.f32").write_bytes(b"damaged")
    with caplog.at_level(logging.WARNING):
        assert len(history(tmp_path)) == 1
        assert not caplog.messages
        assert recorded(tmp_path) == "one"
    (message,) = caplog.messages
    assert message.endswith("server.f32 has changed since it was written; going back to round 1")
