"""The tutorial's commands: run them as a reader would, compare what they print with the pages, or write it there anew.

``python -m docs.generate.tutorial FOLDER`` runs every step in FOLDER, in order, and the plan of the how-to, and writes
what commands print into the pages. A line ``...`` in a page stands for lines that are left out.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from docs.generate.markdown import DOCS, ROOT

STEPS = sorted((DOCS / "tutorial").glob("[0-9]-*.md"))
PAGES = [*STEPS, DOCS / "how-to" / "plan-without-running.md"]  # written by the command above
_BLOCK = re.compile(r'^```(?P<kind>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$', re.M | re.S)
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[+-]\d+)?(?![\w])")
# Output that depends on the machine's speed, its folders and its ports.
_MACHINE = re.compile(
    r"seconds [\d.e+-]+|± [\d.]+|\d+ min \d+ s|[\d.]+ m?s\b(?:/round)?|sqlite:\S+|/\S+/runs|2 of \d+ CPUs"
    r"|with \d+ client actors?"
)
_SECONDS = re.compile(r"\b[\d.]+(?=\s+\d+/\d+  \w)")  # in the table of a sweep, before its rounds
_RANK = re.compile(r"^(\| )?\d+ (?=[ |])")  # of a trial
APART = 12.0  # points by which a percentage may differ on another processor
RELATIVE = 0.3  # of other numbers
ABSOLUTE = 0.1  # of those below 1, such as a loss close to zero


@dataclass(frozen=True)
class Block:
    """A block of code of a page: a file to write, or a command with the lines that the page shows of its output.

    Attributes:
        title: Name of the file; empty for a command.
        command: The command; empty for a file.
        text: The file's content, or the output.
        begin, end: Where the text lies in the page.
    """

    title: str
    command: str
    text: str
    begin: int
    end: int


def blocks(page: Path) -> Iterator[Block]:
    """Yield the files and commands of a step, in order."""
    for match in _BLOCK.finditer(page.read_text()):
        if match["title"]:
            yield Block(match["title"], "", match["text"], match.start("text"), match.end("text"))
        elif match["kind"] == "console":
            first = re.match(r"\$ (.*?[^\\])\n", match["text"], re.S)
            assert first, f"{page}: a console block begins with $ and a command"
            begin = match.start("text") + first.end()
            command = re.sub(r"\\\n(?:> )?\s*", "", first[1])
            yield Block("", command, match["text"][first.end() :], begin, match.end("text"))


def run(block: Block, folder: Path) -> list[str]:
    """Write a file, or run a command in the folder, and return the lines that it printed.

    Raises:
        RuntimeError: The command failed.
    """
    if block.title:
        (folder / block.title).write_text(block.text)
        return []
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"}
    unset = "MLFLOW_TRACKING_URI", "FEDTEXT_DATA", "FEDTEXT_HOME"  # a reader's files are in the folder
    env = {name: value for name, value in env.items() if name not in unset}
    command = re.sub(r"^make sweep\b", "fedtext sweep demo.yaml", block.command)  # without the environment's set-up
    done = subprocess.run(command, shell=True, cwd=folder, env=env, text=True, stdout=-1, stderr=subprocess.STDOUT)
    if done.returncode:
        raise RuntimeError(f"{block.command} ended with status {done.returncode}:\n{done.stdout}")
    return [line.rstrip() for line in done.stdout.splitlines()]


def missing(shown: str, printed: list[str]) -> list[str]:
    """Return the lines of a page that a command did not print. Trials may stand in another order.

    Numbers that depend on the processor may differ a little, and what depends on its speed does not count.

    Args:
        shown: The output on the page.
        printed: What the command printed.
    """
    left, unread = [], list(printed)
    for line in shown.splitlines():
        if line.strip() in ("...", ""):
            continue
        found = next((other for other in unread if alike(line, other)), None)
        if found is None:
            left.append(line)
        else:
            unread.remove(found)
    return left


def alike(one: str, other: str) -> bool:
    """Whether two lines say the same, but for the speed of the machine and last digits."""
    if not _same_words(one, other):
        return False
    numbers = [[float(text.replace(",", "")) for text in _NUMBER.findall(_plain(line))] for line in (one, other)]
    return all(
        abs(a - b) <= max(_absolute(max(abs(a), abs(b))), RELATIVE * max(abs(a), abs(b)))
        for a, b in zip(*numbers, strict=True)
    )


def _plain(line: str) -> str:
    """Return a line without what a machine's speed, its folders and its ports decide, and without marks of the best."""
    return _RANK.sub("", _SECONDS.sub("T", _MACHINE.sub("T", line.replace("**", ""))))


def _same_words(one: str, other: str) -> bool:
    """Whether two lines say the same, but for their numbers."""
    one, other = (" ".join(_NUMBER.sub("#", _plain(line)).split()) for line in (one, other))
    return one == other


def _absolute(size: float) -> float:
    """Return by how much two numbers of a size may differ at least: percentages, and those below 1."""
    return APART if 10 < size <= 100 else ABSOLUTE if size < 1 else 0.0


def _written(shown: str, printed: list[str]) -> str:
    """Return the output on a page, each line as it was printed now; a block without lines gets all of them."""
    if not shown.strip():
        return "\n".join(printed) + "\n"
    lines = shown.splitlines()
    slots = [number for number, line in enumerate(lines) if line.strip() not in ("...", "")]
    found: list[int] = []
    for number in slots:
        others = [at for at in range(len(printed)) if at not in found and _same_words(lines[number], printed[at])]
        at = next((at for at in others if alike(lines[number], printed[at])), others[0] if others else None)
        assert at is not None, f"not printed any more: {lines[number]}"
        found.append(at)
    for number, at in zip(slots, sorted(found), strict=True):  # trials may stand in another order
        lines[number] = printed[at]
    return "\n".join(lines) + "\n"


def write(folder: Path) -> None:
    """Run the commands of all pages in a folder, and write what they print into the pages."""
    prepare(folder)
    for page in PAGES:
        text, parts, end = page.read_text(), [], 0
        for block in blocks(page):
            printed = run(block, folder)
            if block.command:
                parts += [text[end : block.begin], _written(block.text, printed)]
                end = block.end
        page.write_text("".join([*parts, text[end:]]))


def prepare(folder: Path) -> None:
    """Put the files that a reader has into a folder, which is made if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("reviews.csv", "near_head.py"):
        (folder / name).write_text((DOCS / "tutorial" / name).read_text())


if __name__ == "__main__":
    assert Path.cwd() == ROOT, "run it in the repository"
    write(Path(sys.argv[1]))
