"""Files that are written as a whole and flushed, or not at all."""

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from fedtext.runtime import durable


def test_a_file_and_its_folder_are_flushed_in_this_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    fsync, replace = os.fsync, os.replace

    def flushed(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        events.append("folder" if is_folder else f"file of {os.fstat(descriptor).st_size}")
        fsync(descriptor)

    def renamed(one: Path, other: Path) -> None:
        events.append("rename")
        replace(one, other)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "replace", renamed)
    durable.write(tmp_path / "plan.json", "ä")
    assert events == ["file of 2", "rename", "folder"]
    assert (tmp_path / "plan.json").read_text(encoding="utf-8") == "ä"


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_what_fails_leaves_the_old_file_and_no_draft(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*asked: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    durable.write(tmp_path / "plan.json", b"old")
    with monkeypatch.context() as patched:
        patched.setattr(os, failing, full)
        with pytest.raises(OSError, match="No space left"):
            durable.write(tmp_path / "plan.json", b"new")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("plan.json", b"old")]


def test_a_file_has_its_mode_from_the_beginning(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        draft = tmp_path / f".key-{os.getpid()}.draft"
        draft.touch(0o666)  # of a process with this number that died
        durable.write(tmp_path / "key", b"secret", 0o600)
        durable.write(tmp_path / "plan", b"")
    finally:
        os.umask(before)
    modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    assert modes == {"key": 0o600, "plan": 0o666}


@pytest.mark.parametrize(("code", "raised"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_filesystem_that_cannot_flush_folders_is_used_all_the_same(
    code: int, raised: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refused)
    if raised:
        with pytest.raises(OSError, match="Input/output"):
            durable.sync(tmp_path)
    else:
        durable.sync(tmp_path)


def test_each_folder_that_is_made_is_flushed_in_the_one_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[Path] = []
    monkeypatch.setattr(durable, "sync", flushed.append)
    durable.make_folder(tmp_path / "a" / "b")
    durable.make_folder(tmp_path / "a" / "b")
    assert flushed == [tmp_path, tmp_path / "a"]
    assert (tmp_path / "a" / "b").is_dir()
