"""The command ``fedtext``: its list of commands, and their help."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.generate import messages
from fedtext import commands
from fedtext.__main__ import main as as_module
from fedtext.commands import COMMANDS, local, parser, predict
from fedtext.errors import spelled
from tests import ROOT
from tests.fedtext.commands.called import said
from tests.loops import nonempty


def test_fedtext_alone_lists_every_command_and_its_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    status, out, err = said()
    assert (status, err) == (0, "")
    for command in nonempty(COMMANDS.values()):
        assert f"  {command.name.ljust(16)}  {command.summary}\n" in out
    assert said("--help") == said("help") == (0, out, "")
    assert max(map(len, out.splitlines())) <= 120


def test_an_installed_package_lists_the_commands_that_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are named once, with what they need."""
    monkeypatch.setattr(commands, "ROOT", tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)
    status, out, err = said()
    assert (status, err) == (0, "")
    listed = {line.split()[0] for line in out.splitlines() if re.match(r"  [a-z]+ {2,}\w", line)}
    assert listed == {"run", "predict", "export", "cp"}
    assert "need fedtext's repository" in " ".join(out.split())
    for name in nonempty(COMMANDS.keys() - listed):
        assert f"fedtext {name}" not in out
        assert re.search(rf"\b{name}\b", out)
        assert said(name)[0] == 2
    assert "--no-ray" in said("run", "--help")[1]
    assert said("run", "demo.yaml")[2].startswith(f"error: {tmp_path} has the library of fedtext without its commands")
    assert "sweep" not in said("swep")[2] + said("tune")[2] + said("demo.yaml")[2]
    assert said("cp", "demo.yaml", "a.yaml")[1].endswith("fedtext run a.yaml --no-ray runs it\n")
    for name in nonempty(listed):
        assert commands._parser(name, ["fedtext", name]).prog == f"fedtext {name}"


def test_help_is_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = "A sentence that begins here,\nand goes on.\n\n  key=a value\n"
    for width in (50, 80, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        made = parser.command_parser("sweep", "x", [("demo.yaml", "a comment of some length " * 2)], notes)
        made.add_argument("--dry-run", action="store_true", help="nothing starts; with --num-cpus N --num-gpus N " * 2)
        text = made.format_help()
        assert text.count("--num-gpus") == 2, "an option is not broken"
        for page in (text, said()[1]):
            assert max(map(len, page.splitlines())) <= min(width, 120)
        assert "  key=a value\n" in text, "lines that are indented stay"
        assert "begins here, and goes on.\n" in text
        assert f"{'demo.yaml':11}a comment" in text or "demo.yaml\n        a comment" in text


def test_python_m_fedtext_is_the_same_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(main=as_module) == said()
    monkeypatch.chdir(tmp_path)
    status, out, err = said("cp", "demo.yaml", "a.yaml", main=as_module)
    assert (status, err) == (0, "")
    assert "python -m fedtext sweep a.yaml --dry-run" in out


@pytest.mark.parametrize("words", [["--completion", "bash"], ["--keys", "method.mu"]])
def test_python_m_fedtext_has_every_option_of_the_command(words: list[str]) -> None:
    expected = said(*words)
    assert said(*words, main=as_module) == expected
    assert (expected[0], expected[2]) == (0, "")


def test_python_m_fedtext_proposes_the_nearest_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status, out, err = said("swep", "demo.yaml", main=as_module)
    assert (status, out) == (2, "")
    assert err.startswith("error: there is no command swep; did you mean sweep?")
    assert "there is no experiment file other" in said("other", main=as_module)[2]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "swep").write_text("name: [")
    assert said("swep", main=as_module)[2].startswith("error: swep, line 1: ")


def test_every_command_of_the_table_is_there_with_its_parser() -> None:
    script = (
        "from fedtext.commands import COMMANDS, in_repository; in_repository(); from importlib import import_module\n"
    )
    script += "for name in COMMANDS: print(import_module(f'platform.{name}').parser().format_help(), end='=====')\n"
    script += "import sys; print([name for name in ('torch', 'ray', 'mlflow') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], cwd="/", capture_output=True, text=True, check=True)
    *helps, heavy = done.stdout.split("=====")
    assert heavy.strip() == "[]", "help waits for imports"
    for name, text in nonempty(zip(COMMANDS, helps, strict=True)):
        assert text.startswith(f"usage: python -m platform.{name} ")
        for part in ("\nexamples:\n", "\nexit status:\n  0    success\n", "  2    an error that you can fix"):
            assert part in text, name
        assert "``" not in text, name
        assert ("  1    training failed" in text) == (name in ("run", "sweep", "reproduce"))


def test_a_word_that_is_no_command_is_one_sentence_with_the_nearest() -> None:
    for word, sentence in {
        "sweeep": "there is no command sweeep; did you mean sweep? ",
        "xyz": "there is no command xyz; ",
        "--versoin": "there is no option --versoin; did you mean --version? ",
        "train": "there is no command train; did you mean fedtext run? ",
        "my.yaml": "my.yaml is no command; did you mean fedtext run my.yaml, or fedtext sweep my.yaml? ",
    }.items():
        assert said(word) == (2, "", f"error: {sentence}fedtext --help lists the commands\n")


def test_the_version_is_that_of_the_package() -> None:
    status, out, _ = said("--version")
    assert status == 0
    assert f'version = "{out.split()[1]}"' in (ROOT / "pyproject.toml").read_text()


def test_a_command_is_spelled_as_it_was_called() -> None:
    assert spelled("sweep") == "python -m platform.sweep"
    assert said("cp", "--help")[1].startswith("usage: fedtext cp ")
    assert "fedtext cp kteps.yaml my.yaml" in said("help", "cp")[1]
    assert spelled("sweep") == "fedtext sweep"


def test_messages_spell_commands_as_they_were_called() -> None:
    """What a message says of a command comes from ``spelled``."""
    files = [file for package in messages.PACKAGES for file in (ROOT / package).rglob("*.py")]
    found = [text for file in files for text in messages.messages(file)]
    names = "|".join(COMMANDS)
    assert not [text for text in nonempty(found) if re.search(rf"(platform\.|fedtext )({names})\b", text)]


def test_a_run_without_ray_is_the_same_by_three_names(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["demo.yaml", "training.rounds=1", "corpus.clients=2", "corpus.train=20", "corpus.test=5"]
    words += ["space={}", "baselines=[]"]  # that these are left aside is said with the name of the command
    lines = []
    for main, given in (
        (commands.main, ["run", *words, "--no-ray", "--seed", "3"]),
        (as_module, [*words, "seed=3"]),
        (local.main, [*words, "seed=3"]),
    ):
        assert main(given) == 0
        lines.append(re.sub(" +", " ", re.sub(r" *[\d.]+ s\b", "", capsys.readouterr().out)))
    assert lines[0] == lines[1] == lines[2]
    head, end = lines[0].split("\n\n")
    notes, _, rounds = head.partition("\nround ")
    assert "\nledger: uplink: no guarantee: updates are sent as they are" in notes, "before the first round"
    assert rounds.count("\n") == 0, "one round"
    assert re.search(r"\nround 1/1 loss 1\.\d+ Ag [\d.]+ Ap [\d.]+ AUC [\d.]+ up \d+ kB down \d+ kB$", head)
    assert re.match(r"Ag [\d.]+ % accuracy of the shared model on each client's own texts", end)
    told = {line.split()[0] for line in end.splitlines()}
    assert {"Ag_val", "bytes_total", "loss_transfer", "clients_trained", "round_seconds"} <= told


def test_a_text_is_shown_on_one_line_of_its_own() -> None:
    assert predict._shown("a\x1b[31mred\nline\u3000of\xa0words") == "a\\x1b[31mred\\nline\u3000of\xa0words"


def test_a_model_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    status, out, err = said("predict", str(tmp_path), "text")
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert predict.parser().prog == "fedtext predict"
    assert said("predict", str(tmp_path), "--client", "dvd", "text") == (status, out, err), "options in between"
    assert said("predict")[2].startswith("error: the following arguments are required: MODEL; ")
