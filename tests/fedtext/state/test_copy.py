"""The copy of a run's folder on an object store: whole checkpoints, two of them, and one owner."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedtext.errors import OwnershipLostError, UserError
from fedtext.records import RoundRecord
from fedtext.runtime.remote import Remote
from fedtext.state import noise_key
from fedtext.state.checkpoint import SUMS, Checkpoints
from fedtext.state.copy import Copy
from fedtext.state.fetching import OWNER
from tests.fedtext.state.copied import copy_of, rounds, save
from tests.loops import nonempty
from tests.stores import SECRET, Store


def test_the_last_two_checkpoints_are_on_the_store(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "first"
    copy = copy_of(store, folder).take()
    for round_ in (1, 2, 3):
        save(folder, round_)
        copy.push("00-a", checkpoints=True)
    copy.push()
    local = {path.name: sorted(file.name for file in path.iterdir()) for path in folder.glob("00-a/checkpoint/round-*")}
    assert rounds(store) == local
    assert sorted(local) == ["round-000002", "round-000003"] == store.folders("runs/first/00-a/checkpoint")
    assert store.get("runs/first/plan.json") == (folder / "plan.json").read_bytes()
    assert not [name for name in store.files() if name.rpartition("/")[2].startswith(".")]


def test_another_machine_continues_from_the_copy(store: Store, tmp_path: Path) -> None:
    here, there = tmp_path / "a" / "first", tmp_path / "b" / "first"
    save(here, 1)
    save(here, 2)
    (here / "00-a" / "checkpoint" / noise_key.FILE).write_text("secret")
    copy_of(store, here).take().push("00-a", checkpoints=True)
    copy_of(store, here).take().push()
    copy = copy_of(store, there)
    copy.pull()
    loaded = Checkpoints(there / "00-a" / "checkpoint", "print").load()
    assert loaded is not None
    assert (loaded.round, loaded.flat.tolist(), loaded.clients) == (2, [2.0] * 3, {0: b"zero", 1: b"one"})
    assert loaded.extra == {"audit": b"private"}
    assert (there / "00-a" / "tracking.json").read_text() == '{"last_round": 2}'
    state = there / "00-a/checkpoint/round-000002"
    private = [there / "00-a/checkpoint" / noise_key.FILE, *nonempty(state.iterdir())]
    assert [file.stat().st_mode & 0o777 for file in private] == [0o600] * len(private)
    assert state.stat().st_mode & 0o777 == 0o700
    kept = Copy.of(there)
    assert kept is not None
    assert (kept.remote.uri, kept.token) == (copy.remote.uri, "")


def test_a_checkpoint_is_copied_after_its_key(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written, write = list[str](), Remote.write
    monkeypatch.setattr(Remote, "write", lambda self, data: (written.append(self.shown), write(self, data))[1])
    save(tmp_path / "a" / "first", 1)
    (tmp_path / "a" / "first" / "00-a" / "checkpoint" / noise_key.FILE).write_text("secret")
    copy = copy_of(store, tmp_path / "a" / "first").take()
    copy.push("00-a", checkpoints=True)
    names = [Path(shown).name for shown in written]
    assert names[:2] == [OWNER, noise_key.FILE]
    assert names.count(noise_key.FILE) == 1
    assert SUMS in names[2:]


def test_a_trial_also_copies_what_the_run_itself_has_since_it_began(store: Store, tmp_path: Path) -> None:
    """The run's place in MLflow is known after the first round, and the command copies nothing before a trial ends."""
    folder = tmp_path / "a" / "first"
    save(folder, 1)
    copy = copy_of(store, folder).take()
    copy.push()
    (folder / "tracking.json").write_text("run 1")
    (folder / ".hidden").write_text("of this machine")
    trial = copy_of(store, folder)
    trial = replace(trial, token=copy.token)
    trial.push("00-a", checkpoints=True)
    assert store.get("runs/first/tracking.json") == b"run 1"
    (folder / "tracking.json").write_text("run 1, and more")
    trial.push("00-a", checkpoints=True)
    assert store.get("runs/first/tracking.json") == b"run 1", "the command, which writes it, copies what has changed"
    copy.push()
    assert store.get("runs/first/tracking.json") == b"run 1, and more"
    assert not [name for name in store.files() if "hidden" in name]


def test_a_checkpoint_without_its_list_is_none(store: Store, tmp_path: Path) -> None:
    """So it is where a writer died before the last file, or in the middle of a removal."""
    folder = tmp_path / "a" / "first"
    for round_ in (1, 2):
        save(folder, round_)
    copy = copy_of(store, folder).take()
    copy.push("00-a", checkpoints=True)
    copy.push()
    store.remove(f"runs/first/00-a/checkpoint/round-000002/{SUMS}")
    other = tmp_path / "b" / "first"
    copy_of(store, other).pull()
    loaded = Checkpoints(other / "00-a" / "checkpoint", "print").load()
    assert loaded is not None
    assert loaded.round == 1
    copy.push("00-a", checkpoints=True)
    assert SUMS in rounds(store)["round-000002"], "the next copy completes it"


def test_the_list_is_written_last_and_removed_first(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[tuple[str, str]] = []
    write, remove, remove_folder = Remote.write, Remote.remove, Remote.remove_folder
    monkeypatch.setattr(Remote, "write", lambda self, data: (order.append(("write", self.shown)), write(self, data))[1])
    monkeypatch.setattr(Remote, "remove", lambda self: (order.append(("remove", self.shown)), remove(self))[1])
    monkeypatch.setattr(
        Remote, "remove_folder", lambda self: (order.append(("remove folder", self.shown)), remove_folder(self))[1]
    )
    folder = tmp_path / "a" / "first"
    copy = copy_of(store, folder).take()
    for round_ in (1, 2, 3):
        save(folder, round_)
        copy.push("00-a", checkpoints=True)
    written = [name for done, name in order if done == "write" and "/round-000003/" in name]
    old = "s3://fedtext-tests/runs/first/00-a/checkpoint/round-000001"
    assert written[-1].endswith(SUMS)
    assert [name for name in written[:-1] if name.endswith(SUMS)] == []
    complete = order.index(("write", written[-1]))
    removed = [each for each in order if each[0].startswith("remove") and each[1].startswith(old)]
    assert removed[-2:] == [("remove", f"{old}/{SUMS}"), ("remove folder", old)]
    assert order.index(removed[-1]) > complete, "the older one goes when the newer one is complete"
    assert removed[-2] in order[complete:]
    assert order[complete:].count(removed[-2]) == order.count(removed[-1]) == 1


def test_who_was_believed_dead_stops(store: Store, tmp_path: Path) -> None:
    here, there = tmp_path / "a" / "first", tmp_path / "b" / "first"
    save(here, 1)
    first = copy_of(store, here).take()
    first.push("00-a", checkpoints=True)
    first.push()
    copy_of(store, there).pull()
    second = copy_of(store, there).take()
    save(there, 2)
    second.push("00-a", checkpoints=True)
    save(here, 2)
    with pytest.raises(
        OwnershipLostError, match=r"storage: another command on .* \(process \d+\) has continued the run s3://"
    ):
        first.push("00-a", checkpoints=True)
    assert json.loads(store.get(f"runs/first/{OWNER}"))["token"] == second.token


def test_the_machine_that_worked_last_keeps_what_it_has(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "first"
    save(folder, 1)
    copy = copy_of(store, folder).take()
    copy.push("00-a", checkpoints=True)
    save(folder, 2)  # and died before it was copied
    copy_of(store, folder).pull()
    assert (folder / "00-a" / "tracking.json").read_text() == '{"last_round": 2}'
    copy_of(store, folder).take().push("00-a", checkpoints=True)
    assert sorted(rounds(store)) == ["round-000001", "round-000002"]


def test_files_that_are_gone_are_removed(store: Store, tmp_path: Path) -> None:
    here, there = tmp_path / "a" / "first", tmp_path / "b" / "first"
    save(here, 1)
    (here / "00-a" / "outcome.json").write_text("{}")
    copy = copy_of(store, here).take()
    copy.push()
    copy_of(store, there).pull()
    assert (there / "00-a" / "outcome.json").exists()
    (here / "00-a" / "outcome.json").unlink()
    copy.push()
    assert "runs/first/00-a/outcome.json" not in store.files()
    copy_of(store, here).take().push()
    copy_of(store, there).pull()
    assert not (there / "00-a" / "outcome.json").exists(), "the trial was continued elsewhere"


def test_a_folder_of_another_run_is_not_overwritten(store: Store, tmp_path: Path) -> None:
    here, there = tmp_path / "a" / "first", tmp_path / "b" / "first"
    save(here, 1)
    copy_of(store, here).take().push()
    save(there, 5)
    with pytest.raises(UserError, match=r"has another run of the name first: move it away"):
        copy_of(store, there).pull()
    assert Checkpoints(there / "00-a" / "checkpoint", "print").load().round == 5  # type: ignore[union-attr]


def test_nothing_that_is_written_has_a_secret(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "first"
    save(folder, 1)
    copy_of(store, folder).take().push("00-a", checkpoints=True)
    local = [file.read_bytes() for file in folder.rglob("*") if file.is_file()]
    there = [store.get(name) for name in store.files()]
    assert len(local) > 5
    assert not [content for content in local + there if SECRET.encode() in content]


def test_what_a_checkpoint_shares_with_an_earlier_one_is_copied_by_the_store(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, write, sent = tmp_path / "a" / "first", Remote.write, list[str]()
    monkeypatch.setattr(Remote, "write", lambda self, data: (sent.append(self.name), write(self, data))[1])
    copy, checkpoints = copy_of(store, folder).take(), Checkpoints(folder / "00-a" / "checkpoint", "print")
    states = {client: bytes([client]) * 100 for client in range(5)}
    for round_ in range(1, 12):
        checkpoints.changed([round_ % 5])
        states[round_ % 5] = bytes([round_]) * 100
        records = [RoundRecord(n, 0.0, {"Ag": n / 10}) for n in range(1, round_ + 1)]
        wanted = checkpoints.wanted()
        given = states if wanted is None else {client: states[client] for client in wanted}
        checkpoints.save(np.full(3, round_, np.float32), given, records)
        sent.clear()
        copy.push("00-a", checkpoints=True)
    there = rounds(store)["round-000011"]
    assert "records-000001-000008.jsonl" in there
    new = {SUMS, "state.json", "server.f32", "clients-000011.states", "records-000009-000011.jsonl"}
    assert set(sent) == new < set(there)
    other = tmp_path / "b" / "first"
    copy_of(store, other).pull()
    loaded = Checkpoints(other / "00-a" / "checkpoint", "print").load()
    assert loaded is not None
    assert (loaded.round, loaded.clients, loaded.history) == (11, states, records)


def test_two_checkpoints_that_are_sent_together_have_no_copy_of_the_same_file(store: Store, tmp_path: Path) -> None:
    """So it is after the store was away for some rounds."""
    folder = tmp_path / "a" / "first"
    copy, checkpoints = copy_of(store, folder).take(), Checkpoints(folder / "00-a" / "checkpoint", "print")
    old, place = "records-000001-000008.jsonl", "runs/first/00-a/checkpoint/round-0000"
    for round_ in range(1, 16):
        records = [RoundRecord(n, 0.0, {"Ag": n / 10}) for n in range(1, round_ + 1)]
        given = {0: b"state"} if checkpoints.wanted() is None else {}
        checkpoints.save(np.full(3, round_, np.float32), given, records)
        if round_ < 12 or round_ == 15:
            copy.push("00-a", checkpoints=True)
        if round_ == 11:
            store.put(f"{place}10/{old}", b"damaged")
    assert [store.get(f"{place}{round_}/{old}") == b"damaged" for round_ in (14, 15)] == [True, False]
