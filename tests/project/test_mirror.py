"""Tests lie in folders that mirror the packages, so that a file's test is found by its name."""

import ast
from pathlib import Path

from tests import ROOT

# Folders of tests that are of no package: whole runs, documents, the project's own files, and malformed inputs.
APART = {"runs", "docs", "project", "mutants", "fuzz"}


def test_every_folder_of_tests_is_that_of_a_package() -> None:
    folders = {file.parent.relative_to(ROOT / "tests") for file in (ROOT / "tests").rglob("test_*.py")}
    assert Path() not in folders, "a test file lies in no folder"
    mirrored = {folder for folder in folders if folder.parts[0] not in APART}
    assert len(mirrored) > 20
    assert [str(folder) for folder in sorted(mirrored) if not (ROOT / folder).is_dir()] == []


def test_a_name_of_a_test_file_is_there_once() -> None:
    names = [file.name for file in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names)), "mutants are tried on the tests of a name"


def test_only_the_tests_of_benchmarks_import_benchmarks() -> None:
    """They lie in benchmarks/tests."""
    files = list((ROOT / "tests").rglob("*.py"))
    assert len(files) > 100
    assert [str(file) for file in files if any(name.split(".")[0] == "benchmarks" for name in _imports(file))] == []


def _imports(file: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
    return names
