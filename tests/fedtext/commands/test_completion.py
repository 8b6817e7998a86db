"""Completion in real shells: bash and zsh get a line and a TAB on a terminal, fish is asked for its candidates."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedtext.config import overridable
from tests import ROOT

BASH = """
eval "$(fedtext --completion bash)"
candidates() {
    COMP_LINE="$1" COMP_POINT=${#1} COMP_TYPE=9 COMPREPLY=()
    _python_argcomplete fedtext
    printf '%s;' "${COMPREPLY[@]}"
    echo
}
"""
SECONDS = 120  # the longest wait for a shell on a busy machine


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two experiments and a run, and ``fedtext`` in its bin/."""
    place = tmp_path_factory.mktemp("complete")
    (place / "bin").mkdir()
    script = place / "bin" / "fedtext"
    path = f"import sys; sys.path.insert(0, {str(ROOT)!r}); sys.path.remove('') if '' in sys.path else None"
    script.write_text(f"#!{sys.executable}\n{path}\nfrom fedtext.commands import main\nsys.exit(main())\n")
    script.chmod(0o755)
    (place / "only_mine.yaml").write_text("method: {name: fedprox}\n")
    (place / "runs" / "my-run").mkdir(parents=True)
    (place / "runs" / "my-run" / "plan.json").write_text("{}")
    return place


def environment(place: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FEDTEXT", "_ARGCOMPLETE"))}
    kept |= {"PATH": f"{place / 'bin'}:{os.environ['PATH']}", "TERM": "xterm", "HOME": str(place), "PS1": "> "}
    return kept | {"FEDTEXT_CACHE": str(place / "cache"), "COLUMNS": "200"}


def needs(shell: str) -> str:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    return found


LINES = {
    "fedtext sw": {"sweep "},
    "fedtext sweep kteps_s": {"kteps_star.yaml "},
    "fedtext sweep only": {"only_mine.yaml "},
    "fedtext sweep --dr": {"--dry-run "},
    "fedtext sweep demo.yaml training.rou": {"training.rounds="},
    "fedtext sweep demo.yaml --name x training.rou": {"training.rounds="},
    "fedtext sweep demo.yaml method=fedav": {"fedavg "},
    "fedtext sweep demo.yaml method.l": {"method.lambda1=", "method.lambda2="},
    "fedtext sweep only_mine.yaml method.": {"method.mu="},
    "fedtext sweep only_mine.yaml method=kteps method.l": {"method.lambda1=", "method.lambda2="},
    "fedtext sweep --resume ": {"my-run "},
    "fedtext report m": {"my-run "},
    "fedtext ls m": {"my-run "},
    "fedtext run demo.yaml --no-ray --ou": {"--out "},
    "fedtext reproduce kt": {"kteps "},
    "fedtext --keys lg": {"lg_fedavg "},
    "fedtext cp fedev": {"fedevocab.yaml "},
    "fedtext --completion z": {"zsh "},
    "fedtext help cor": {"corpora "},
    "fedtext sweep demo.yaml --address ": set(),
    "fedtext sweep demo.yaml --plu": {"--plugin "},
    "fedtext sweep --pla": set(),
    "fedtext sweep demo.yaml training.optimizer=ad": {"adam ", "adamw "},
}


@pytest.mark.slow
def test_bash_completes_commands_options_experiments_keys_values_and_runs(place: Path) -> None:
    asked = "".join(f"candidates '{line}'\n" for line in LINES)
    done = subprocess.run(
        [needs("bash"), "-c", BASH + asked],
        cwd=place,
        env=environment(place),
        capture_output=True,
        text=True,
        check=True,
    )
    found = [{word for word in line.split(";") if word} for line in done.stdout.splitlines()]
    assert len(found) == len(LINES), done.stderr
    for (line, expected), words in zip(LINES.items(), found, strict=True):
        assert {word.strip() for word in words} == {word.strip() for word in expected}, line


def typed(argv: list[str], place: Path, setup: str, line: str, expected: str) -> str:
    """Return what a shell on a terminal shows after ``line`` and a TAB: until ``expected``, or for SECONDS."""
    child, terminal = pty.fork()
    if not child:
        os.chdir(place)
        os.execve(argv[0], argv, environment(place))
    shown, until = "", time.monotonic() + SECONDS
    try:
        os.write(terminal, f"{setup}\necho rea''dy\n".encode())
        stage = [("\nready", f"{line}\t"), (expected, "")]
        for mark, then in stage:
            while mark not in shown and time.monotonic() < until:
                if select.select([terminal], [], [], 0.2)[0]:
                    data = os.read(terminal, 4096).decode("utf-8", "replace")
                    shown += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r|\x07", "", data)
            os.write(terminal, then.encode())
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(terminal)
    return shown


@pytest.mark.parametrize(
    ("shell", "options", "before"),
    [("bash", ["--norc", "-i"], ""), ("zsh", ["-f", "-i"], "autoload -U compinit; compinit -u; ")],
)
def test_a_tab_on_a_terminal_completes_the_line(shell: str, options: list[str], before: str, place: Path) -> None:
    argv, setup = [needs(shell), *options], f'{before}eval "$(fedtext --completion {shell})"'
    for line, expected in (("fedtext swe", "fedtext sweep"), ("fedtext sweep only", "fedtext sweep only_mine.yaml")):
        assert expected in typed(argv, place, setup, line, expected), (shell, line)


def test_fish_completes_with_descriptions(place: Path) -> None:
    setup = "fedtext --completion fish | source; "
    asked = "complete -C 'fedtext swe'; complete -C 'fedtext sweep only'; complete -C 'fedtext sweep --resume '"
    done = subprocess.run(
        [needs("fish"), "-c", setup + asked],
        cwd=place,
        env=environment(place),
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert [line.split("\t")[0] for line in lines] == ["sweep", "only_mine.yaml", "my-run"], done.stderr
    assert lines[0].split("\t")[1].startswith("every case of an experiment's space")


def test_an_unknown_shell_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    from fedtext.commands import main

    assert main(["--completion", "tcsh"]) == 2
    assert capsys.readouterr().err == "error: --completion: tcsh cannot complete: name bash, zsh or fish\n"


def test_keys_are_kept_until_the_source_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDTEXT_CACHE", str(tmp_path))
    found = overridable.overridable()
    (kept,) = tmp_path.glob("keys-*.json")
    assert {key.path: key for key in found}["training.rounds"].summary
    assert {key.path: key.values for key in found}["training.optimizer"][0] == "sgd"
    assert not [key.path for key in found if key.path.startswith("uplink.")], "entries of lists have numbers"
    monkeypatch.setattr(overridable, "_found", lambda: pytest.fail("made again"))
    assert overridable.overridable() == found
    kept.write_text("damaged")
    monkeypatch.setattr(overridable, "_found", lambda: iter(found[:1]))
    assert overridable.overridable() == found[:1]
