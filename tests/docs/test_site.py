"""The site: it builds without a warning, needs no network, and each of its links and anchors leads somewhere."""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from docs.links import targets
from tests import ROOT
from tests.loops import nonempty

pytestmark = pytest.mark.slow
ELEMENTS = (
    "a article b blockquote body br button code dd details div dl dt em footer form h1 h2 h3 h4 head header hr html "
    "img input kbd label li link main meta nav ol p path pre script small span strong summary sup svg table tbody td "
    "th thead title tr ul"
)
LOADED = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src")}


@dataclass
class Html(HTMLParser):
    """The elements, the anchors, the links and the loaded files of a page."""

    elements: set[str] = field(default_factory=set)
    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.elements.add(tag)
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        self.links += [given["href"]] if tag == "a" and "href" in given else []
        self.loaded += [given[name] for kind, name in LOADED if tag == kind and name in given]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: make docs installs it")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Html]:
    made = {}
    for file in site.rglob("*.html"):
        made[file] = Html()
        made[file].feed(file.read_text())
    return made


def test_each_link_and_anchor_leads_somewhere(site: Path, pages: dict[Path, Html]) -> None:
    every = [(file, target) for file, page in pages.items() if file.name != "404.html" for target in page.links]
    for file, target in nonempty(every):
        parts = urlsplit(target)
        if parts.scheme:
            continue
        linked = (file.parent / unquote(parts.path)).resolve() if parts.path else file
        linked = linked / "index.html" if linked.is_dir() else linked
        assert linked.is_file(), (file.relative_to(site), target)
        if parts.fragment and linked in pages:
            assert unquote(parts.fragment) in pages[linked].anchors, (file.relative_to(site), target)


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Html]) -> None:
    for file, page in nonempty(pages.items()):
        assert not [target for target in page.loaded if urlsplit(target).netloc], file.relative_to(site)


def test_pages_have_no_elements_but_those_of_html(site: Path, pages: dict[Path, Html]) -> None:
    """What stands in angle brackets, such as a special token, would not be shown."""
    known = set(ELEMENTS.split())
    for file, page in nonempty(pages.items()):
        assert page.elements <= known, (file.relative_to(site), page.elements - known)


def test_the_search_works_in_pages_that_are_opened_as_files(site: Path, pages: dict[Path, Html]) -> None:
    """Its index is a script there, and a frame is its worker: browsers neither fetch nor start one from a file."""
    assert (site / "search" / "search_index.js").read_text().startswith("var __index = {")
    for file, page in nonempty(pages.items()):
        assert any(target.endswith("assets/iframe-worker.js") for target in page.loaded), file.relative_to(site)
    assert (site / "assets" / "iframe-worker.js").is_file()


def test_each_document_has_its_page_and_its_markdown(site: Path) -> None:
    documents = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    for path in nonempty(documents):
        page = path.with_name("index.html") if path.name == "README.md" else path.with_suffix(".html")
        assert (site / page).is_file(), path
        assert (site / path).read_text() == (ROOT / "docs" / path).read_text()


def test_llms_txt_leads_to_the_markdown_of_each_page_of_the_navigation(site: Path) -> None:
    linked = targets((site / "llms.txt").read_text())
    assert {"README.md", "tutorial/comparison.md", "reference/messages.md", "repository/CHANGELOG.md"} <= set(linked)
    for path in nonempty(linked):
        assert (site / path).is_file(), path
