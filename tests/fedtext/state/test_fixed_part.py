"""Parameters that never change: checkpoints share the file that has them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtext.aggregations.lora import LoRA
from fedtext.aggregations.mean import Mean
from fedtext.layout import TABLE, Layout
from fedtext.models.adapters import RESIDUAL
from fedtext.records import RoundRecord
from fedtext.server.unsent import fixed_size
from fedtext.state.checkpoint import Checkpoints
from fedtext.state.fixed_part import NAME, FixedPart
from fedtext.state.seal import StateKey
from tests import tiny
from tests.loops import nonempty

ROWS = 4


def save(checkpoints: Checkpoints, round_: int, table: float = 7.0) -> np.ndarray:
    flat = np.concatenate([np.full(ROWS, table, np.float32), np.full(2, round_, np.float32)])
    checkpoints.save(flat, {}, [RoundRecord(each, 0.0, {}) for each in range(1, round_ + 1)])
    return flat


def run(folder: Path, key: StateKey | None = None) -> Checkpoints:
    checkpoints = Checkpoints(folder, "one", key)
    checkpoints.fixed = FixedPart(ROWS)
    return checkpoints


def files(folder: Path) -> dict[str, list[int]]:
    """The inode of the fixed part in each checkpoint."""
    return {
        state.name: [path.stat().st_ino for path in state.iterdir() if NAME.fullmatch(path.name)]
        for state in sorted(folder.glob("round-*"))
    }


@pytest.mark.parametrize("key", [None, StateKey(b"k" * 32)], ids=["plain", "encrypted"])
def test_it_is_written_twice_and_shared_with_the_checkpoint_before_the_last(
    tmp_path: Path, key: StateKey | None
) -> None:
    checkpoints, seen = run(tmp_path, key), list[int]()
    for round_ in range(1, 6):
        expected = save(checkpoints, round_)
        there = files(tmp_path)
        assert all(nonempty(len(each) == 1 for each in there.values()))
        assert len({each[0] for each in there.values()}) == len(there), "no file is part of both that are kept"
        seen += there[f"round-{round_:06d}"]
        snapshot = run(tmp_path, key).load()
        assert snapshot is not None
        assert snapshot.flat.tobytes() == expected.tobytes()
        size = (tmp_path / f"round-{round_:06d}" / "server.f32").stat().st_size
        assert key or size == 2 * 4
    assert len(set(seen)) == 2


def test_a_part_that_changes_after_all_is_written_again(tmp_path: Path) -> None:
    checkpoints = run(tmp_path)
    for round_, table in ((1, 7.0), (2, 7.0), (3, 8.0), (4, -0.0), (5, 0.0)):
        expected = save(checkpoints, round_, table)
        snapshot = run(tmp_path).load()
        assert snapshot is not None
        assert snapshot.flat.tobytes() == expected.tobytes()


def test_a_damaged_one_leaves_the_checkpoint_before_it(tmp_path: Path) -> None:
    checkpoints = run(tmp_path)
    for round_ in range(1, 6):
        save(checkpoints, round_)
    (part,) = [path for path in (tmp_path / "round-000005").iterdir() if NAME.fullmatch(path.name)]
    part.write_bytes(b"damaged")
    snapshot = run(tmp_path).load()
    assert snapshot is not None
    assert (snapshot.round, snapshot.flat.tolist()) == (4, [7, 7, 7, 7, 4, 4])


def test_an_earlier_version_says_that_it_cannot_read_it_and_this_one_reads_both(tmp_path: Path) -> None:
    save(run(tmp_path / "new"), 1)
    save(Checkpoints(tmp_path / "old", "one"), 1)
    formats = {
        name: json.loads((tmp_path / name / "round-000001" / "state.json").read_text())["format"]
        for name in ("new", "old")
    }
    assert formats == {"new": 3, "old": 2}
    for name in formats:
        snapshot = run(tmp_path / name).load()
        assert snapshot is not None
        assert snapshot.flat.tolist() == [7, 7, 7, 7, 1, 1]


def test_what_neither_clients_nor_the_aggregation_change_is_fixed() -> None:
    residual = f"a.{RESIDUAL}"
    layout = Layout({TABLE: (5, 2), residual: (3,), "b": (2,)})

    def fixes(name: str) -> bool:
        return name in (TABLE, residual)

    assert fixed_size(layout, fixes, Mean()) == layout.starts["b"]
    assert fixed_size(layout, fixes, LoRA(factors="exact")) == layout.starts[residual]
    assert fixed_size(layout, lambda name: False, Mean()) == 0
    assert fixed_size(layout, lambda name: True, Mean()) == layout.size


SMALL: dict[str, Any] = {"name": "causal", "embedding": {"dim": 8}, "layers": 1, "heads": 2, "positions": 100}


@pytest.mark.parametrize("adapter", [None, {"lora": {"rank": 2}}], ids=["whole", "adapter"])
def test_a_run_with_an_adapter_shares_its_table_and_goes_on_to_the_same_bits(tmp_path: Path, adapter: Any) -> None:
    training = tiny.TRAINING | {"rounds": 4}
    keys = {"model": SMALL | {"adapter": adapter}, "training": training, "evaluation": {"personalize": None}}
    made, corpus = tiny.language_model("fedavg", **keys), tiny.language_corpus()
    whole = tiny.federation(made, corpus)
    for _ in whole.run():
        pass
    for rounds in (2, 4):
        part = tiny.federation(made, corpus, folder=tmp_path)
        for record in part.run():
            if record.round == rounds:
                break
    assert part.flat.tobytes() == whole.flat.tobytes()
    assert [len(each) for each in files(tmp_path).values()] == [int(adapter is not None)] * 2
