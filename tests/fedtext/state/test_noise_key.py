"""The file of a run's secret key: written once, whole and durable, and told where it is gone or damaged."""

import errno
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from fedtext.errors import UserError
from fedtext.state.noise_key import FILE, noise_key
from tests.fedtext.state.test_draws_of_runs import SECRET, central


def test_a_key_that_is_gone_or_damaged_is_told_and_not_replaced(tmp_path: Path) -> None:
    pytest.importorskip("randomgen")
    experiment = central(1.0, **SECRET)
    key = noise_key(experiment, "content", 4, tmp_path)
    assert noise_key(experiment, "content", 4, tmp_path) == key
    whole = (tmp_path / FILE).read_text()
    flipped = ("1" if whole[0] == "0" else "0") + whole[1:]
    for damaged in (flipped, whole[:40], "", "words of no key"):
        (tmp_path / FILE).write_text(damaged)
        with pytest.raises(UserError, match="is damaged"):
            noise_key(experiment, "content", 4, tmp_path)
    (tmp_path / FILE).unlink()
    (tmp_path / "round-000001").mkdir()
    with pytest.raises(UserError, match="is missing"):
        noise_key(experiment, "content", 4, tmp_path)


def test_a_key_is_whole_and_durable_before_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("randomgen")
    folder, synced = tmp_path / "runs" / "new", list[tuple[str, int, bool]]()

    def fsync(descriptor: int) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{descriptor}")).name
        synced.append((name, os.fstat(descriptor).st_size, (folder / FILE).exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    noise_key(central(1.0, **SECRET), "content", 4, folder)
    assert [(name, there) for name, _, there in synced] == [
        (tmp_path.name, False),
        ("runs", False),
        (f".{FILE}-{os.getpid()}.draft", False),
        ("new", True),
    ]
    assert synced[2][1] == (folder / FILE).stat().st_size
    word, check = (folder / FILE).read_text().split()
    assert (len(bytes.fromhex(word)), len(bytes.fromhex(check))) == (32, 8)
    assert len(noise_key(central(1.0, **SECRET), "content", 4, folder).material) == 32


def test_a_draft_of_a_key_is_written_over_and_never_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("randomgen")
    draft = tmp_path / f".{FILE}-{os.getpid()}.draft"
    draft.write_text("of a process that died")
    noise_key(central(1.0, **SECRET), "content", 4, tmp_path)
    assert sorted(tmp_path.iterdir()) == [tmp_path / FILE]
    (tmp_path / FILE).unlink()

    def full(*asked: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(UserError, match=r"cannot be written to .*noise.key \(No space left on device\)"):
        noise_key(central(1.0, **SECRET), "content", 4, tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot be written to .*file/run/noise.key \(Not a directory\)"):
        noise_key(central(1.0, **SECRET), "content", 4, tmp_path / "file" / "run")


def test_without_a_generator_for_it_a_secret_key_is_refused_before_anything_is_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not after the first round, and never for draws of another generator."""
    monkeypatch.setitem(sys.modules, "randomgen", None)
    with pytest.raises(UserError, match=r"randomgen is not installed: pip install 'fedtext\[secret\]'"):
        noise_key(central(1.0, **SECRET), "content", 4)
    assert not noise_key(central(1.0), "content", 4).secret
