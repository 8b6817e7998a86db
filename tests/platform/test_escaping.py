"""Names, labels, texts, keys and errors that are HTML, scripts or Markdown: reports and artifacts show them as text."""

import csv
import io
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt
from mlflow import MlflowClient

from tests.commands import command, runs, write
from tests.loops import nonempty

ELEMENT = "x-evil"
# Ends whatever it could stand in: an attribute, an element of raw text, code, a comment, a cell, a line.
EVIL = (
    f"'\"></title></style></script></textarea></code></pre></svg>--><{ELEMENT} onload=evil()><script>evil()</script>"
    "<img src=x onerror=evil()> ![evil](http://evil.example/a.png) [evil](javascript:evil()) `<b>evil</b>` | **evil** "
    "$\\evil$ {{evil}} &lt;script&gt;"
)
CLIENTS = [f"shop {EVIL}", f"=evil() {EVIL}", f"line\n\n# evil\n\n<{ELEMENT}>\n\n    evil {EVIL}"]
LABELS = [f"good {EVIL}", f"bad\n\n<{ELEMENT}> {EVIL}"]
PLUGIN = f"""
from typing import Literal
from fedtext.methods.fedavg import FedAvg

class Failing(FedAvg):
    \"\"\"FedAvg whose clients fail.\"\"\"

    name: Literal["failing"] = "failing"

    def loss(self, model, received, batch):
        raise ValueError({EVIL!r})
"""


class Parsed(HTMLParser):
    """The elements of a page, their attributes, and its text."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(content)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def strange(self) -> list[tuple[str, dict[str, str | None]]]:
        """The elements that no page or note of ours has: such a name, a handler, an address elsewhere."""
        return [
            (tag, attributes)
            for tag, attributes in self.elements
            if tag in (ELEMENT, "img", "iframe", "object", "b")
            or any(name.startswith("on") for name in attributes)
            or any("evil" in (attributes.get(name) or "") for name in ("href", "src", "style", "action"))
        ]


def rendered(text: str) -> Parsed:
    """A note or a file in Markdown, as a page shows it: HTML in it is HTML."""
    return Parsed(MarkdownIt("commonmark", {"html": True}).enable("table").render(text))


def corpus(file: Path) -> None:
    """A table of these clients and labels, with texts of the same."""
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["text", "label", "client", "split"])
        for client in CLIENTS:
            for number in range(24):
                split = "train" if number < 16 else "validation" if number < 20 else "test"
                words = ["fine kettle", "dull plot"][number % 2]
                writer.writerow([f"{words} {number} {EVIL}", LABELS[number % 2], client, split])


@pytest.fixture
def swept(tmp_path: Path) -> Path:
    """The folder of a sweep, one of whose cases fails, with a key that is swept over such names."""
    (tmp_path / "failing.py").write_text(PLUGIN)
    names = [tmp_path / f"{stem}<{ELEMENT}>`evil` [evil](javascript:evil()).csv" for stem in ("one", "two")]
    for name in names:
        corpus(name)
    inversion = {"gradient_inversion": {"steps": 2, "swaps": 2}}
    file = write(
        tmp_path,
        plugins=["failing.py"],
        corpus={"name": "table", "path": str(names[0]), "client": "client", "validation": 0.5},
        method="fedavg",
        audits=["membership", inversion, {"word_relations": {"words": ["kettle", "plot"], "top": 2}}],
        training={"rounds": 2, "local_epochs": 1, "batch_size": 8, "optimizer": {"name": "sgd", "lr": 0.1}},
        baselines=["failing"],
        space={"corpus.path": {"grid": [[str(name)] for name in names]}},
        tracking={"experiment": f"an experiment <{ELEMENT}> [evil](javascript:evil())", "register": "best"},
    )
    done = command(tmp_path, "sweep", str(file), "--name", "spoilt", f"storage={tmp_path}/`evil`<{ELEMENT}>")
    assert done.returncode == 1, done.stderr
    assert "recording failed" not in done.stderr, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    return tmp_path / f"`evil`<{ELEMENT}>" / "spoilt"


def artifacts(home: Path) -> Iterator[Path]:
    return (path for path in (home / "mlartifacts").rglob("*") if path.is_file())


@pytest.mark.ray
@pytest.mark.slow
def test_reports_and_artifacts_show_markup_as_text(swept: Path, tmp_path: Path) -> None:
    of_runs = runs(tmp_path, f"an experiment <{ELEMENT}> [evil](javascript:evil())")
    there = [path for path in (*swept.rglob("*"), *artifacts(tmp_path)) if path.is_file()]
    written = {path: path.read_text() for path in there if path.suffix in (".html", ".md", ".svg", ".csv")}
    (page, *others) = [Parsed(text) for path, text in written.items() if path.suffix == ".html"]
    assert len(others) == 1, "the page, and the same among the artifacts"
    for one in (page, *others):
        assert not one.strange()
        assert [tag for tag, _ in one.elements].count("script") == 1
        assert "onload=evil()" in "".join(one.texts), "it is there as text"
    notes = {path: rendered(text) for path, text in written.items() if path.suffix == ".md"}
    assert {path.name for path in notes} >= {
        "results.md",
        "membership.md",
        "gradient_inversion.md",
        "word_relations.md",
    }
    for path, note in nonempty(notes.items()):
        assert not note.strange(), path
        assert not [tag for tag, _ in note.elements if tag in ("a", "script")], path
    assert [note for note in notes.values() if "onload=evil()" in "".join(note.texts)]
    for text in nonempty(text for path, text in written.items() if path.suffix == ".svg"):
        elements = list(ElementTree.fromstring(text).iter())
        assert not {one.tag.rpartition("}")[2] for one in elements} & {
            ELEMENT,
            "script",
            "a",
            "foreignObject",
            "b",
            "img",
        }
        links = [value for one in elements for name, value in one.items() if name.endswith("href")]
        assert not [link for link in links if not link.startswith(("#", "data:image/png"))]
    for text in nonempty(text for path, text in written.items() if path.suffix == ".csv" and "tables" in path.parts):
        cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
        assert not [cell for cell in cells if cell.startswith(("=", "@", "+"))]

    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    described = [run.data.tags["mlflow.note.content"] for run in of_runs]
    described += [client.get_experiment(of_runs[0].info.experiment_id).tags["mlflow.note.content"]]
    described += [one.description for one in client.search_model_versions("name = 'best'")]
    for one in map(rendered, nonempty(described)):
        assert not one.strange()
        assert not [tag for tag, _ in one.elements if tag in ("a", "script")]
    assert [one for one in described if f"<{ELEMENT}>" in "".join(rendered(one).texts)], "one has such a name"
    (failed,) = (run for run in of_runs if run.info.status == "FAILED" and "error" in run.data.tags)
    assert EVIL in failed.data.tags["error"]


def test_the_parsers_see_what_is_not_escaped() -> None:
    assert {tag for tag, _ in Parsed(f'<p title="{EVIL}">').strange()} == {ELEMENT, "img", "b"}
    found = rendered(f"a name {EVIL}")
    assert {tag for tag, _ in found.strange()} >= {ELEMENT, "img"}
    assert rendered("**bold** [evil](http://evil.example)").strange() == [("a", {"href": "http://evil.example"})]
    assert re.search("evil", EVIL)
