"""Inputs by their numbers, tried one after the other."""

import os
import random
import resource
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fuzz import corpora, experiments, published, runs
from tests.fuzz.rule import Verdict, judged

MEMORY = 12 << 30  # bytes of addresses: more is an error, and not the end of the machine
Tried = tuple[str, str, Verdict]  # kind, input, verdict


@contextmanager
def confined(folder: Path) -> Iterator[Path]:
    """Let the commands write below a folder, with limited memory and without a network. Yields their home."""
    home, before, limits = folder / "home", dict(os.environ), resource.getrlimit(resource.RLIMIT_AS)
    home.mkdir()
    os.environ |= {"FEDTEXT_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, limits[1]))
    try:
        yield home
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        os.environ.clear()
        os.environ |= before


def experiments_tried(seeds: Iterable[int], home: Path) -> Iterator[Tried]:
    """Try experiments."""
    for seed in seeds:
        given = experiments.drawn(random.Random(f"experiment {seed}"))
        yield f"experiment {seed}", str(given), judged(lambda given=given: experiments.use(given, home), home)


def corpora_tried(seeds: Iterable[int], home: Path) -> Iterator[Tried]:
    """Try corpora."""
    for seed in seeds:
        section = corpora.write(home.parent / "corpus", random.Random(f"corpus {seed}"))
        yield f"corpus {seed}", repr(section)[:1000], judged(lambda section=section: corpora.use(section, home), home)


def published_tried(seeds: Iterable[int], home: Path) -> Iterator[Tried]:
    """Try the files of published corpora."""
    data = home.parent / "published"
    for seed in seeds:
        section = published.write(data, random.Random(f"published {seed}"))
        verdict = judged(lambda section=section: published.use(section, data), home)
        yield f"published {seed}", repr(section)[:1000], verdict


def runs_tried(seeds: Iterable[int], home: Path) -> Iterator[Tried]:
    """Try the folders of runs, each with every command."""
    kept = runs.make(home.parent / "kept" / "runs")
    for seed in seeds:
        for name, (use, files) in runs.USES.items():
            shutil.rmtree(home / "runs", ignore_errors=True)
            shutil.copytree(kept.parent, home / "runs")
            broken = runs.break_(home / "runs" / runs.NAME, files, random.Random(f"run {seed} {name}"))
            yield f"run {seed}, {name}", broken, judged(lambda use=use: use(home), home, failed=True)
    shutil.rmtree(home / "runs", ignore_errors=True)


KINDS: dict[str, Callable[[Iterable[int], Path], Iterator[Tried]]] = {
    "experiments": experiments_tried,
    "corpora": corpora_tried,
    "published": published_tried,
    "runs": runs_tried,
}
