"""A copy of a run whose store fails, or whose process is killed: what it lacks is copied the next time."""

import pickle
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedtext.errors import OwnershipLostError, UserError
from fedtext.runtime.remote import Remote
from fedtext.state import outage
from fedtext.state.checkpoint import SUMS, Checkpoints
from fedtext.state.fetching import OWNER
from tests.fedtext.state.copied import copy_of, rounds, save
from tests.stores import Store


@pytest.fixture
def waits(store: Store, now: list[float], monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that writers wait, without waiting."""
    waited: list[float] = []
    monkeypatch.setattr(outage, "time", SimpleNamespace(sleep=waited.append, monotonic=lambda: now[0]))
    return waited


@pytest.fixture
def now() -> list[float]:
    """The time, which the test sets."""
    return [1000.0]


def test_a_write_that_fails_is_tried_again(
    store: Store, waits: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a" / "first"
    save(folder, 1)
    copy = copy_of(store, folder).take()
    store.denied.add("PUT")

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            store.denied.clear()

    monkeypatch.setattr(outage, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: 1000.0))
    copy.push("00-a", checkpoints=True)
    assert waits == list(outage.WAITS_S[:2])
    assert waits[0] < waits[1]
    assert SUMS in rounds(store)["round-000001"]


@pytest.mark.parametrize("last", [False, True])
def test_a_silent_store_is_waited_for_once(last: bool, waits: list[float], now: list[float]) -> None:
    """pyarrow has tried again and again by then."""
    asked = list[int]()

    def request() -> None:
        asked.append(1)
        now[0] += outage.SILENCE_S + 90
        raise UserError("the store cannot be read (no answer)")

    store = outage.Outage()
    with pytest.raises(UserError, match="no answer"):
        store.copy(lambda: store.request(request), last)
    assert (len(asked), waits) == (1, [])


def test_what_the_store_did_not_take_is_copied_the_next_time(store: Store, waits: list[float], tmp_path: Path) -> None:
    here, there = tmp_path / "a" / "first", tmp_path / "b" / "first"
    save(here, 1)
    copy = copy_of(store, here).take()
    copy.push()
    copy.push("00-a", checkpoints=True)
    store.denied.update(("PUT", "POST"))
    save(here, 2)
    with pytest.raises(UserError, match=r"storage: s3://fedtext-tests/runs/first/.* cannot be written") as refused:
        copy.push("00-a", checkpoints=True)
    assert not isinstance(refused.value, OwnershipLostError)
    assert waits == list(outage.WAITS_S)
    save(here, 3)
    with pytest.raises(UserError, match="cannot be written"):
        copy.complete()
    assert waits == [*outage.WAITS_S, *outage.WAITS_S]
    store.denied.clear()
    copy.complete()
    assert sorted(rounds(store)) == ["round-000002", "round-000003"]
    copy_of(store, there).pull()
    assert Checkpoints(there / "00-a" / "checkpoint", "print").load().round == 3  # type: ignore[union-attr]
    assert (there / "00-a" / "tracking.json").read_text() == '{"last_round": 3}'


def test_a_store_that_fails_for_long_is_left_alone_for_longer_and_longer(
    store: Store, waits: list[float], now: list[float], tmp_path: Path
) -> None:
    folder = tmp_path / "a" / "first"
    save(folder, 1)
    copy = copy_of(store, folder).take()
    store.denied.add("PUT")
    pauses = [*outage.PAUSES_S, outage.PAUSES_S[-1]]
    assert pauses == sorted(pauses)
    for pause in pauses:
        with pytest.raises(UserError, match="cannot be written"):
            copy.push("00-a", checkpoints=True)
        asked = len(store.refused)
        now[0] += pause - 1
        with pytest.raises(UserError, match="cannot be written"):
            copy.push("00-a", checkpoints=True)
        assert len(store.refused) == asked, "nothing was tried during the pause"
        now[0] += 2
    assert waits == list(outage.WAITS_S), "after the first failure each request is tried once"
    assert pickle.loads(pickle.dumps(copy)).outage.failed == 0, "another process knows nothing of the store"
    store.denied.clear()
    copy.push("00-a", checkpoints=True)
    assert SUMS in rounds(store)["round-000001"]
    store.denied.add("PUT")
    save(folder, 2)
    with pytest.raises(UserError, match="cannot be written"):
        copy.push("00-a", checkpoints=True)
    assert waits == [*outage.WAITS_S, *outage.WAITS_S], "that was a new outage"


def test_a_lost_owner_does_not_try_again(store: Store, waits: list[float], tmp_path: Path) -> None:
    folder = tmp_path / "a" / "first"
    save(folder, 1)
    first = copy_of(store, folder).take()
    copy_of(store, tmp_path / "b" / "first").take()
    with pytest.raises(OwnershipLostError):
        first.complete()
    assert waits == []
    store.remove(f"runs/first/{OWNER}")
    with pytest.raises(UserError, match=r"has no owner\.json: the copy was removed") as removed:
        first.push()
    assert not isinstance(removed.value, OwnershipLostError)


@pytest.mark.parametrize("killed", ["before", "after"])
def test_a_machine_that_is_killed_as_it_becomes_the_owner_keeps_what_it_has(
    killed: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a" / "first"
    save(folder, 1)
    copy_of(store, folder).take().push("00-a", checkpoints=True)
    save(folder, 2)  # and died before it was copied
    write = Remote.write

    def dies(self: Remote, content: bytes) -> None:
        if killed == "after":
            write(self, content)
        raise KeyboardInterrupt

    for _ in range(2):
        with monkeypatch.context() as patched:
            patched.setattr(Remote, "write", dies)
            with pytest.raises(KeyboardInterrupt):
                copy_of(store, folder).take()
        copy_of(store, folder).pull()
        assert (folder / "00-a" / "tracking.json").read_text() == '{"last_round": 2}'


def test_what_begins_with_a_dot_is_nobodys_copy(store: Store, tmp_path: Path) -> None:
    """Drafts of other writers stay there, and a lock makes no other run of a folder."""
    here, there = tmp_path / "a" / "first", tmp_path / "b" / "first"
    save(here, 1)
    copy = copy_of(store, here).take()
    store.put("runs/first/00-a/.tracking.json.0a1b.draft", b"half")
    copy.push()
    assert "runs/first/00-a/.tracking.json.0a1b.draft" in store.files()
    there.mkdir(parents=True)
    (there / ".lock").touch()
    copy_of(store, there).pull()
    assert (there / "plan.json").is_file()
    assert sorted(file.name for file in there.rglob(".*")) == [".copy.json", ".lock"]


def test_a_file_that_a_trial_cannot_do_without_is_copied_at_once_or_ends_it(
    store: Store, waits: list[float], tmp_path: Path
) -> None:
    folder, name = tmp_path / "a" / "first", "00-a/checkpoint/noise.key"
    save(folder, 1)
    (folder / name).write_text("secret")
    copy = copy_of(store, folder).take()
    copy.send(name)
    assert store.get(f"runs/first/{name}") == b"secret"
    assert rounds(store) == {}, "and nothing else"
    store.denied.add("PUT")
    (folder / name).write_text("another")
    for _ in range(2):  # it is tried again although the store has just failed
        with pytest.raises(UserError, match=r"; the trial needs 00-a/checkpoint/noise\.key there before it goes on"):
            copy.send(name)
    assert waits == list(outage.WAITS_S) * 2
    store.denied.clear()
    copy_of(store, tmp_path / "b" / "first").take()
    with pytest.raises(OwnershipLostError):
        copy.send(name)
    assert store.get(f"runs/first/{name}") == b"secret"
