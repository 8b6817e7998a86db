"""Parts of the pages of papers that follow from ``tune_spaces/papers``: how runs depart from the paper."""

from docs.generate.markdown import DOCS, prose, written
from tune_spaces import papers


def pages() -> dict[str, str]:
    """Return the pages of papers, their departures written anew, by path in ``docs/``."""
    made = {}
    for name in sorted(file.stem for file in papers.PAPERS.glob("*.yaml")):
        path = f"papers/{name}.md"
        made[path] = written((DOCS / path).read_text(), "departures", _departures(name))
    return made


def _departures(name: str) -> str:
    paper = papers.load(name)
    listed: dict[str, list[str]] = {}
    for scene, sentences in paper.departures.items():
        for sentence in sentences:
            listed.setdefault(sentence, []).append(scene)
    lines = []
    for sentence, scenes in listed.items():
        where = "" if len(scenes) == len(paper.departures) else f"{', '.join(scenes)}: "
        lines.append(f"- {where}{prose(' '.join(sentence.split()))}")
    return "\n".join(lines)
