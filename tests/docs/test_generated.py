"""docs/generate: what is committed is what the code gives, and messages of errors are found."""

import subprocess
import sys
from pathlib import Path

import pytest

from docs.generate import messages, parts
from docs.generate.markdown import written
from fedtext.config.compatibility import privacy
from tests import ROOT
from tests.loops import nonempty


@pytest.mark.slow
def test_what_is_committed_is_what_the_code_gives() -> None:
    """In a process of its own: plug-ins of other tests are parts too."""
    done = subprocess.run([sys.executable, "-m", "docs", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_messages_are_collected_with_what_they_fill_in_left_out(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        "def f(x):\n"
        "    raise UserError(f'key {x!r} is unknown: ' + 'leave it out')\n"
        "    raise UserError(str(x))\n"
        "    raise KeyError('this is a defect and no message')\n"
    )
    assert messages.messages(file) == ["key … is unknown: leave it out"]


def test_rules_are_among_the_messages() -> None:
    found = messages.messages(Path(privacy.__file__))
    assert any("server.weights: uniform" in text for text in nonempty(found))


def test_a_part_of_a_page_is_replaced_and_nothing_else() -> None:
    page = "a\n<!-- b: written by python -m docs -->\n\nold\n\n<!-- end of b -->\nc\n"
    assert written(page, "b", "new") == page.replace("old", "new")
    with pytest.raises(AssertionError, match="around d"):
        written(page, "d", "new")


def test_the_readme_shows_the_first_sweep_of_the_tutorial() -> None:
    head, *rows = parts.first_sweep()
    assert head[:3] == ["#", "trial", "method"]
    assert not set(head) & set(parts.LEFT_OUT)
    assert len(rows) == 6
    shown = parts.aligned([["#", "Ag"], ["1", "8.0"], ["10", "83.2"]])
    assert shown == "    #     Ag\n    1    8.0\n    10  83.2"
    assert parts.fedavg([["method", "Ag", "Ap"], ["kteps", "1.0", "2.0"], ["fedavg", "83.2", "85.1"]]) == "0.832, 0.851"
