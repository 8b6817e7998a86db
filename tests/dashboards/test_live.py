"""The live table of running trials."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from actors.waiting import Use
from dashboards.live import LiveProgress
from dashboards.progress import PlainProgress, progress
from tests.loops import nonempty
from tests.planned import kteps, row, rows


def test_live_progress_shows_every_trial_and_counts_those_without_room() -> None:
    cases = [kteps(number, 0.01, 10) for number in range(40)]
    display = LiveProgress(cases, Console(file=io.StringIO(), force_terminal=True, width=120, height=20, record=True))
    for number in range(1, 4):
        display.start(cases[30]) if number == 1 else None
        display.row("30-kteps", row(number))
    display.start(cases[39])
    display.finish("39-kteps", "failed", "a cause")
    display.restore(cases[0], rows(10, 10), "finished")
    display.console.print(display.render())
    text = display.console.export_text()
    assert re.search(r"30-kteps lambda1=0.01 +running +3/10 +0.167 +73.0 +30 MB +4.1 +29 s", text)
    assert re.search(r"39-kteps lambda1=0.01 +failed +0/10", text)
    assert "39-kteps lambda1=0.01 failed: a cause" in text
    assert re.search(r"00-kteps lambda1=0.01 +finished +10/10", text)
    assert "... and 27 more trials" in text
    assert "37 trials wait until a running trial ends" in text
    assert "Ag: accuracy of the shared model on each client's own texts, mean over clients" in text
    assert "2 of 40 trials done, 1 running, 1 failed" in text
    assert isinstance(progress(cases, io.StringIO()), PlainProgress)


USE = Use(nodes=2, cpus=3, all_cpus=4, gpus=1, all_gpus=2, store=12e6, all_store=2.1e9)


def shown(width: int, height: int = 24, label: str = "lambda1=0.01") -> tuple[LiveProgress, list[str]]:
    """A sweep with trials in every state on a screen, and its lines."""
    cases = [replace(kteps(number, 0.01, 10), label=label) for number in range(6)]
    display = LiveProgress(cases, Console(file=io.StringIO(), force_terminal=True, width=width, height=height))
    display.start(cases[0])
    display.row("00-kteps", row(3, AUC=0.91))
    display.start(cases[1])
    display.finish("01-kteps", "failed", "client dvd failed in round 2: its loss is not finite")
    display.restore(cases[2], rows(10, 10), "finished")
    display.look(USE, "waiting for 2 CPUs (2 client actors of 1 CPU): 1 of 4 CPUs free on 2 nodes")
    display.console.print(display.render())
    return display, re.sub(r"\x1b\[[0-9;]*m", "", display.console.file.getvalue()).splitlines()  # type: ignore[attr-defined]


def test_live_progress_says_what_waits_and_fails_and_how_the_cluster_is_used() -> None:
    _, lines = shown(120)
    assert lines[0].split() == ["trial", "state", "round", "loss", "Ag", "AUC", "bytes", "s/round", "ETA"]
    assert lines[-4:-1] == [
        "01-kteps lambda1=0.01 failed: client dvd failed in round 2: its loss is not finite",
        "3 trials wait: for 2 CPUs (2 client actors of 1 CPU): 1 of 4 CPUs free on 2 nodes",
        "cluster: 2 nodes, 3 of 4 CPUs, 1 of 2 GPUs, object store 12.0 MB of 2.1 GB",
    ]
    assert lines[-1].startswith("2 of 6 trials done, 1 running, 1 failed, ")


@pytest.mark.parametrize(("width", "columns"), [(80, ["loss", "Ag", "AUC", "ETA"]), (60, ["Ag", "ETA"]), (40, [])])
@pytest.mark.parametrize("label", ["lambda1=0.01", "lambda1=0.01 optimizer=adam method=fedprox"])
def test_a_narrow_screen_has_fewer_columns_and_no_line_is_too_long(width: int, columns: list[str], label: str) -> None:
    _, lines = shown(width, label=label)
    assert lines[0].split()[:3] == ["trial", "state", "round"]
    assert set(columns) <= set(lines[0].split())
    assert "bytes" not in lines[0]
    place = lines[0].index("state")
    assert not any(nonempty("…" in line[place:] for line in lines[:7])), "names of trials are cut, and nothing else"
    assert [line[place:].split()[1] for line in lines[1:7]] == ["3/10", "0/10", "10/10", "0/10", "0/10", "0/10"]
    assert all(nonempty(len(line) <= width for line in lines))
    for state in ("running", "failed", "finished", "waiting"):
        assert any(line.split()[-1] == state or f" {state} " in line for line in lines), state


def test_a_low_screen_keeps_failures_and_the_summary() -> None:
    _, lines = shown(100, height=11)
    assert len(lines) <= 10
    assert any("01-kteps lambda1=0.01 failed: " in line for line in lines)
    assert lines[-1].startswith("2 of 6 trials done")
    assert not any(nonempty(line.startswith("Ag: ") for line in lines)), "the legend goes first"


def test_colours_are_left_out_where_a_person_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    coloured = re.compile(r"\x1b\[[0-9;]*3[0-9]m")
    display, _ = shown(80)
    assert coloured.search(display.console.file.getvalue())  # type: ignore[attr-defined]
    monkeypatch.setenv("NO_COLOR", "1")
    display, _ = shown(80)
    assert not coloured.search(display.console.file.getvalue())  # type: ignore[attr-defined]


def test_an_interrupted_display_leaves_the_trials_and_a_clean_terminal() -> None:
    display, _ = shown(80)
    out = display.console.file
    assert isinstance(out, io.StringIO)
    out.truncate(0)
    with pytest.raises(KeyboardInterrupt), display:
        raise KeyboardInterrupt
    text = out.getvalue()
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1, "the cursor is hidden, and shown again"
    last = text[text.rindex("trial ") :]
    assert "01-kteps" in last
    assert "cluster:" not in last
    assert text.endswith(("\n", "\x1b[?25h"))
