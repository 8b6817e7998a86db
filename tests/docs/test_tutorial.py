"""The tutorial: its commands run one after the other in a reader's folder, and print what its pages show."""

from pathlib import Path

import pytest

from docs.generate import tutorial
from tests import ROOT
from tests.loops import nonempty


def test_there_are_five_steps_with_commands() -> None:
    assert [page.name[0] for page in tutorial.STEPS] == list("12345")
    assert set(tutorial.STEPS) < set(tutorial.PAGES)
    for page in nonempty(tutorial.PAGES):
        shown = [block for block in tutorial.blocks(page) if block.command]
        assert shown, page
        assert all(block.text.strip() for block in nonempty(shown)), page


def test_the_plug_in_of_the_tutorial_is_the_file_beside_it() -> None:
    files = {block.title: block.text for page in tutorial.STEPS for block in tutorial.blocks(page) if block.title}
    assert files["near_head.py"] == (ROOT / "docs/tutorial/near_head.py").read_text()


def test_numbers_may_differ_a_little_and_words_not_at_all() -> None:
    assert tutorial.alike("round 1/8  Ag 0.51  round_seconds 1.2", "round 1/8  Ag 0.53  round_seconds 30.7")
    assert not tutorial.alike("round 1/8  Ag 0.51", "round 1/8  Ag 0.95")
    assert tutorial.alike("loss 0.018  T", "loss 0.033  T"), "close to zero, half of it is a last digit"
    assert not tutorial.alike("round 1/8  Ag 0.51", "round 1/8  Ap 0.51")
    assert tutorial.alike("| 1 | **66.1 ± 3.8** | 64.1 ± 4.8 |", "| 2 | 65.9 ± 3.5 | **64.8 ± 2.2** |"), "marks move"
    assert tutorial.missing("a 1\n...\nc 3\n", ["a 1", "b", "c 3"]) == []
    assert tutorial.missing("c 3\nb 1\n", ["a 1", "c 3"]) == ["b 1"]
    assert tutorial.missing("c 3\nc 3\n", ["a 1", "c 3"]) == ["c 3"]


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_its_commands_print_what_its_pages_show(tmp_path: Path) -> None:
    tutorial.prepare(tmp_path)
    every = [(page, block) for page in tutorial.STEPS for block in tutorial.blocks(page)]
    for page, block in nonempty(every):
        printed = tutorial.run(block, tmp_path)
        assert tutorial.missing(block.text if block.command else "", printed) == [], (page.name, block.command, printed)
