"""Records of rounds: their form in files, by which earlier files can be read."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtext.records import RoundRecord
from fedtext.state.checkpoint import Checkpoints, history

LITERAL = (
    '{"round": 2, "time": 1700000000.5, "metrics": {"loss": 0.25, "Ag": 0.5}, '
    '"clients": {"books": {"Ag": 0.25}, "dvd": {"Ag": 0.75}}, "files": {"ledger.json": "[]\\n"}}'
)
WITHOUT_FILES = '{"round": 1, "time": 1700000000.0, "metrics": {}, "clients": {}}'
RECORD = RoundRecord(
    round=2,
    time=1_700_000_000.5,
    metrics={"loss": 0.25, "Ag": 0.5},
    clients={"books": {"Ag": 0.25}, "dvd": {"Ag": 0.75}},
    files={"ledger.json": "[]\n"},
)


def test_the_form_in_files_is_this_and_no_other() -> None:
    assert json.dumps(RECORD.to_json()) == LITERAL
    assert json.dumps(RoundRecord(1, 1_700_000_000.0, {}).to_json()) == WITHOUT_FILES


def test_what_was_written_is_read() -> None:
    assert RoundRecord.from_json(json.loads(LITERAL)) == RECORD
    assert RoundRecord.from_json(json.loads(WITHOUT_FILES)) == RoundRecord(1, 1_700_000_000.0, {}, {}, {})


@pytest.mark.parametrize(
    "changes", [{"round": "2"}, {"metrics": []}, {"metrics": {"loss": "x"}}, {"clients": {"a": 1}}]
)
def test_what_is_no_record_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="record"):
        RoundRecord.from_json(json.loads(LITERAL) | changes)


def test_numbers_come_back_bit_for_bit() -> None:
    values = {"a": 0.1 + 0.2, "b": math.nextafter(1.0, 2.0), "c": 5e-324, "d": math.inf, "e": 3}
    read = RoundRecord.from_json(json.loads(json.dumps(RoundRecord(1, 0.1, values).to_json())))
    assert (read.time, read.metrics) == (0.1, values)
    read = RoundRecord.from_json(json.loads(json.dumps(RoundRecord(1, 0.1, {"x": math.nan}).to_json())))
    assert math.isnan(read.metrics["x"])


def test_records_have_nothing_in_common() -> None:
    one, other = RoundRecord(1, 0.0, {}), RoundRecord(2, 0.0, {})
    one.clients["books"] = {"Ag": 0.5}
    one.files["a.md"] = "text"
    assert (other.clients, other.files) == ({}, {})


def test_a_checkpoint_has_records_in_this_form(tmp_path: Path) -> None:
    records = [RoundRecord.from_json(json.loads(WITHOUT_FILES)), RECORD]
    checkpoints = Checkpoints(tmp_path, "one")
    checkpoints.save(np.zeros(1, np.float32), {0: b""}, records)
    kept = (tmp_path / "round-000002" / "records-000001-000002.jsonl").read_text()
    assert kept == f"{WITHOUT_FILES}\n{LITERAL}\n"
    snapshot = checkpoints.load()
    assert snapshot is not None
    assert snapshot.history == history(tmp_path) == records
