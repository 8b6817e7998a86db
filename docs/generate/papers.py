"""Parts of the pages of papers that follow from ``tune_spaces/papers``: how runs depart from the paper."""

from docs.generate.markdown import DOCS, prose
from tune_spaces import papers

BEGIN, END = "<!-- departures: written by python -m docs -->", "<!-- end of departures -->"


def pages() -> dict[str, str]:
    """Return the pages of papers, their departures written anew, by path in ``docs/``."""
    made = {}
    for name in sorted(file.stem for file in papers.PAPERS.glob("*.yaml")):
        path = f"papers/{name}.md"
        text = (DOCS / path).read_text()
        before, after = text.partition(BEGIN)[0], text.partition(END)[2]
        made[path] = f"{before}{BEGIN}\n\n{_departures(name)}\n\n{END}{after}"
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
