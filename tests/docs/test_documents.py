"""What documents say of the code that can be looked up: files, anchors, commands, names of parts."""

import argparse
import json
import re
import shlex
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from platform.reproduce import parser  # type: ignore[import-not-found]
from tempfile import TemporaryDirectory
from typing import Any, get_args

import pytest

from docs import links
from fedtext.adversaries import ATTACKS
from fedtext.aggregations import AGGREGATIONS
from fedtext.api.run import load as load_experiment
from fedtext.audits import AUDITS
from fedtext.commands import COMMANDS
from fedtext.commands.parser import Refused
from fedtext.config.files import SPACES
from fedtext.config.noise import NoiseMechanism
from fedtext.corpora import CORPORA
from fedtext.errors import UserError
from fedtext.mechanisms import MECHANISMS
from fedtext.methods import METHODS
from fedtext.models import MODELS
from fedtext.schema import names_of
from tests import ROOT, tiny
from tests.loops import nonempty
from tune_spaces import papers

load = cache(papers.load)
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
DOCUMENTS = [path for path in DOCUMENTS if path.is_file()]
WRITTEN = [path for path in DOCUMENTS if path.parent.name != "reproductions" or path.name == "README.md"]
documents = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


@cache
def options(module: str) -> dict[str, argparse.Action]:
    """Return the options of a command by their names."""
    return {name: action for action in import_module(module).parser()._actions for name in action.option_strings}


def matches(paths: list[Path], pattern: str) -> list[tuple[Path, Any]]:
    """What a pattern finds in documents, each match once a document."""
    return [(path, found) for path in paths for found in sorted(set(re.findall(pattern, path.read_text(), re.M)))]


def test_every_link_leads_somewhere() -> None:
    every = [(path, target) for path in DOCUMENTS for target in links.targets(path.read_text())]
    for path, target in nonempty(every):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        linked = path.parent / file.replace("\\", "") if file else path
        assert linked.exists(), (path, target)
        assert not anchor or anchor in links.anchors(linked.read_text()), (path, target)


def test_files_that_are_named_are_there() -> None:
    """In code: ``fedtext/models/cells.py``, ``tests/actors/test_fleet.py``."""
    folders = "actors|benchmarks|cluster|dashboards|docs|fedtext|platform|sweeps|tests|tune_spaces"
    for path, name in nonempty(matches(WRITTEN, rf"`((?:{folders})/[\w/]+\.(?:py|yaml|json))`")):
        assert (ROOT / name).is_file(), (path, name)


def test_commands_are_of_modules_that_exist() -> None:
    for path, name in nonempty(matches(WRITTEN, r"python -m (?!platform\.COMMAND)([\w.]+)")):
        assert (ROOT / f"{name.replace('.', '/')}.py").is_file() or find_spec(name), (path, name)


def test_options_of_commands_are_there() -> None:
    """An option that a command has, and does not refuse, in each line that gives it one."""
    pattern = rf"(?:platform\.|fedtext )({'|'.join(COMMANDS)})\b((?:[^\n`#|]|\\\n)*)"
    for path, (name, rest) in nonempty(matches(WRITTEN, pattern)):
        library = "fedtext.commands.local" if "--no-ray" in rest else COMMANDS[name].library
        actions = options(library or f"platform.{name}")
        line = re.split(r"\s{2,}", re.sub(r"\\\n\s*", " ", rest).strip())[0]  # what follows explains it
        given = re.findall(r"(?<!\S)--[a-z][\w-]*", line)
        unknown = [option for option in given if option not in actions or isinstance(actions[option], Refused)]
        assert unknown == [], (path, name)


def test_commands_are_on_experiments_that_exist() -> None:
    commands = r"(?:platform\.|fedtext )(?:run|sweep|corpora|doctor)|python -m fedtext"
    others = [path for path in WRITTEN if path.parent.name != "tutorial"]  # its experiments are in its pages
    for path, name in nonempty(matches(others, rf"(?:{commands})\s+(\w+\.yaml)")):
        assert (SPACES / name).is_file(), (path, name)


def test_experiments_of_commands_can_be_run() -> None:
    """Each documented run and sweep with its overrides: keys exist, and go with each other."""
    others = [path for path in WRITTEN if path.parent.name != "tutorial" and path.name != "CHANGELOG.md"]
    texts = [(path, re.sub(r"\\\n\s*", "", path.read_text())) for path in others]
    spans = (
        r"`(?:\w+=\S+ )*(?:fedtext (?:run|sweep)|python -m (?:platform\.(?:run|sweep)|fedtext)) ([^`]*?\.yaml[^`]*)`"
    )
    lines = (
        r"^ {4,}(?:fedtext (?:run|sweep)|python -m (?:platform\.(?:run|sweep)|fedtext)) (.*?\.yaml.*?)(?:\s{2,}|\s+#|$)"
    )
    found = [(path, line) for path, text in texts for line in re.findall(spans, text) + re.findall(lines, text, re.M)]
    tried = 0
    for path, line in nonempty(found):
        if line.count("'") % 2 or line.count('"') % 2 or "..." in line:
            continue  # goes on in the next line, or leaves something out
        words = shlex.split(line)
        (name,) = (word for word in words if word.endswith(".yaml"))
        if not (SPACES / name).is_file():
            continue
        keys = [word for word in words if re.match(r"[a-z][\w.]*=(?![A-Z]$)", word) and "--plugin" not in words]
        try:
            load_experiment(name, *keys)
        except UserError as error:
            raise AssertionError(f"{path}: {line}: {error}") from error
        tried += 1
    assert tried > 60


def test_targets_of_make_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for path, target in nonempty(matches(WRITTEN, r"(?:^    |`)make ([a-z][\w-]*)")):
        assert re.search(rf"^{target}:", makefile, re.M), (path, target)


@documents
def test_reproductions_that_are_quoted_can_be_asked_for(path: Path) -> None:
    """The whole line is read as the command would, and its tables and rows are looked up."""
    text = re.sub(r"\\\n\s*", "", path.read_text()).replace("fedtext reproduce", "python -m platform.reproduce")
    spans = re.findall(r"`python -m (platform\.reproduce (?!PAPER|--render)[^`]*)`", text)
    lines = [*spans, *re.findall(r"^    python -m (platform\.reproduce .*?)(?:\s{2,}|\s+#|$)", text, re.M)]
    assert lines or path.parent.name != "reproductions" or path.name == "README.md"
    for line in lines:
        words = parser().parse_args(shlex.split(line)[1:])
        paper = load(words.paper)
        scene = words.scene or papers.first_scene(paper, words.tables)
        papers.tables(paper, words.tables, scene, words.methods, words.rows)
        papers.changes(words.set)


@pytest.mark.parametrize("paper", [file.stem for file in sorted(papers.PAPERS.glob("*.yaml"))])
def test_means_that_a_reproduction_quotes_are_in_its_tables(paper: str) -> None:
    """Also differences; those between two tables aside."""
    between = {"kteps": {"3.3 ± 0.5", "1.2 ± 0.3"}}.get(paper, set())
    folder = ROOT / "docs/reproductions"
    tables = " ".join(file.read_text() for file in nonempty(list(folder.glob(f"tables/{paper}-*.md"))))
    found = re.findall(r"[\d.]+\s±\s[\d.]*\d", (folder / f"{paper}.md").read_text())
    quoted = {" ".join(text.split()) for text in found} - between
    for text in nonempty(quoted):
        assert re.search(rf"(?<![\d.]){re.escape(text)}(?!\d)", tables), text


def test_the_list_of_features_names_every_part() -> None:
    rows = dict(re.findall(r"^\| (\w+) \| (.*) \|$", (ROOT / "docs/reference/features.md").read_text(), re.M))
    parts = {
        "methods": METHODS,
        "models": MODELS,
        "mechanisms": MECHANISMS,
        "aggregations": AGGREGATIONS,
        "noise": [name for each in get_args(NoiseMechanism) for name in names_of(each)],
        "audits": AUDITS,
        "adversaries": ATTACKS,
        "corpora": CORPORA,
    }
    for row, names in nonempty(list(parts.items())):
        assert set(names) <= set(re.findall(r"`(\w+)`", rows[row])), row


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/run-and-sweep.md"])
def test_a_page_names_every_experiment(page: str) -> None:
    text = (ROOT / page).read_text()
    assert not [file.name for file in SPACES.glob("*.yaml") if f"`{file.name}`" not in text]


def test_the_readme_is_short_and_its_python_runs() -> None:
    """The run, and the method in one objective: 2 texts whose output layer is where it was, and 0.5 away."""
    text = (ROOT / "README.md").read_text()
    assert text.count("\n") <= 120
    cell, method = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    short = cell.replace("training.rounds=8", "training.rounds=1").replace('"my-model"', 'folder / "my-model"')
    with TemporaryDirectory() as folder:
        exec(short, {"folder": Path(folder)})
        assert (Path(folder) / "my-model" / "model.json").is_file()
    plugin = (ROOT / "docs/tutorial/near_head.py").read_text()
    assert method in plugin
    names: dict[str, Any] = {"__name__": "near_head"}
    exec(plugin, names)
    near = names["NearHead"](mu=0.5)
    model, batch = tiny.model_and_batch(METHODS["fedavg"](), texts=2)
    received = {name: tensor.detach() + 0.5 * name.startswith("head.") for name, tensor in model.parameters.items()}
    terms = near.loss(model, received, batch)
    size = sum(tensor.numel() for name, tensor in model.parameters.items() if name.startswith("head."))
    assert terms["near"].item() == pytest.approx(0.25 * size)
    assert near.objective(terms).item() == pytest.approx(terms["ce"].item() + 0.5 * 0.25 * size)


def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """From a CSV to a comparison of three methods, with a plug-in among them. Its output is what it prints."""
    notebook = json.loads((ROOT / "docs/tutorial/comparison.ipynb").read_text())
    (cell,) = (cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    monkeypatch.chdir(ROOT / "docs/tutorial")
    pytest.importorskip("pandas")
    exec("".join(cell["source"]), {"__name__": "notebook"})
    shown = "".join(line for output in cell["outputs"] for line in output["text"])
    rows = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert rows == [line.split()[0] for line in shown.splitlines()]
    assert {"local_only", "fedavg", "near_head"} <= set(rows)
