"""What checkpoints share with earlier ones: they write what has changed, and no damage reaches both that are kept."""

import errno
import hashlib
import json
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtext.errors import UserError
from fedtext.records import RoundRecord
from fedtext.state.checkpoint import Checkpoints, glance, history, recorded
from fedtext.state.digests import SUMS, listed, sums
from fedtext.state.seal import StateKey
from fedtext.state.segments import TOGETHER, blocks, pack, records_file, unpack
from fedtext.state.written import MOST_FILES
from tests.disks import fill, mounted
from tests.loops import nonempty

SIZE = 20_000  # bytes of a client's private state


class Run:
    """A run of which some clients train in each round, and the states that it must have."""

    def __init__(self, folder: Path, clients: int = 30, cohort: int = 2, key: StateKey | None = None) -> None:
        self.folder, self.checkpoints, self.cohort = folder, Checkpoints(folder, "one", key), cohort
        self.states = dict.fromkeys(range(clients), b"")
        self.records: list[RoundRecord] = []
        self.random, self.asked = random.Random(7), list[int | None]()

    def round(self, size: int = SIZE) -> None:
        """Train, and save what the checkpoints ask for."""
        self.records.append(RoundRecord(len(self.records) + 1, 0.0, {"Ag": 0.5}, {"books": {"Ag": 0.25}}))
        trained = self.random.sample(sorted(self.states), self.cohort)
        self.states |= {client: self.random.randbytes(size) for client in trained}
        self.checkpoints.changed(trained)
        wanted = self.checkpoints.wanted()
        self.asked.append(None if wanted is None else len(wanted))
        there = [client for client, state in self.states.items() if state]  # as a fleet has them
        chosen = {client: self.states[client] for client in (there if wanted is None else wanted)}
        settled = self.checkpoints.settled
        given = [replace(record, clients={}) for record in self.records[:settled]] + self.records[settled:]
        self.checkpoints.save(np.full(3, len(self.records), np.float32), chosen, given)

    def check(self, rounds: int | None = None) -> None:
        """Assert that this state, or that of an earlier round, comes back."""
        snapshot = Checkpoints(self.folder, "one", self.checkpoints.key).load()
        assert snapshot is not None
        rounds = len(self.records) if rounds is None else rounds
        assert (snapshot.round, snapshot.history, snapshot.flat[0]) == (rounds, self.records[:rounds], rounds)
        if rounds == len(self.records):
            found = {client: state for client, state in snapshot.clients.items() if state}
            assert found == {client: state for client, state in self.states.items() if state}


def exchange(file: Path, content: bytes) -> None:
    """Write another content into a file of a checkpoint, and its digest into the list."""
    file.write_bytes(content)
    digests = listed((file.parent / SUMS).read_bytes()) | {file.name: hashlib.sha256(content).hexdigest()}
    (file.parent / SUMS).write_bytes(sums(digests))


def files(state: Path) -> dict[str, os.stat_result]:
    return {path.name: path.stat() for path in state.iterdir()}


@pytest.mark.parametrize("rounds", [*range(1, 40), 63, 64, 65, 511, 512, 513, 5_000])
def test_blocks_cover_all_rounds_and_are_few(rounds: int) -> None:
    found = blocks(rounds)
    assert [one for first, last in found for one in range(first, last + 1)] == list(range(1, rounds + 1))
    sizes = [last - first + 1 for first, last in found]
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes.count(size) for size in sizes) < TOGETHER
    new = set(found) - set(blocks(rounds - 1)) if rounds > 1 else set(found)
    assert len(new) == 1, "a round later one block is new"


def test_states_come_back_as_they_were_packed() -> None:
    states = {7: b"seven\nlines", 0: b"", 3: bytes(range(256))}
    assert unpack(pack(states)) == states
    assert unpack(pack({})) == {}


@pytest.mark.parametrize("cohort", [2, 10])
def test_what_has_changed_is_written_and_what_comes_back_is_the_whole_state(cohort: int, tmp_path: Path) -> None:
    run, written = Run(tmp_path, cohort=cohort), list[int]()
    for round_ in range(1, 41):
        run.round()
        run.check()
        inodes = [stat.st_ino for path in tmp_path.iterdir() for stat in files(path).values()]
        assert len(set(inodes)) == len(inodes), "the two have no file in common"
        new = files(tmp_path / f"round-{round_:06d}")
        assert sum(stat.st_size for name, stat in new.items() if name.startswith("clients")) < 3 * 30 * SIZE
        written.append(new[f"clients-{round_:06d}.states"].st_size)
    assert run.asked[:2] == [None, None], "of each of the two there is a whole one first"
    partial = [asked for asked in run.asked[2:] if asked is not None]
    assert max(partial) <= 2 * cohort, "the cohorts of two rounds"
    if cohort == 10:
        assert 2 <= 38 - len(partial) <= 20, "now and then all are written anew"
    assert sum(written[2:]) / SIZE < 38 * (2 * cohort + 3) < 38 * 30, "not all states in each round"


def test_files_with_states_stay_few_however_small_the_cohort_is(tmp_path: Path) -> None:
    run, most = Run(tmp_path, clients=200, cohort=1), 0
    for _ in nonempty(range(2 * MOST_FILES + 5)):
        run.round(size=1)
        most = max(most, len(list(max(tmp_path.iterdir()).glob("clients-*"))))
    assert most == 32
    run.check()
    assert run.asked.count(None) >= 4


def test_a_damaged_file_that_is_shared_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for _ in range(12):
        run.round()
    shared = [path for path in nonempty((tmp_path / "round-000012").iterdir()) if "000012" not in path.name]
    names = [path.name for path in shared if path.name.startswith(("clients-", "records-"))]
    assert records_file(1, 8) in names
    assert any(name.startswith("clients-") for name in names)
    for name in names:
        content = (tmp_path / "round-000012" / name).read_bytes()
        (tmp_path / "round-000012" / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        run.check(11)
        (tmp_path / "round-000012" / name).write_bytes(content)
    run.check()


def test_records_of_all_rounds_are_there_whatever_was_left_out_since(tmp_path: Path) -> None:
    """Metrics of clients of rounds that two checkpoints have are not asked for again, also after a start."""
    run = Run(tmp_path)
    for _ in range(70):
        run.round(size=1)
        assert history(tmp_path) == run.records
    assert run.checkpoints.settled == 69
    run.checkpoints = Checkpoints(tmp_path, "one")
    assert run.checkpoints.load()
    for settled in nonempty((0, 71, 72)):
        run.round(size=1)
        assert run.checkpoints.settled == settled
        run.check()


def test_records_are_taken_from_the_checkpoint_that_is_sound(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for _ in range(6):
        run.round()
    (tmp_path / "round-000006" / records_file(1, 6)).write_text("damaged")
    run.round()
    run.check()
    run.round()
    for state in nonempty(tmp_path.iterdir()):
        next(state.glob("records-*")).unlink()
    with pytest.raises(UserError, match=rf"the records of round 1 in {tmp_path} were removed or are damaged"):
        run.round()


def test_an_earlier_checkpoint_that_is_gone_is_not_missed(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for _ in range(6):
        run.round()
    for path in (tmp_path / "round-000005").iterdir():
        path.unlink()
    run.round()
    assert run.asked[-1] is None
    run.check()
    run.round()
    run.check()


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK])
def test_without_hard_links_files_are_copied(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*names: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", link)
    run = Run(tmp_path)
    for _ in range(10):
        run.round()
        run.check()
    assert {stat.st_nlink for stat in files(tmp_path / "round-000010").values()} == {1}
    assert {stat.st_mode & 0o777 for stat in files(tmp_path / "round-000010").values()} == {0o600}


def test_a_state_that_is_missing_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.round()
    for given in ({}, {0: b""}):
        with pytest.raises(ValueError, match=r"the private state of client \d is missing"):
            run.checkpoints.save(np.zeros(3, np.float32), given, [*run.records, RoundRecord(2, 0.0, {})])
    run.round()
    run.checkpoints.changed([4])
    with pytest.raises(ValueError, match=r"the private state of client \d is missing"):
        run.checkpoints.save(np.zeros(3, np.float32), {5: b""}, [*run.records, RoundRecord(3, 0.0, {})])
    run.check()


def test_a_state_that_becomes_empty_is_none_any_more(tmp_path: Path) -> None:
    """Whether all states are asked for (of the second checkpoint, and without the one before the last) or some are."""
    run, asked = Run(tmp_path, clients=3, cohort=3), []
    for size in nonempty((SIZE, 0, SIZE, 0, SIZE, 0)):
        if len(run.records) == 5:
            (tmp_path / "round-000004" / SUMS).unlink()
            (tmp_path / "round-000004" / "state.json").unlink()
        run.round(size)
        run.check()
        asked.append(run.asked[-1])
    assert asked == [None, None, 3, 3, 3, None]


@pytest.mark.parametrize(
    ("written", "words"), [(None, r"earlier.*format 1"), (1, "earlier"), (3, "earlier"), (4, r"later.*format 4")]
)
def test_another_format_is_one_sentence(written: int | None, words: str, tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.round()
    state = tmp_path / "round-000001"
    about = json.loads((state / "state.json").read_text()) | {"format": written}
    exchange(state / "state.json", json.dumps({k: v for k, v in about.items() if v is not None}).encode())
    readers = [run.check, lambda: recorded(tmp_path), lambda: history(tmp_path)]
    for read in nonempty(readers[:2] if written == 3 else readers):
        with pytest.raises(
            UserError, match=f"an? {words}.*, and this one reads 2.*remove {tmp_path} to start it again"
        ):
            read()


def test_finished_runs_are_reported_on_whose_parameters_that_never_change_had_a_file(tmp_path: Path) -> None:
    """In format 3 records were as they are."""
    run = Run(tmp_path)
    run.round()
    state = tmp_path / "round-000001" / "state.json"
    exchange(state, json.dumps(json.loads(state.read_text()) | {"format": 3}).encode())
    assert history(tmp_path) == run.records


def test_a_list_shows_the_last_checkpoint_that_has_all_records(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for _ in range(9):
        run.round()
    assert glance(tmp_path) == run.records
    (tmp_path / "round-000009" / records_file(1, 8)).unlink()
    assert glance(tmp_path) == run.records[:8]


def test_a_disk_that_is_full_at_any_moment_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "2m") as disk:
        run = Run(disk / "run", clients=6)
        for _ in range(3):
            run.round()
        before, said = {client: state for client, state in run.states.items() if state}, list[str]()
        for pages in nonempty(range(60)):
            fill(disk, 4096 * pages)
            try:
                run.round()
            except UserError as error:
                said.append(str(error))
                run.records.pop()
            (disk / "filled").unlink()
            names = sorted(path.name for path in (disk / "run").iterdir())
            if run.records[-1].round == 4:
                break
            assert names == ["round-000002", "round-000003"], "no draft is left"
            snapshot = Checkpoints(run.folder, "one").load()
            assert snapshot is not None
            assert (snapshot.round, snapshot.clients) == (3, before)
        assert names == ["round-000003", "round-000004"]
        run.check()
    assert len(said) > 10, "from the first file to the last one"
    (sentence,) = set(said)
    assert f"the checkpoint of round 4: {disk}/run cannot be written (No space left on device)" in sentence
    assert sentence.endswith("the last checkpoint is that of round 3")
