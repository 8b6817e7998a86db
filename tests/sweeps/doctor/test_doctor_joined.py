"""The doctor and commands on a cluster of ``ray start`` whose token or environment is not that of this machine."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray._private.utils import check_version_info

from actors.cluster import _refusal
from sweeps.doctor.cluster import begin, surveyed
from tests.commands import command, write
from tests.heads import Head, ray_head


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> Iterator[Head]:
    with ray_head(monkeypatch) as head:
        yield head


def said(head: Head) -> list[str]:
    return [finding.line for finding in surveyed(head.address, begin(head.address).result())]


@pytest.mark.ray
@pytest.mark.slow
def test_a_wrong_token_and_nodes_with_other_packages(
    head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (head.packages / "torch-0.0.9.dist-info").mkdir()
    (head.packages / "torch-0.0.9.dist-info" / "METADATA").write_text("Name: torch\nVersion: 0.0.9\n")
    found = said(head)
    assert found[0].startswith(f"  ok       {head.address} answers")
    assert "warning  versions differ: torch 0.0.9 on " in found[1]

    (head.packages / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\")\n")
    sentence = "cannot run a task{}ModuleNotFoundError: No module named 'torch'{}: install there what is installed here"
    assert sentence.format(": ", "") in said(head)[1]
    words = ["run", str(write(tmp_path)), "--address", head.address]
    done = command(tmp_path, *words)
    assert done.returncode == 2, done.stderr
    assert sentence.format(" (", ")") in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr

    other = tmp_path / "token"
    other.write_text("b" * 32)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(other))
    refused = f"the Ray cluster at {head.address} refuses the token of this machine: RAY_AUTH_MODE=token needs the"
    assert refused in said(head)[0]


def test_other_versions_are_one_sentence() -> None:
    with pytest.raises(RuntimeError, match="Version mismatch") as raised:
        check_version_info({"ray_version": "2.55.0", "python_version": "3.12.1"}, "a node")
    python = ".".join(map(str, sys.version_info[:3]))
    assert _refusal(str(raised.value), "").startswith("has Ray 2.55.0 and Python 3.12.1, and this command Ray ")
    assert f" and Python {python}: use the same on both sides" in _refusal(str(raised.value), "")
