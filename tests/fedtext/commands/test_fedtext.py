"""The command ``fedtext``: its list of commands, their help, and copies of experiments."""

import contextlib
import errno
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.generate import messages
from fedtext import commands
from fedtext.__main__ import main as as_module
from fedtext.commands import COMMANDS, copy, local, parser, predict
from fedtext.errors import UserError, spelled
from tests import ROOT
from tests.loops import nonempty

FEDTEXT = "import sys; from fedtext.commands import main; sys.exit(main())"


def said(*words: str, main: object = commands.main) -> tuple[int, str, str]:
    """Return the exit status, standard output and standard error of a command."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(list(words))  # type: ignore[operator]
        except SystemExit as ended:
            status = ended.code
    return status, out.getvalue(), err.getvalue()


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


def test_a_copy_has_every_byte_and_overwrites_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = (ROOT / "tune_spaces" / "kteps.yaml").read_bytes()
    assert said("cp", "kteps.yaml", "my.yaml")[0] == 0
    assert Path("my.yaml").read_bytes() == source
    Path("my.yaml").write_text("mine\n")
    assert said("cp", "demo.yaml", "my.yaml") == (
        2,
        "",
        "error: my.yaml exists: choose another name, or overwrite it with --force\n",
    )
    assert Path("my.yaml").read_text() == "mine\n"
    assert said("cp", "kteps", "my.yaml", "--force")[0] == 0
    assert Path("my.yaml").read_bytes() == source
    Path("studies").mkdir()
    assert "studies/kteps.yaml is a copy" in said("cp", "kteps.yaml", "studies")[1]
    with pytest.raises(UserError, match="there is no folder none: make it first"):
        copy.main(["kteps.yaml", "none/"])
    assert not Path("none").exists(), "a name with a slash at its end is that of a folder"
    for target, sentence in (("my.yaml", "is that experiment itself"), ("none/my.yaml", "there is no folder none")):
        with pytest.raises(UserError, match=sentence):
            copy.main(["my.yaml", target, "--force"])


def test_a_copy_without_a_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert said("cp", "demo.yaml", "") == (2, "", "error: cp: '' is no file: name one\n")
    assert not list(tmp_path.iterdir())


def test_a_copy_to_a_link_that_leads_to_itself_or_to_a_long_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    status, _, error = said("cp", "demo.yaml", "loop", "--force")
    assert (status, error[:34]) == (2, "error: cp: loop cannot be written ")
    long = "x" * 300
    assert said("cp", "demo.yaml", long) == (2, "", f"error: cp: {long} is too long for a path: write a shorter one\n")


def test_a_copy_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("precious\n")
    Path("mine.yaml").chmod(0o600)
    Path("link.yaml").symlink_to("mine.yaml")

    def full(*asked: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        names = "mine.yaml", "link.yaml", "new.yaml"
        for words in nonempty([["new.yaml"], *([name, "--force"] for name in names)]):
            status, _, err = said("cp", "demo.yaml", *words)
            assert (status, err.count("\n")) == (2, 1)
            assert f"cp: {words[0]} cannot be written (No space left on device): free space on that disk" in err
    assert sorted(os.listdir()) == ["link.yaml", "mine.yaml"]
    assert Path("mine.yaml").read_text() == "precious\n"
    assert said("cp", "demo.yaml", "link.yaml", "--force")[0] == 0
    assert Path("link.yaml").is_symlink()
    assert Path("mine.yaml").read_bytes() == (ROOT / "tune_spaces" / "demo.yaml").read_bytes()
    assert Path("mine.yaml").stat().st_mode & 0o777 == 0o600


def test_a_copy_goes_through_what_is_no_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert copy.main(["demo.yaml", str(pipe), "--force"]) == 0
        assert os.read(reader, 1 << 16) == (ROOT / "tune_spaces" / "demo.yaml").read_bytes()
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_a_copy_says_which_plug_ins_it_needs_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "mine.py").write_text("")
    (tmp_path / "from" / "a.yaml").write_text("plugins: [mine.py, package.module]\n")
    out = said("cp", "from/a.yaml", "b.yaml")[1]
    assert "its plug-in mine.py is looked up beside b.yaml: copy from/mine.py there too" in out
    assert "package.module" not in out


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


def test_an_input_that_is_no_utf_8_reaches_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses the text, and says which; without an input there is none."""
    read: list[str] = []
    for stream, lines in nonempty(((io.TextIOWrapper(io.BytesIO(b"a\ncaf\xe9\n"), "utf-8"), 2), (None, 0))):
        with monkeypatch.context() as replaced:
            replaced.setattr(sys, "stdin", stream)
            assert commands.guarded(lambda _: read.extend(sys.stdin) or 0)() == 0
            sys.stdin.close()
        assert len(read) == lines
        read.clear()


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ["--version", "--help", "predict --help"])
def test_an_output_on_a_full_disk_is_one_sentence(words: str, unbuffered: str) -> None:
    """Also if all of it fits into the buffer, and without one, where the exception is that of any file."""
    env = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        argv = [sys.executable, "-c", FEDTEXT, *words.split()]
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, cwd=ROOT, env=env, text=True)
    assert done.stderr == "error: the standard output cannot be written: No space left on device\n"
    assert done.returncode == 2


def test_a_full_disk_is_told_from_a_file_on_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def writes_file(_: object) -> int:
        print("said")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "model.safetensors")

    assert commands.guarded(writes_file)() == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("said\n", "error: model.safetensors cannot be written: No space left on device\n")


@pytest.mark.parametrize("words", ["nope", "predict nope text"])
def test_the_exit_status_is_the_same_if_no_error_can_be_written(words: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", FEDTEXT, *words.split()], stderr=full, cwd=ROOT)
    assert done.returncode == 2


def test_a_command_needs_no_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has no streams in a process that was started with closed ones."""

    def writes(_: object) -> int:
        print("said", file=sys.stdout)
        print("said", file=sys.stderr)
        return 2 if sys.stdout.isatty() or sys.stderr.isatty() else 0

    for names in nonempty((["stdout"], ["stderr"], ["stdout", "stderr"])):
        with monkeypatch.context() as closed:
            for name in names:
                closed.setattr(sys, name, None)
            assert commands.guarded(writes)() == 0
            for name in names:
                getattr(sys, name).close()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("errors", ["strict", "surrogateescape", "backslashreplace"])
def test_a_character_that_the_output_cannot_encode_ends_nothing(
    encoding: str, errors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the environment says how such characters are written, they are written so."""
    written, said = io.BytesIO(), "85.3 \u2026 of \ud800"
    stream = io.TextIOWrapper(written, encoding, errors)
    with monkeypatch.context() as replaced:
        replaced.setattr(sys, "stdout", stream)
        assert commands.guarded(lambda _: print(said, end="") or 0)() == 0
    expected = "replace" if errors != "backslashreplace" else errors
    assert written.getvalue() == said.encode(encoding, expected)


@pytest.mark.parametrize(
    "words",
    ["--help", "--version", "--keys", "--completion bash", "ls", "run --help", "predict --help", "corpora demo.yaml"],
)
def test_a_command_ends_quietly_if_nobody_reads_its_output(words: str, tmp_path: Path) -> None:
    """Also if all of it fits into the buffer, which is written when the process ends.

    The status is that of a process that wrote to a closed pipe, but for help that argparse prints, which ignores it.
    """
    unread, pipe = os.pipe()
    os.close(unread)
    env = os.environ | {"FEDTEXT_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", FEDTEXT, *words.split()], stdout=pipe, stderr=subprocess.PIPE, cwd=ROOT, env=env
    )
    os.close(pipe)
    assert done.stderr == b""
    assert done.returncode in ({0, 141} if words.endswith(" --help") else {141})
