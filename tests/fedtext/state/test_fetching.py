"""A run that is fetched from its copy, while another machine works on it or has begun a trial again."""

from pathlib import Path

import pytest

from fedtext.runtime.remote import Remote
from fedtext.state import noise_key
from fedtext.state.checkpoint import Checkpoints
from tests.fedtext.state.copied import copy_of, save
from tests.loops import nonempty
from tests.stores import Store


def test_rounds_that_were_drawn_with_another_key_are_not_mixed(store: Store, tmp_path: Path) -> None:
    """The store failed before anything of this machine's was copied, and another one has begun the trial again."""
    here, there = tmp_path / "a" / "first", tmp_path / "b" / "first"
    here.mkdir(parents=True)
    copy_of(store, here).take().push()
    for folder, word, rounds_ in nonempty(((here, "ours", (9, 10)), (there, "theirs", (4, 5)))):
        if folder == there:
            copy_of(store, there).pull()
        for round_ in rounds_:
            save(folder, round_)
        (folder / "00-a" / "checkpoint" / noise_key.FILE).write_text(word)
    copy_of(store, there).take().push("00-a", checkpoints=True)
    copy_of(store, here).pull()
    loaded = Checkpoints(here / "00-a" / "checkpoint", "print").load()
    assert loaded is not None
    assert loaded.round == 5
    assert (here / "00-a" / "checkpoint" / noise_key.FILE).read_text() == "theirs"


def test_a_run_is_read_while_its_owner_works_on_it(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner removes the older checkpoint while it is being read: there is a newer one then."""
    here, there, get, rounds_left = tmp_path / "a" / "first", tmp_path / "b" / "first", Remote.fetch, [3, 4]
    save(here, 1)
    save(here, 2)
    copy = copy_of(store, here).take()
    copy.push("00-a", checkpoints=True)

    def fetch(self: Remote, target: Path, mode: int = 0o666) -> None:
        get(self, target, mode)
        if self.parent.name.startswith("round-") and rounds_left:
            save(here, rounds_left.pop(0))
            copy.push("00-a", checkpoints=True)

    monkeypatch.setattr(Remote, "fetch", fetch)
    copy_of(store, there).pull()
    loaded = Checkpoints(there / "00-a" / "checkpoint", "print").load()
    assert loaded is not None
    assert loaded.round == 4
    assert not list(there.rglob(".draft*"))
