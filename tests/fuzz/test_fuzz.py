"""Malformed experiments, corpora and folders of runs end in success or in one clear sentence and exit status 2."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import yaml

from fedtext.corpora import CORPORA
from fedtext.errors import UserError
from tests.commands import EXPERIMENT, Forked
from tests.fuzz import corpora, experiments, published
from tests.fuzz.rule import ACCEPTED, REFUSED, Verdict, judged
from tests.fuzz.tried import KINDS, confined
from tests.fuzz.values import BOMB
from tests.loops import nonempty

SOME = {"experiments": 150, "corpora": 50, "published": 50, "runs": 6}
MANY = {"experiments": 2000, "corpora": 300, "published": 300, "runs": 60}


def _verdicts(kind: str, seeds: Iterable[int], folder: Path) -> Iterator[tuple[str, str, Verdict]]:
    folder.mkdir(exist_ok=True)
    with confined(folder) as home, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield from KINDS[kind](seeds, home)


def tried(kind: str, count: int, folder: Path) -> None:
    statuses: Counter[int | None] = Counter()
    for name, text, verdict in nonempty(_verdicts(kind, range(count), folder)):
        assert not verdict.violation, f"{name} {verdict.violation}: {text}\n{verdict.said}"
        statuses[verdict.status] += 1
    assert statuses[ACCEPTED] > count // 20, "mutations leave some inputs valid"
    assert statuses[REFUSED] > count // 4, "and most not"


@pytest.mark.parametrize("kind", KINDS)
def test_some_inputs_end_in_success_or_in_a_sentence(kind: str, tmp_path: Path) -> None:
    tried(kind, SOME[kind], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_inputs_end_in_success_or_in_a_sentence(kind: str, tmp_path: Path) -> None:
    tried(kind, MANY[kind], tmp_path)


# What once took minutes, all memory, or the texts of every seed, before it was refused.
FOUND = {
    "distributed.yaml": "participation.min_clients=1000000000.0",
    "dpftrl.yaml": "participation.separation=1000000000000000000",
    "adversaries.yaml": "corpus.train=12000",  # three seeds, and an aggregation that needs more clients
}


@pytest.mark.parametrize(("file", "override"), FOUND.items(), ids=list(FOUND))
def test_inputs_that_once_broke_the_rule_are_refused(file: str, override: str, tmp_path: Path) -> None:
    with confined(tmp_path) as home, pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        given = experiments.of_file(file, override)
        verdict = judged(lambda: experiments.use(given, home), home)
    assert not verdict.violation, f"{verdict.violation}: {given}\n{verdict.said}"
    assert verdict.status == REFUSED


def test_inputs_are_drawn_from_their_numbers(tmp_path: Path) -> None:
    drawn = [[experiments.drawn(random.Random(seed)) for seed in range(50)] for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert len({given.text for given in drawn[0]}) > 40
    written = []
    for name in ("one", "one"):
        corpora.write(tmp_path / name, random.Random(3))
        written.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir() if path.is_file()})
    assert written[0] == written[1]


@pytest.mark.parametrize("name", published.MADE)
def test_a_published_corpus_is_accepted_before_it_is_mutated(name: str, tmp_path: Path) -> None:
    """Else its mutations would be refused for something else."""
    for seed in range(4):
        files, data = published.MADE[name](random.Random(seed)), tmp_path / str(seed)
        data.mkdir()
        for file, content in files.items():
            (data / file).write_bytes(content)
        published.use({"name": name} | published.options(name, files, data), data)


def test_the_corpora_are_all_that_are_read_from_files() -> None:
    assert set(published.MADE) == set(CORPORA) - {"demo", "forum", "instructions", "table"}


def test_the_rule_notices_what_breaks_it(tmp_path: Path) -> None:
    def refuse(message: str, leave: str = "") -> None:
        if leave:
            (tmp_path / leave).write_text("half")
        raise UserError(message)

    def of(message: str, leave: str = "") -> str:
        return judged(lambda: refuse(message, leave), tmp_path).violation

    assert of("the file a.yaml is empty: write an experiment") == ""
    assert of("no") == "has no sentence"
    assert of("Traceback (most recent call last)") == "shows a traceback"
    assert of("the file a.yaml is empty: write an experiment", "half.json") == "changes files"
    assert judged(lambda: [][0], tmp_path).violation.startswith("raises IndexError")
    assert judged(lambda: None, tmp_path).status == ACCEPTED
    late = Verdict(REFUSED, "error: a sentence", "", 6.0)
    assert (late.broken(7.0), late.broken(5.0)) == ("", "is refused after 6 s of CPU")
    assert Verdict(REFUSED, "", "has no sentence", 6.0).broken(5.0) == "has no sentence"


@pytest.mark.parametrize(
    "text",
    [
        f"name: [{BOMB}]\n",
        "name: &r [*r]\n",
        "[" * 20_000,
        "name: !!python/object/apply:os.system [true]\n",
        yaml.safe_dump(EXPERIMENT | {"training": {"rounds": 10**9}}),
        yaml.safe_dump(EXPERIMENT | {"space": {f"method.lambda{n}": {"grid": [0.5] * 10**4} for n in (1, 2)}}),
        yaml.safe_dump(EXPERIMENT | {"model": {"hidden": 10**9}}),
        yaml.safe_dump(EXPERIMENT | {"corpus": {"name": "demo", "clients": 10**9}}),
    ],
    ids=["bomb", "recursion", "depth", "tag", "rounds", "grid", "width", "clients"],
)
def test_a_command_ends_with_a_sentence(text: str, tmp_path: Path) -> None:
    file = tmp_path / "given.yaml"
    file.write_text(text)
    done = Forked(tmp_path, "sweep", str(file)).wait(60)
    assert done.returncode == REFUSED
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: ")
    assert [path.name for path in tmp_path.iterdir()] == ["given.yaml"]
