"""The command ``fedtext cp``: copies of experiments."""

import errno
import os
from pathlib import Path

import pytest

from fedtext.commands import copy
from fedtext.errors import UserError
from tests import ROOT
from tests.fedtext.commands.called import said
from tests.loops import nonempty


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
