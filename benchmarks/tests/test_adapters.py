"""The loops of transformers with adapters."""

from pathlib import Path

import pytest

from benchmarks import adapters, w6, w7
from fedtext.layout import TABLE
from fedtext.models.parts import Parts, whole
from tests.loops import nonempty


def test_every_loop_is_measured_beside_the_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shapes = {"W6": w6.Shape(2, 16, 2, 4, 5, 10), "W7": w7.Shape(2, 16, 4, 2, 24, 50, 4, 5, 10)}
    monkeypatch.setattr(adapters, "SHAPES", shapes)
    monkeypatch.setattr(w6, "TEXTS", 40)
    monkeypatch.setattr(w7, "SENTENCES", 40)
    rows = adapters.main(["--turns", "2", "--steps", "1", "--json", str(tmp_path / "found.json")])
    loops = [row["loop"] for row in rows]
    assert {"reference, float32", "reference, bfloat16"} <= set(loops)
    for row in nonempty(rows):
        assert row["CPU ms"]["runs"] == 2
        assert row["CPU ms"]["median"] > 0
    assert rows[0][f"times {loops[0]}"]["median"] == 1
    page = capsys.readouterr().out
    assert f"| W6 | {loops[0]} |" in page
    assert f"| W7 | {loops[0]} |" in page
    assert (tmp_path / "found.json").exists()


def test_the_plain_llama_has_the_weights_that_ours_has() -> None:
    pytest.importorskip("peft")
    shape = w7.Shape(2, 16, 4, 2, 24, 50, 4, 5, 10)
    plain = {name: p.shape for name, p in w7.plain_network(shape).named_parameters() if p.requires_grad}
    ours = {name: p.shape for name, p in whole(Parts(shape.model("float32"), 50)).named_parameters() if name != TABLE}
    assert sorted(plain.values()) == sorted(ours.values())
    assert len(plain) == 2 * 2 * 2, "two factors of queries and of values in two layers"
