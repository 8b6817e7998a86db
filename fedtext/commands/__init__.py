"""The command ``fedtext``: a list of commands, each the same as ``python -m platform.COMMAND``, from any folder."""

import importlib
import os
import runpy
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedtext.commands.guard import guarded, say
from fedtext.commands.parser import STATUSES, Parser, add_keys, add_plugin, did_you_mean, filled, listing
from fedtext.errors import called_by, spelled

__all__ = ["COMMANDS", "Command", "Parser", "add_keys", "add_plugin", "guarded", "main"]

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
        name: Its name. ``platform/NAME.py`` has its ``parser()`` and its ``main(words)``.
        group: The heading under which it is listed.
        summary: What it does, in a few words.
        library: The module that has them in the library, for a command that needs nothing else.
    """

    name: str
    group: str
    summary: str
    library: str = ""


COMMANDS = {
    command.name: command
    for command in (
        Command("run", "train", "one run of an experiment, on Ray; with --no-ray in this process"),
        Command("sweep", "train", "every case of an experiment's space, and its baselines, on Ray"),
        Command("reproduce", "train", "a table of a paper, run and printed beside the paper's values"),
        Command("ls", "look", "experiments that come with fedtext, and the runs in runs/ with their state"),
        Command("doctor", "look", "what is installed and reachable, and what would fail in a sweep"),
        Command("corpora", "look", "statistics of an experiment's corpus, by client, and its problems"),
        Command("report", "look", "a page with plots, and tables for papers, of a run or a sweep"),
        Command("predict", "use", "labels or next words of texts, by a trained model", "fedtext.commands.predict"),
        Command("export", "use", "a causal language model for the package transformers", "fedtext.commands.export"),
        Command("cp", "use", "copy an experiment to edit it", "fedtext.commands.copy"),
    )
}
GROUPS = {"train": "train", "look": "look at what there is", "use": "use and extend"}
MEANT = {"train": "run", "tune": "sweep"}  # what other programs call a command
USAGE = "usage: fedtext COMMAND [ARGUMENTS]\n       fedtext COMMAND --help\n"
OPTIONS = [
    ("-h, --help", "this list"),
    ("--version", "the version"),
    ("--keys [PATTERN]", "explain a key, a method or other part, or a metric by its name; alone: list all keys"),
    ("--completion SHELL", "lines that turn completion on in bash, zsh or fish"),
]
FIRST = [
    ("fedtext sweep demo.yaml", "the quick start"),
    ("fedtext cp kteps.yaml my.yaml", "an experiment to edit"),
    ("fedtext sweep my.yaml --data FOLDER --dry-run", "check it, and show what would run"),
    ("fedtext ls", "what has run, and how far"),
]
FIRST_ALONE = [
    ("fedtext run demo.yaml --no-ray --out first", "the quick start"),
    ("fedtext predict first/model 'a superb plot'", "what its model says of a text"),
    ("fedtext cp kteps.yaml my.yaml", "an experiment to edit"),
]
IN_REPOSITORY = "In the repository each command is also python -m platform.COMMAND."
NOTES = """\
python -m fedtext COMMAND is the same as fedtext COMMAND, and python -m fedtext FILE is short for fedtext run FILE
--no-ray.

eval "$(fedtext --completion bash)" in ~/.bashrc completes commands, options, experiments, keys and runs.
"""


def _is_here(command: Command) -> bool:
    """Return whether a command has its module in the repository, and this is the repository's library."""
    return (ROOT / "platform" / f"{command.name}.py").is_file()


def summaries() -> dict[str, str]:
    """Return what each command does that can be run here, by name: of an installed package those of the library."""
    made = {c.name: c.summary for c in COMMANDS.values() if c.library or _is_here(c)}
    alone = {} if "run" in made else {"run": "one run of an experiment in this process, always with --no-ray"}
    return alone | made


def overview() -> str:
    """Return the list of the commands that can be run here, with a word on the others."""
    here, lines = summaries(), ["Federated learning on private text.\n", USAGE]
    for group, heading in GROUPS.items():
        listed = [(name.ljust(16), summary) for name, summary in here.items() if COMMANDS[name].group == group]
        lines += [f"{heading}:", listing(listed)] if listed else []
    others = [name for name in COMMANDS if name not in here]
    note = IN_REPOSITORY
    if others:
        note = (
            f"This is the library alone. Runs on Ray, and {', '.join(others[:-1])} and {others[-1]}, need fedtext's "
            "repository, installed by make install."
        )
    examples = listing(FIRST_ALONE if others else FIRST)
    text = "\n".join([*lines, "options:", listing(OPTIONS), "examples:", examples, note, NOTES, STATUSES])
    return filled(text.rstrip(), shutil.get_terminal_size().columns)


def main(words: Sequence[str] | None = None, prefix: str = "fedtext ") -> int:
    """Run ``fedtext sweep ...`` as ``python -m platform.sweep ...``, which works only in the repository.

    Args:
        words: Words of the command line; None: those of this process.
        prefix: How the command is called, for messages.

    Returns:
        The exit status.
    """
    called_by(prefix)
    if "_ARGCOMPLETE" in os.environ:
        in_repository()
        _module("fedtext.commands.completion").answer(_parser, summaries())
    words = list(sys.argv[1:] if words is None else words)
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    first = words[0] if words else "--help"
    if first in ("-h", "--help"):
        return guarded(lambda _: print(overview()) or 0)()
    if first == "--version":
        return guarded(lambda _: print(f"fedtext {_version()}") or 0)()
    if first == "--completion":
        return guarded(lambda _: print(_module("fedtext.commands.completion").script("".join(words[1:2]))) or 0)()
    if first == "--keys":
        return guarded(lambda _: _module("fedtext.commands.local").main(words))()
    if first in COMMANDS:
        return _run(COMMANDS[first], words[1:])
    return _refused(first)


def _refused(word: str) -> int:
    """Print that there is no such command. Returns the exit status."""
    if word.endswith((".yaml", ".yml")):
        problem = f"{word} is no command; did you mean {spelled('run')} {word}"
        problem += f", or {spelled('sweep')} {word}?" if "sweep" in summaries() else " --no-ray?"
    else:
        problem = f"there is no {'option' if word.startswith('-') else 'command'} {word}"
        named = MEANT.get(word) if MEANT.get(word) in summaries() else None
        near = did_you_mean(word, [*summaries(), "--help", "--version", "--keys", "--completion"])
        problem += f"; did you mean {spelled(named)}?" if named else near
    end = " " if problem.endswith("?") else "; "
    say(f"error: {problem}{end}fedtext --help lists the commands")
    return 2


def _run(command: Command, words: Sequence[str]) -> int:
    """Run a command with the words after its name. Returns its exit status."""
    if library := _library(command, words):
        return guarded(lambda _: _module(library).main(words))()
    if not _is_here(command):
        say(
            f"error: {ROOT} has the library of fedtext without its commands: install the repository with make install, "
            f"or train without Ray by {spelled('run')} FILE --no-ray"
        )
        return 2
    in_repository()
    # Ray's workers search for modules in the folder of this process's script.
    sys.argv = [str(ROOT / "fedtext"), *words]
    try:
        runpy.run_module(f"platform.{command.name}", run_name="__main__")
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def _library(command: Command, words: Sequence[str]) -> str:
    """Return the module of the library that has a command with these words; empty if the library has none."""
    asks = "--no-ray" in words or (not _is_here(command) and {"-h", "--help"} & {*words})
    return command.library or ("fedtext.commands.local" if command.name == "run" and asks else "")


def _parser(name: str, words: Sequence[str]) -> Parser:
    """Return the parser of a command with these words, to complete them."""
    command = COMMANDS[name]
    without_ray = [] if _is_here(command) else ["--no-ray"]
    made: Parser = _module(_library(command, [*words, *without_ray]) or f"platform.{name}").parser()
    return made


def in_repository() -> None:
    """Make the commands importable as ``platform.COMMAND``."""
    sys.path.insert(0, str(ROOT))
    sys.modules.pop("platform", None)  # the module of the standard library, which has no commands


def _module(name: str) -> Any:
    return importlib.import_module(name)


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("fedtext")
    except metadata.PackageNotFoundError:
        return "(not installed)"


if __name__ == "__main__":
    sys.exit(main())
