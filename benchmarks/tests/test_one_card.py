"""The benchmark of a shared GPU, tried out on the CPU: what its rows are of, never how fast they are."""

import json
from pathlib import Path

import pytest

from benchmarks import one_card
from tests.loops import nonempty

SMALL = ["--clients", "4", "--texts", "8", "--rounds", "3", "--dim", "4", "--hidden", "4", "--vocabulary", "60"]


@pytest.mark.slow
@pytest.mark.ray
def test_rows_of_one_process_and_of_actors(tmp_path: Path) -> None:
    words = [*SMALL, "--device", "cpu", "--actors", "0", "2", "--engines", "cells", "--stacks", "1", "2"]
    rows = one_card.main([*words, "--json", str(tmp_path / "rows")])
    assert [(row["actors"], row["stack"]) for row in rows] == [(2, 1), (2, 2), ("no Ray", 1), ("no Ray", 2)]
    for row in nonempty(rows):
        assert row["texts / s"] == pytest.approx(4 * 8 / row["wall s / round"]["median"])
        assert row["wall s / round"]["runs"] == 1
    assert json.loads((tmp_path / "rows").read_text())["figures"] == rows


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--rounds", "2"], "--rounds: at least 3"), (["--device", "cuda:99"], "--device: cuda:99 is not available")],
)
def test_what_cannot_be_measured_is_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        one_card.main([*SMALL, *words])
    message = capsys.readouterr().err
    assert end.value.code == 2
    assert said in message
    assert message.count("\n") == 1
