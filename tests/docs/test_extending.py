"""docs/how-to/write-*.md: their files are complete, train, and keep to what is promised of every part."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import fedtext
from fedtext import testing
from fedtext.__main__ import main
from fedtext.config import loading
from fedtext.config.experiment import use
from fedtext.messages import Update
from fedtext.wire import encoding
from tests.commands import ROOT
from tests.loops import nonempty

PAGES = {path.stem: path.read_text() for path in (ROOT / "docs/how-to").glob("write-a*.md")}
EXAMPLES = {
    name: found[0]
    for name, page in PAGES.items()
    if (found := re.findall(r"```python\n(.*?)```\n.*?```yaml\n(.*?)```", page, re.M | re.S))
}
PLUGIN = ROOT / "docs/tutorial/near_head.py"  # the README's
SHORT = ["training.rounds=1", "evaluation.personalize={steps: 2}", "corpus.max_length=20"]
CHECKED: dict[str, dict[str, Any]] = {"attentive": {"embedding": {"dim": 4}}}


def test_there_is_an_example_of_each_kind() -> None:
    words = {kind.word for kind in loading.KINDS}
    assert {name.rpartition("-")[2] for name in EXAMPLES} == words
    assert len(EXAMPLES) == len(words)
    for python, _ in nonempty(EXAMPLES.values()):
        assert len([line for line in python.splitlines() if line.strip()]) <= 40


@pytest.mark.parametrize("page", sorted(EXAMPLES))
def test_an_example_trains_and_passes_its_check(page: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    python, text = EXAMPLES[page]
    (name,) = yaml.safe_load(text)["plugins"]
    (tmp_path / name).write_text(python)
    file = tmp_path / "example.yaml"
    file.write_text(text)
    assert main([str(file), *SHORT, "--out", str(tmp_path / "out")]) == 0, capsys.readouterr().err
    assert "round 1/1" in capsys.readouterr().out
    experiment = fedtext.load(file, *SHORT)
    ((kind, cls),) = loading.load_plugin(experiment.plugins[0]).parts
    check = getattr(testing, f"check_{kind.word}")
    check(cls.model_validate({"name": (called := cls.model_fields["name"].default)} | CHECKED.get(called, {})))
    file.write_text(text.replace(f"plugins: [{name}]\n", ""))
    assert main([str(file), *SHORT, "--plugin", str(tmp_path / name), "--out", str(tmp_path / "out")]) == 0
    use(())


@pytest.mark.parametrize("method", ["ErrorFeedback", "Moon"])
def test_the_further_methods_pass_their_check(tmp_path: Path, method: str) -> None:
    first, *others = re.findall(r"```python\n(.*?)```", PAGES["write-a-method"], re.S)
    assert method not in first
    (own,) = (each for each in others if f"class {method}(" in each)
    (tmp_path / "further.py").write_text(own)
    ((kind, cls),) = loading.load_plugin(loading.find_plugin(tmp_path / "further.py")).parts
    assert kind.word == "method"
    testing.check_method(cls())


def test_the_mechanism_that_sends_fewer_numbers_passes_its_check_and_restores_large_tensors(tmp_path: Path) -> None:
    """Places above 2^24 are no float32 numbers."""
    _, second = re.findall(r"```python\n(.*?)```", PAGES["write-a-mechanism"], re.S)
    (tmp_path / "top_k.py").write_text(second)
    ((_, cls),) = loading.load_plugin(loading.find_plugin(tmp_path / "top_k.py")).parts
    testing.check_mechanism(cls(k=20), wire={"rows": "all"})
    top, shape = cls(k=5), (400_001, 50)
    large = np.zeros(shape, np.float32)
    large.flat[[0, 2**24 + 1, 20_000_001, 20_000_002, 20_000_049]] = [3, -1, 4, 2, -5]
    received = {"table": np.broadcast_to(np.float32(0), shape)}
    payload = encoding.encode(Update(0, 7, top.apply({"table": large}, received, None)))
    sent = encoding.decode(payload, 0, top.leaves({"table": shape})).tensors
    assert sum(tensor.nbytes for tensor in sent.values()) == 2 * 5 * 4
    assert np.array_equal(top.restore(dict(sent), received)["table"], large)


def test_the_aggregation_with_a_state_passes_its_check(tmp_path: Path) -> None:
    _, second = re.findall(r"```python\n(.*?)```", PAGES["write-an-aggregation"], re.S)
    (tmp_path / "trusted.py").write_text(second)
    ((kind, cls),) = loading.load_plugin(loading.find_plugin(tmp_path / "trusted.py")).parts
    assert kind.word == "aggregation"
    assert cls.keeps_state()
    testing.check_aggregation(cls())


def test_the_method_of_the_readme_passes_its_check() -> None:
    ((kind, cls),) = loading.load_plugin(loading.find_plugin(PLUGIN)).parts
    assert kind.word == "method"
    testing.check_method(cls())


@pytest.mark.slow
def test_types_of_the_examples_are_those_of_the_library(tmp_path: Path) -> None:
    """Functions without annotations are not checked; what they override and call is."""
    for name, (python, _) in nonempty(EXAMPLES.items()):
        (tmp_path / f"{name.replace('-', '_')}.py").write_text(python)
    (settings := tmp_path / "mypy.ini").write_text("[mypy]\nplugins = pydantic.mypy\n")
    options = [f"--config-file={settings}", "--ignore-missing-imports", "--follow-imports=silent"]
    files = [*map(str, tmp_path.glob("*.py")), str(PLUGIN)]
    found = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "--cache-dir", str(tmp_path / "cache"), *files],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout
