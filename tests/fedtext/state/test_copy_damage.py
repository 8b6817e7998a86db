"""Copies of runs whose files are damaged, here or at the store."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtext.records import RoundRecord
from fedtext.runtime.remote import Remote
from fedtext.state.checkpoint import SUMS, Checkpoints
from fedtext.state.copy import Copy
from tests.fedtext.state.copied import copy_of, rounds, save
from tests.stores import Store


def test_a_damaged_copy_is_noticed(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "first"
    for round_ in (1, 2):
        save(folder, round_)
    copy = copy_of(store, folder).take()
    copy.push("00-a", checkpoints=True)
    store.put("runs/first/00-a/checkpoint/round-000002/server.f32", b"\0" * 12)
    other = tmp_path / "b" / "first"
    copy_of(store, other).pull()
    loaded = Checkpoints(other / "00-a" / "checkpoint", "print").load()
    assert loaded is not None
    assert loaded.round == 1


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (Path.unlink, SUMS),
        (Path.unlink, "clients-000003.states"),
        (lambda path: path.write_bytes(b"damaged"), "server.f32"),
    ],
    ids=["no list", "a file gone", "a file changed"],
)
def test_a_checkpoint_that_is_damaged_here_is_not_sent_and_takes_the_place_of_none(
    change: Callable[[Path], Any], name: str, store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "a" / "first"
    copy = copy_of(store, folder).take()
    for round_ in (1, 2):
        save(folder, round_)
        copy.push("00-a", checkpoints=True)
    save(folder, 3)
    last = folder / "00-a" / "checkpoint" / "round-000003"
    change(last / name)
    for _ in range(2):
        copy.push("00-a", checkpoints=True)
    assert [unit for unit, names in rounds(store).items() if SUMS in names] == ["round-000001", "round-000002"]
    (said,) = (record.message for record in caplog.records if record.levelname == "WARNING")
    assert said.startswith(f"the checkpoint {last} is damaged")
    assert name in said
    assert said.endswith("; it is not copied to s3://fedtext-tests/runs/first")
    shutil.rmtree(last)  # the run goes on from the second round
    save(folder, 3)
    copy.push("00-a", checkpoints=True)
    assert [unit for unit, names in rounds(store).items() if SUMS in names] == ["round-000002", "round-000003"]


def test_a_checkpoint_that_is_damaged_here_is_fetched_again(store: Store, tmp_path: Path) -> None:
    folder, other = tmp_path / "a" / "first", tmp_path / "b" / "first"
    save(folder, 1)
    copy_of(store, folder).take().push(checkpoints=True)
    copy_of(store, other).pull()
    (other / "00-a" / "checkpoint" / "round-000001" / "server.f32").write_bytes(b"damaged")
    copy_of(store, folder).take()
    copy_of(store, other).pull()
    loaded = Checkpoints(other / "00-a" / "checkpoint", "print").load()
    assert loaded is not None
    assert loaded.round == 1


def test_a_damaged_file_at_the_store_is_copied_into_every_other_checkpoint_only(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "a" / "first"
    copy, checkpoints = copy_of(store, folder).take(), Checkpoints(folder / "00-a" / "checkpoint", "print")
    old = "records-000001-000008.jsonl"
    for round_ in range(1, 14):
        records = [RoundRecord(n, 0.0, {"Ag": n / 10}) for n in range(1, round_ + 1)]
        given = {0: b"state"} if checkpoints.wanted() is None else {}
        checkpoints.save(np.full(3, round_, np.float32), given, records)
        copy.push("00-a", checkpoints=True)
        if round_ == 11:
            store.put(f"runs/first/00-a/checkpoint/round-000011/{old}", b"damaged")
    place = "runs/first/00-a/checkpoint/round-0000"
    assert store.get(f"{place}13/{old}") == b"damaged", "what the store copies is what it has"
    other = tmp_path / "b" / "first"
    copy_of(store, other).pull()
    loaded = Checkpoints(other / "00-a" / "checkpoint", "print").load()
    assert loaded is not None
    assert (loaded.round, loaded.clients, [record.round for record in loaded.history]) == (
        12,
        {0: b"state"},
        list(range(1, 13)),
    )
    (said,) = (record.message for record in caplog.records if record.levelname == "WARNING")
    assert said.endswith(f"round-000013 is damaged: {old} has changed since it was written; going back to round 12")


def test_a_damaged_file_is_not_sent_in_the_place_of_one_that_the_store_cannot_copy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, there = tmp_path / "first", tmp_path / "there"
    there.mkdir()
    copy = Copy(folder, Remote(f"file://{there}", "storage")).take()
    checkpoints = Checkpoints(folder / "00-a" / "checkpoint", "print")
    for round_ in range(1, 13):
        records = [RoundRecord(n, 0.0, {"Ag": n / 10}) for n in range(1, round_ + 1)]
        given = {0: b"state"} if checkpoints.wanted() is None else {}
        checkpoints.save(np.full(3, round_, np.float32), given, records)
        if round_ == 12:
            old = folder / "00-a" / "checkpoint" / "round-000012" / "records-000001-000008.jsonl"
            old.unlink()  # and not changed in the earlier checkpoints, with which it may share its content
            old.write_bytes(b"damaged")
        copy.push("00-a", checkpoints=True)
    sound = [path.parent.name for path in sorted(there.glob(f"00-a/checkpoint/*/{SUMS}"))]
    assert sound == ["round-000010", "round-000011"]
    (said,) = (record.message for record in caplog.records if record.levelname == "WARNING")
    assert f"{old.name} has changed since it was written; it is not copied to" in said
