"""The mutation runner: which edits it makes, and that it tells a mutant that is caught from one that survives."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import ROOT
from tests.loops import nonempty
from tests.mutants.equivalents import EQUIVALENTS, FILES
from tests.mutants.faults import FAULTS, enclosing
from tests.mutants.modules import FAULTS_ONLY, MODULES, path
from tests.mutants.operators import mutants

SOURCE = '''"""Small."""

LARGEST = 3


def share(part: int, whole: int = 8) -> float:
    """Part of a whole."""
    if not whole:
        raise ValueError("0 is no whole")
    return min(part, LARGEST) / whole


class Counter:
    def add(self, count: int) -> None:
        assert count > 0
        self.count = self.count + count
'''


def test_each_edit_is_one_line_and_says_where_it_is() -> None:
    found = {(mutant.function, mutant.after) for mutant in mutants("fedtext/small.py", SOURCE)}
    assert found == {
        ("", "LARGEST = 4"),
        ("", "LARGEST = 2"),
        ("share", "def share(part: int, whole: int = 9) -> float:"),
        ("share", "def share(part: int, whole: int = 7) -> float:"),
        ("share", "if (whole):"),
        ("share", "return (min(part, LARGEST) * whole)"),
        ("share", "return max(part, LARGEST) / whole"),
        ("Counter.add", "pass"),
        ("Counter.add", "self.count = (self.count - count)"),
    }
    for mutant in nonempty(mutants("fedtext/small.py", SOURCE)):
        assert mutant.source.count("\n") == SOURCE.count("\n")
        assert mutant.before in SOURCE
        assert mutant.source != SOURCE


@pytest.mark.parametrize(
    ("statement", "after"),
    [
        ("x = a < b", {"x = (a <= b)"}),
        ("x = a and b", {"x = (a or b)"}),
        ("x = f(a, b)", {"x = f(b, a)"}),
        ("x = 0.5", {"x = 1.0"}),
        ("x = -a", {"x = (a)"}),
        ("x = a if b else c", {"x = (c if b else a)", "x = a if (not b) else c"}),
        ("x += a", {"pass", "x -= a"}),
        ("x[0] = a", {"pass", "x[1] = a"}),
        ("f(a)", {"pass"}),
        ("x: int = 0", {"x: int = 1"}),
        ("raise UserError(f'{a + 1}')", set()),
        ("x = zip(a, b, strict=True)", set()),
        ("x = np.add(a, b)", set()),
        ("x = max(a, b)", {"x = min(a, b)"}),
        ("x.add(a, b)", {"pass", "x.add(b, a)"}),
    ],
)
def test_the_operators(statement: str, after: set[str]) -> None:
    found = {mutant.after for mutant in mutants("fedtext/small.py", statement + "\n")}
    assert found == after


def test_a_function_inside_another_is_a_part_of_it() -> None:
    source = "def outer():\n    if True:\n        def inner():\n            return a + b\n    return inner\n"
    assert {mutant.function for mutant in mutants("fedtext/small.py", source)} == {"outer"}


def test_where_a_line_stands() -> None:
    assert enclosing(SOURCE, 3) == ""
    assert enclosing(SOURCE, 10) == "share"
    assert enclosing(SOURCE, 16) == "Counter.add"


def test_every_equivalent_is_a_mutant_of_its_module() -> None:
    """An entry whose line has changed would explain nothing and stay unnoticed."""
    made = {
        module: {(mutant.before, mutant.after) for mutant in mutants(path(module), (ROOT / path(module)).read_text())}
        for module in {module for module, *_ in EQUIVALENTS}
    }
    assert made
    assert [
        (module, before, after) for module, before, after, _ in EQUIVALENTS if (before, after) not in made[module]
    ] == []


def test_an_equivalent_is_in_the_file_of_its_package_and_there_once() -> None:
    for file in nonempty(FILES):
        packages = {module.split("/")[0] for module, *_ in file.EQUIVALENTS}
        assert packages == {file.__name__.rpartition(".")[2]}
    mutated = [(module, before, after) for module, before, after, _ in EQUIVALENTS]
    assert len(set(mutated)) == len(mutated)


PROJECT = {
    "fedtext/__init__.py": "",
    "fedtext/small.py": """
LIMIT = 3


def larger(a, b):
    return a if a > b else b


def unused(a):
    return -a


def emptied(items):
    while items:
        items.pop()
""",
    "test_small.py": """
from fedtext.small import LIMIT, emptied, larger


def test_the_limit():
    assert LIMIT <= 3


def test_larger():
    assert larger(1, 2) == 2


def test_emptied():
    emptied([1])


def test_nothing():
    pass
""",
    "run.py": """
import json
from pathlib import Path
from tests.mutants.operators import mutants
from tests.mutants.runner import run

if __name__ == "__main__":
    cache, made = {}, mutants("fedtext/small.py", Path("fedtext/small.py").read_text())
    for _ in range(2):
        results = run(made, cache, 2, lambda *result: None, lambda module: ["test_small.py"], ["pytest"], patience=3)
        print(json.dumps({mutant.after: result for mutant, result in results.items()}))
    tests = cache["baseline"]["test_small.py"]["tests"]
    print(json.dumps({test["name"]: test["calls"] for test in tests}))
    print(json.dumps(cache == json.loads(Path(".mutants.json").read_text())))
""",
}


def test_a_mutant_is_caught_and_an_equivalent_one_survives(tmp_path: Path) -> None:
    for name, content in PROJECT.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = subprocess.run([sys.executable, "run.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, again, calls, written = map(json.loads, done.stdout.splitlines())
    assert first == {
        "LIMIT = 4": "caught",  # by a test that calls nothing
        "LIMIT = 2": "survived",
        "return (b if a > b else a)": "caught",
        "return a if (a >= b) else b": "survived",  # of two that are equal either is the larger one
        "return (a)": "no test calls it",
        "while (not items):": "survived",  # nothing looks at the result
        "pass": "timed out",
    }
    assert again == first
    assert calls == {
        "test_small.py::test_the_limit": [],
        "test_small.py::test_larger": ["fedtext/small.py larger"],
        "test_small.py::test_emptied": ["fedtext/small.py emptied"],
        "test_small.py::test_nothing": [],
    }
    assert written


def test_every_fault_is_a_line_of_its_module() -> None:
    """A fault whose line has changed would end the run before the first mutant."""
    assert FAULTS
    assert len({fault.mutant().name for fault in FAULTS}) == len(FAULTS)


def test_every_module_and_its_test_files_are_there() -> None:
    files = {file.name for file in (ROOT / "tests").rglob("test_*.py")}
    for module, names in nonempty((MODULES | FAULTS_ONLY).items()):
        assert (ROOT / path(module)).is_file(), module
        assert {f"test_{name}.py" for name in names} <= files, module
