"""Runs tests on mutants: each in a process that is forked off one that has imported everything but this project.

A loader gives the mutated source in the place of the module's own, so that nothing is written and whatever runs on
import is mutated too. Which tests call which function is found out by one run of the tests as they are.
"""

import hashlib
import importlib.abc
import importlib.util
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

from tests.mutants.modules import test_files
from tests.mutants.operators import Mutant

CACHE = Path(".mutants.json")
TESTS_SECONDS = 60.0  # of processor time: a mutant meets the quickest tests that call its function, so many at most
_PRELOADED = (
    "torch",
    "numpy",
    "scipy",
    "pydantic",
    "hypothesis",
    "pytest",
    "safetensors.numpy",
    "yaml",
    "dp_accounting",
    "randomgen",
)
CAUGHT, SURVIVED, TIMED_OUT, UNREACHED = "caught", "survived", "timed out", "no test calls it"


@dataclass(frozen=True)
class Test:
    """A test as it ran on the unchanged source: its processor seconds, and the functions that it called."""

    name: str
    seconds: float
    calls: frozenset[str]  # "path qualified.name"


def preload(names: Sequence[str]) -> None:
    """Import what all mutants' processes share. None of it belongs to the project."""
    for name in names:
        try:
            __import__(name)
        except ImportError:  # an optional package: its tests skip
            continue


class _Mutated(SourceFileLoader):
    """Gives ``source`` in the place of the file's."""

    def __init__(self, fullname: str, path: str, source: str) -> None:
        super().__init__(fullname, path)
        self.source = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.source, self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the one mutated module."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant
        self.name = mutant.module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        file = str(Path(self.mutant.module).resolve())
        folders = [str(Path(file).parent)] if file.endswith("__init__.py") else None
        loader = _Mutated(name, file, self.mutant.source)
        return importlib.util.spec_from_file_location(name, file, loader=loader, submodule_search_locations=folders)


class _Plugin:
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


class _Timing(_Plugin):
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


def _pytest(files: Sequence[str], plugin: Any, log: Path) -> int:
    """Run test files in this process, their output into ``log``."""
    import pytest

    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    # An example that fails on a mutant is not to be remembered for the real tests.
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(log.parent)
    stream = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(stream, 1)
    os.dup2(stream, 2)
    options = ["-x", "-q", "-p", "no:cacheprovider", "--tb=line", "-o", "addopts=", "--basetemp", str(log) + ".tmp"]
    return int(pytest.main([*files, *options], plugins=[plugin]))


def _forked(work: Callable[[], int], seconds: float) -> int:
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


class Baseline:
    """What the tests of some files call, from one run of each file, kept in ``cache``."""

    def __init__(self, cache: dict[str, Any], log: Path) -> None:
        self.cache, self.log = cache.setdefault("baseline", {}), log

    def tests(self, files: Iterable[str]) -> list[Test]:
        """Raises RuntimeError if a test fails on the unchanged source."""
        return [
            Test(each["name"], each["seconds"], frozenset(each["calls"])) for file in files for each in self._file(file)
        ]

    def _file(self, file: str) -> list[dict[str, Any]]:
        key = digest(Path(file).read_text())
        if self.cache.get(file, {}).get("key") != key:
            out = self.log.with_suffix(".json")
            out.unlink(missing_ok=True)

            def work() -> int:
                plugin = _Timing()
                code = _pytest([file], plugin, self.log)
                out.write_text(json.dumps([plugin.tests, plugin.failed]))
                return code

            os.waitpid(_forked(work, 3600), 0)
            tests, failed = json.loads(out.read_text()) if out.exists() else ([], [file])
            if failed or not tests:
                said = "".join(self.log.read_text().splitlines(keepends=True)[-12:])
                raise RuntimeError(f"{failed[0] if failed else file} fails on the unchanged source:\n{said}")
            self.cache[file] = {"key": key, "tests": tests}
        return self.cache[file]["tests"]


def chosen(mutant: Mutant, tests: Sequence[Test]) -> list[Test]:
    """The tests that call a mutant's function, the quickest first; of code that runs on import all of its module's."""
    called = [test for test in tests if f"{mutant.module} {mutant.function}" in test.calls]
    if not called:
        inside = f"{mutant.module} {mutant.function}".rstrip()
        called = [test for test in tests if any(call.startswith(inside) for call in test.calls)]
    kept, spent = [], 0.0
    for test in sorted(called, key=lambda test: test.seconds):
        spent += test.seconds
        if kept and spent > TESTS_SECONDS:
            break
        kept.append(test)
    return kept


def digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def run(
    mutants: Sequence[Mutant],
    cache: dict[str, Any],
    processes: int,
    said: Callable[[Mutant, str], None],
    files_of: Callable[[str], list[str]] = test_files,
    preloaded: Sequence[str] = _PRELOADED,
    patience: float = 20.0,
) -> dict[Mutant, str]:
    """Test mutants.

    Args:
        cache: results and baselines of earlier runs. What it knows of the same source and tests is not run again; it
            is filled, and written to ``CACHE`` as results arrive.
        processes: how many mutants are tested at a time.
        said: is told each result when it is there.
        files_of: the test files that belong to a module.
        preloaded: third-party modules to import before anything is forked.
        patience: processor seconds that a mutant has beyond four times what its tests took.
    """
    preload(preloaded)
    known, results = cache.setdefault("results", {}), {}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        baseline, running = Baseline(cache, Path(folder) / "baseline.log"), {}

        def wait() -> None:
            child, status = os.wait()
            mutant, key = running.pop(child)
            code = os.waitstatus_to_exitcode(status)
            known[key] = results[mutant] = SURVIVED if code in (0, 5) else TIMED_OUT if code < 0 else CAUGHT
            CACHE.write_text(json.dumps(cache))
            said(mutant, results[mutant])

        for number, mutant in enumerate(mutants):
            files = files_of(mutant.module.removeprefix("fedtext/").removesuffix(".py"))
            key = digest(mutant.module, mutant.source, *(Path(file).read_text() for file in files))
            if key in known:
                results[mutant] = known[key]
                said(mutant, known[key])
                continue
            tests = chosen(mutant, baseline.tests(files))
            if not tests:
                known[key] = results[mutant] = UNREACHED
                said(mutant, UNREACHED)
                continue
            log, names = Path(folder) / f"{number}.log", [test.name for test in tests]
            work = _work(mutant, names, log)
            child = _forked(work, patience + 4 * sum(test.seconds for test in tests))
            running[child] = mutant, key
            while len(running) >= processes:
                wait()
        while running:
            wait()
    return results


def _work(mutant: Mutant, names: Sequence[str], log: Path) -> Callable[[], int]:
    def work() -> int:
        sys.meta_path.insert(0, _Finder(mutant))
        return _pytest(sorted({name.split("::")[0] for name in names}), _Plugin(names), log)

    return work


def read_cache() -> dict[str, Any]:
    return json.loads(CACHE.read_text()) if CACHE.exists() else {}


def sampled(mutants: Sequence[Mutant], size: int, seed: int) -> Iterator[Mutant]:
    """So many of them, in their order, drawn by the digest of each: the same of a source that has changed elsewhere."""
    drawn = sorted(range(len(mutants)), key=lambda n: digest(str(seed), mutants[n].name, str(n)))[:size]
    yield from (mutants[n] for n in sorted(drawn))
