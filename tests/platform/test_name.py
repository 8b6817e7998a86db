"""The folder named like a standard-library module."""

import ast
import subprocess
import sys

import pytest

from tests import ROOT
from tests.loops import nonempty


def test_platform_is_the_standard_module_with_our_commands() -> None:
    script = (
        "import platform, platform.sweep, platform.run;"
        "print(platform.system(), platform.python_version(), callable(platform.sweep.main), platform.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    plain = subprocess.run(
        [sys.executable, "-c", "import platform; print(platform.system(), platform.python_version())"],
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [*plain.stdout.split(), "True", "platform"]


@pytest.mark.parametrize("room", ["fedtext", "actors", "dashboards", "tune_spaces", "sweeps", "cluster"])
def test_nothing_a_worker_imports_lives_in_platform(room: str) -> None:
    ours = {path.stem for path in (ROOT / "platform").glob("*.py")} - {"__init__"}
    for path in nonempty((ROOT / room).rglob("*.py")):
        for node in nonempty(ast.walk(ast.parse(path.read_text()))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [f"{node.module}.{a.name}" for a in node.names] if isinstance(node, ast.ImportFrom) else []
            assert not [n for n in names if n.startswith("platform.") and n.split(".")[1] in ours], path


def test_the_library_trains_without_ray_mlflow_or_datasets() -> None:
    script = """
import sys
for name in ("ray", "mlflow", "datasets", "gensim", "transformers"):
    sys.modules[name] = None  # importing it raises
from fedtext.__main__ import main
sys.exit(main(["demo.yaml", "training.rounds=1", "corpus.clients=2", "corpus.train=20", "corpus.test=5"]))
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "round 1/1" in done.stdout


def test_a_command_starts_ray_before_it_imports_what_it_needs_later() -> None:
    script = (
        "import platform, sys, sweeps.prepare as launch; launch.make_cases(*launch.files.load('demo.yaml'), 'demo');"
        "print(sorted({'ray.tune', 'mlflow', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
