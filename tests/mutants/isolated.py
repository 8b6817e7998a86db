"""One run of tests in a process of its own, forked off one that has imported everything but this project."""

import importlib.abc
import importlib.util
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

from tests.mutants.operators import Mutant


def preload(names: Sequence[str]) -> None:
    """Import what all mutants' processes share. None of it belongs to the project."""
    for name in names:
        try:
            __import__(name)
        except ImportError:  # an optional package: its tests skip
            continue


class Mutated(SourceFileLoader):
    """Gives ``source`` in the place of the file's."""

    def __init__(self, fullname: str, path: str, source: str) -> None:
        super().__init__(fullname, path)
        self.source = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.source, self.path, "exec", dont_inherit=True)


class Finder(importlib.abc.MetaPathFinder):
    """Finds the one mutated module."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant
        self.name = mutant.module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        file = str(Path(self.mutant.module).resolve())
        folders = [str(Path(file).parent)] if file.endswith("__init__.py") else None
        loader = Mutated(name, file, self.mutant.source)
        return importlib.util.spec_from_file_location(name, file, loader=loader, submodule_search_locations=folders)


class Chosen:
    """Chooses and orders tests, and makes hypothesis draw the same examples for every mutant."""

    def __init__(self, chosen: Sequence[str] = ()) -> None:
        self.order = {name: place for place, name in enumerate(chosen)}

    def pytest_sessionstart(self) -> None:
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)  # what fails need not be made small
        settings.register_profile("mutants", settings(derandomize=True, database=None, phases=phases))
        settings.load_profile("mutants")

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        kept = [item for item in items if not item.get_closest_marker("ray")]
        known = [item for item in kept if item.nodeid in self.order]
        items[:] = sorted(known, key=lambda item: self.order[item.nodeid]) if known else kept


class Timing(Chosen):
    """Notes each test's processor time, and the functions of the project that it calls."""

    def __init__(self) -> None:
        super().__init__()
        self.tests: list[dict[str, Any]] = []
        self.failed: list[str] = []
        self.root = str(Path("fedtext").resolve())

    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> None:
        calls: set[CodeType] = set()

        def trace(frame: FrameType, event: str, arg: Any) -> None:
            calls.add(frame.f_code)

        self.calls, self.start = calls, time.process_time()
        sys.settrace(trace)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_runtest_logfinish(self, nodeid: str, location: Any) -> None:
        sys.settrace(None)
        seconds, here = time.process_time() - self.start, os.getcwd()
        names = {
            f"{os.path.relpath(code.co_filename, here)} {_function(code)}"
            for code in self.calls
            if code.co_filename.startswith(self.root)
        }
        self.tests.append({"name": nodeid, "seconds": seconds, "calls": sorted(names)})


def _function(code: CodeType) -> str:
    """The qualified name of the outermost function that holds this code: lambdas and comprehensions are parts of it."""
    return code.co_qualname.split(".<locals>")[0].removesuffix(".<lambda>")


def run_pytest(files: Sequence[str], plugin: Any, log: Path, stop: str = "-x") -> int:
    """Run test files in this process, their output into ``log``."""
    import pytest

    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    # An example that fails on a mutant is not to be remembered for the real tests.
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(log.parent)
    stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(stream, 1)
    os.dup2(stream, 2)
    options = [stop, "-q", "-p", "no:cacheprovider", "--tb=line", "-o", "addopts=", "--basetemp", str(log) + ".tmp"]
    return int(pytest.main([*files, *options], plugins=[plugin]))


def forked(work: Callable[[], int], seconds: float) -> int:
    """The id of a child that does this work, within so many processor seconds, and exits with its result."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    status = 99
    try:
        os.setpgid(0, 0)
        limit = int(seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
        status = work()
    finally:
        os._exit(status)
