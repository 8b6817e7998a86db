"""Hooks of mkdocs: files of the repository that pages link to, and the notebook, become pages of the site.

Documents keep relative links that also work on a forge and in an editor. What lies outside ``docs/`` (an experiment, a
source file, the CHANGELOG) is shown at ``repository/PATH`` in the site, so that it is complete without a network.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs.generate import index, messages
from docs.links import escape_tokens, replace_targets, targets, toc_slug

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
GENERATED: dict[str, str] = {}  # pages of this build that have no file in docs/
SHOWN = {
    ".py": "python",
    ".yaml": "yaml",
    ".json": "json",
    ".toml": "toml",
    ".c": "c",
    ".h": "c",
    ".txt": "text",
    ".sbatch": "bash",
    ".yml": "yaml",
    ".sh": "bash",
    ".rules": "yaml",
    "": "text",
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Give headings the anchors that a forge gives them."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = toc_slug
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add pages for the notebook, for messages of errors, and for what documents link to outside of ``docs/``."""
    GENERATED.clear()
    GENERATED["reference/messages.md"] = messages.page()
    for notebook in sorted(DOCS.rglob("*.ipynb")):
        GENERATED[notebook.relative_to(DOCS).with_suffix(".md").as_posix()] = from_notebook(notebook)
    for name, text in GENERATED.items():
        files.append(File.generated(config, name, content=text))
    waiting = [DOCS / file.src_uri for file in files.documentation_pages() if (DOCS / file.src_uri).is_file()]
    seen = set(waiting)
    while waiting:
        for path in linked(waiting.pop()):
            if path not in seen and (path.is_dir() or path.suffix in SHOWN or path.suffix == ".md"):
                seen.add(path)
                if DOCS not in path.parents or path.suffix != ".md":
                    files.append(File.generated(config, page_of(path), content=as_page(path)))
                    waiting += [path] if path.suffix == ".md" else []
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to the pages that stand for files, and show special tokens.

    Args:
        markdown: Text of the page.
        page: The page.
        config: The configuration of mkdocs.
        files: All files of the site.
    """
    uri = page.file.src_uri
    source = ROOT / uri.removeprefix("repository/") if uri.startswith("repository/") else DOCS / uri

    def new(target: str) -> str:
        file, hash_, anchor = target.partition("#")
        if not file or "://" in target or target.startswith("mailto:"):
            return target
        return os.path.relpath(page_of(_resolved(source, file)), os.path.dirname(uri) or ".") + hash_ + anchor

    return escape_tokens(replace_targets(markdown, new))


def on_post_build(config: MkDocsConfig) -> None:
    """Write llms.txt, and put the Markdown of each page, to which it links, beside the page."""
    assert config.nav is not None
    assert config.site_description is not None
    texts = {path.relative_to(DOCS).as_posix(): path.read_text() for path in sorted(DOCS.rglob("*.md"))} | GENERATED
    texts |= {f"repository/{name}": (ROOT / name).read_text() for name in ("CHANGELOG.md", "CONTRIBUTING.md")}
    for name, text in texts.items():
        copy = Path(config.site_dir) / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text)
    (Path(config.site_dir) / "llms.txt").write_text(index.llms(config.nav, config.site_description, texts))


def page_of(path: Path) -> str:
    """Return the page that shows a file or folder, relative to the site's root."""
    if DOCS in path.parents and path.suffix not in (".py", ".yaml") and not path.is_dir():
        shown = path.with_suffix(".md") if path.suffix == ".ipynb" else path
        return shown.relative_to(DOCS).as_posix()
    name = f"repository/{path.relative_to(ROOT).as_posix()}"
    if path.is_dir():
        return f"{name}/README.md"
    return name if path.suffix in (".md", ".png") else f"{name}.md"


def as_page(path: Path) -> str:
    """Return the page of a file or folder of the repository: Markdown, code, or a list of files."""
    if path.suffix == ".md":
        return path.read_text()
    title = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        readme = path / "README.md"
        if readme.is_file():
            return readme.read_text()
        names = sorted(file.name for file in path.iterdir() if file.suffix in (".md", ".py", ".yaml"))
        listed = (f"- [{name}]({name})" if name.endswith(".md") else f"- `{name}`" for name in names)
        return f"# {title}/\n\n" + "\n".join(listed) + "\n"
    return f"# {title}\n\n````{SHOWN[path.suffix]}\n{path.read_text()}\n````\n"


def linked(path: Path) -> Iterator[Path]:
    """Yield the files and folders of the repository that a document links to."""
    for target in targets(path.read_text()):
        file = target.partition("#")[0]
        if file and "://" not in target:
            yield _resolved(path, file)


def from_notebook(path: Path) -> str:
    """Return a notebook as Markdown: its texts, its code, and what the code printed."""
    parts = []
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        printed = "".join(line for output in cell.get("outputs", ()) for line in output.get("text", ()))
        parts += [f"```text\n{printed}```"] if printed else []
    parts.append(f"The notebook is `docs/{path.relative_to(DOCS)}`.")
    return "\n\n".join(parts)


def _resolved(document: Path, target: str) -> Path:
    return Path(os.path.normpath(document.parent / target.replace("\\", "")))
