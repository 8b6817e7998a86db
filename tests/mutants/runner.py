"""Runs tests on mutants: each in a process that is forked off one that has imported everything but this project.

A loader gives the mutated source in the place of the module's own, so that nothing is written and whatever runs on
import is mutated too. Which tests call which function is found out by one run of the tests as they are.
"""

import ast
import hashlib
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mutants.isolated import Chosen, Finder, Timing, forked, preload, run_pytest
from tests.mutants.modules import test_files
from tests.mutants.operators import Mutant

CACHE = Path(".mutants.json")
TESTS_SECONDS = 180.0  # of processor time: a mutant meets the quickest tests that call its function, so many at most
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


class Baseline:
    """What the tests of some files call, from one run of each file, kept in ``cache``."""

    def __init__(self, cache: dict[str, Any], folder: Path) -> None:
        self.whole, self.cache, self.folder = cache, cache.setdefault("baseline", {}), folder

    def kept(self) -> None:
        """Written whole or not at all: a run may end at any moment."""
        draft = CACHE.with_suffix(".draft")
        draft.write_text(json.dumps(self.whole))
        draft.replace(CACHE)

    def measure(self, files: Iterable[str], processes: int) -> None:
        """Run those of the test files that have changed, so many at a time. Tests that fail are named and left out.

        Raises:
            RuntimeError: If a file has no test that passes.
        """
        keys = {file: digest(Path(file).read_text()) for file in dict.fromkeys(files)}
        due = [file for file, key in keys.items() if self.cache.get(file, {}).get("key") != key]
        running: dict[int, str] = {}
        while due or running:
            while due and len(running) < processes:
                file = due.pop()
                running[forked(self._work(file), 3600)] = file
            child, _ = os.wait()
            file = running.pop(child)
            self.cache[file] = {"key": keys[file], "tests": self._passed(file)}
            self.kept()

    def _out(self, file: str) -> Path:
        return self.folder / f"{file.replace('/', '-')}.json"

    def _work(self, file: str) -> Callable[[], int]:
        def work() -> int:
            plugin = Timing()
            code = run_pytest([file], plugin, self._out(file).with_suffix(".log"), "--maxfail=999")
            self._out(file).write_text(json.dumps([plugin.tests, plugin.failed]))
            return code

        return work

    def _passed(self, file: str) -> list[dict[str, Any]]:
        tests, failed = json.loads(self._out(file).read_text()) if self._out(file).exists() else ([], [])
        passed = [test for test in tests if test["name"] not in failed]
        if not passed:
            said = "".join(self._out(file).with_suffix(".log").read_text().splitlines(keepends=True)[-12:])
            raise RuntimeError(f"{file} fails on the unchanged source:\n{said}")
        for name in failed:
            print(f"left out, since it fails on the unchanged source: {name}", flush=True)
        return passed

    def tests(self, files: Iterable[str]) -> list[Test]:
        """The tests of files that have been measured."""
        return [
            Test(each["name"], each["seconds"], frozenset(each["calls"]))
            for file in files
            for each in self.cache[file]["tests"]
        ]


def chosen(mutant: Mutant, tests: Sequence[Test]) -> list[Test]:
    """The tests that call a mutant's function, the quickest first; of code that runs on import, which no test calls,
    all tests of its module's files."""
    called = [test for test in tests if f"{mutant.module} {mutant.function}" in test.calls]
    if not called and runs_on_import(mutant):
        called = list(tests)
    kept, spent = [], 0.0
    for test in sorted(called, key=lambda test: test.seconds):
        spent += test.seconds
        if kept and spent > TESTS_SECONDS:
            break
        kept.append(test)
    return kept


def runs_on_import(mutant: Mutant) -> bool:
    """Whether a mutant's code belongs to a module or a class, and to no function."""
    nodes: list[ast.stmt] = ast.parse(mutant.source).body
    for name in filter(None, mutant.function.split(".")):
        found = [node for node in nodes if isinstance(node, ast.ClassDef) and node.name == name]
        if not found:
            return False
        nodes = found[-1].body
    return True


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
        baseline, running = Baseline(cache, Path(folder)), {}
        files = {mutant: files_of(mutant.module.removeprefix("fedtext/").removesuffix(".py")) for mutant in mutants}
        contents = {file: Path(file).read_text() for each in files.values() for file in each}
        keys = {m: digest(m.module, m.source, *(contents[file] for file in files[m])) for m in mutants}
        baseline.measure([file for mutant in mutants if keys[mutant] not in known for file in files[mutant]], processes)

        def wait() -> None:
            child, status = os.wait()
            mutant, key = running.pop(child)
            code = os.waitstatus_to_exitcode(status)
            known[key] = results[mutant] = SURVIVED if code in (0, 5) else TIMED_OUT if code < 0 else CAUGHT
            baseline.kept()
            said(mutant, results[mutant])

        for number, mutant in enumerate(mutants):
            key = keys[mutant]
            if key in known:
                results[mutant] = known[key]
                said(mutant, known[key])
                continue
            tests = chosen(mutant, baseline.tests(files[mutant]))
            if not tests:
                known[key] = results[mutant] = UNREACHED
                said(mutant, UNREACHED)
                continue
            log, names = Path(folder) / f"{number}.log", [test.name for test in tests]
            work = _work(mutant, names, log)
            child = forked(work, patience + 4 * sum(test.seconds for test in tests))
            running[child] = mutant, key
            while len(running) >= processes:
                wait()
        while running:
            wait()
    return results


def _work(mutant: Mutant, names: Sequence[str], log: Path) -> Callable[[], int]:
    def work() -> int:
        sys.meta_path.insert(0, Finder(mutant))
        return run_pytest(sorted({name.split("::")[0] for name in names}), Chosen(names), log)

    return work


def read_cache() -> dict[str, Any]:
    return json.loads(CACHE.read_text()) if CACHE.exists() else {}


def sampled(mutants: Sequence[Mutant], size: int, seed: int) -> Iterator[Mutant]:
    """So many of them, in their order, drawn by the digest of each: what is drawn of one module does not depend on the
    others' length."""
    seen: Counter[str] = Counter()
    ranks: list[tuple[str, int]] = []
    for number, mutant in enumerate(mutants):
        ranks.append((digest(str(seed), mutant.name, str(seen[mutant.name])), number))
        seen[mutant.name] += 1
    yield from (mutants[number] for _, number in sorted(sorted(ranks)[:size], key=lambda rank: rank[1]))
