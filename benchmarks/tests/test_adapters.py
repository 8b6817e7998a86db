"""The loops of transformers with adapters."""

from pathlib import Path

import pytest

from benchmarks import adapters, w6
from tests.loops import nonempty


def test_every_loop_is_measured_beside_the_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(adapters, "SHAPES", {"W6": w6.Shape(2, 16, 2, 4, 5, 10)})
    monkeypatch.setattr(w6, "TEXTS", 40)
    rows = adapters.main(["--turns", "2", "--steps", "1", "--json", str(tmp_path / "found.json")])
    loops = [row["loop"] for row in rows]
    assert {"reference, float32", "reference, bfloat16"} <= set(loops)
    for row in nonempty(rows):
        assert row["CPU ms"]["runs"] == 2
        assert row["CPU ms"]["median"] > 0
    assert rows[0][f"times {loops[0]}"]["median"] == 1
    assert f"| W6 | {loops[0]} |" in capsys.readouterr().out
    assert (tmp_path / "found.json").exists()
