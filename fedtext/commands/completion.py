"""Completion in a shell, by argcomplete: commands, options, experiments, keys and their values, and runs."""

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from fedtext.config.spaces import SPACES, find, read
from fedtext.errors import UserError
from fedtext.runtime.paths import expanded

SHELLS = {
    "bash": 'eval "$(fedtext --completion bash)"    # in ~/.bashrc',
    "zsh": 'eval "$(fedtext --completion zsh)"     # in ~/.zshrc, after compinit',
    "fish": "fedtext --completion fish | source     # in ~/.config/fish/config.fish",
}
Candidates = dict[str, str]  # with a description each
ParserOf = Callable[[str, Sequence[str]], argparse.ArgumentParser]
PAPERS = SPACES / "papers"


def script(shell: str) -> str:
    """Return the lines that turn completion on in a shell.

    Raises:
        UserError: The shell is not supported, or argcomplete is not installed.
    """
    if shell not in SHELLS:
        raise UserError(f"--completion: {shell or 'no shell'} cannot complete: name bash, zsh or fish")
    try:
        from argcomplete.shell_integration import shellcode
    except ImportError as error:
        raise UserError("--completion: it needs argcomplete: pip install argcomplete") from error
    return f"# {SHELLS[shell].strip()}\n{shellcode(['fedtext'], shell=shell)}"


def complete(parser_of: ParserOf, commands: dict[str, str]) -> None:
    """Answer the shell that asks for candidates through the environment, and end the process.

    Args:
        parser_of: Returns the parser of a command, by its name and the words of the line.
        commands: Summaries of the commands, by name.
    """
    from argcomplete.finders import CompletionFinder

    class Finder(CompletionFinder):
        """Adds changes to the experiment wherever a word without a dash may stand."""

        def collect_completions(self, active_parsers: Any, parsed_args: Any, cword_prefix: str) -> list[str]:
            """Return the candidates for the word under the cursor."""
            found = super().collect_completions(active_parsers, parsed_args, cword_prefix)
            parser = active_parsers[-1]
            option = parser._option_string_actions.get(before)
            waits = option is not None and option.nargs is None  # for its value
            if found or waits or cword_prefix.startswith("-"):
                return found
            if not any(action.dest == "overrides" for action in parser._actions):
                return found
            keys = _keys(cword_prefix, parsed_args)
            self._display_completions.update(keys)
            return list(keys)

    line = os.environ.get("COMP_LINE", "")[: int(os.environ.get("COMP_POINT") or 0)]
    words = line.split()
    whole = words if line[-1:].isspace() else words[:-1]  # but for the one under the cursor
    before = whole[-1] if whole else ""
    if whole[1:2] and whole[1] in (*commands, "help"):
        os.environ["_ARGCOMPLETE"] = "2"  # the words of the command begin behind its name
    if whole[1:2] and whole[1] in commands:
        parser = parser_of(whole[1], words)
    else:
        parser = argparse.ArgumentParser(prog="fedtext")
        parser.add_argument("command", choices=list(commands)).completer = lambda **_: commands  # type: ignore[attr-defined]
        parser.add_argument("--version", action="store_true")
        parser.add_argument("--keys")
        parser.add_argument("--completion", choices=list(SHELLS))
    for action in parser._actions:
        if completer := COMPLETERS.get(action.dest):
            action.completer = completer  # type: ignore[attr-defined]
    Finder()(parser, always_complete_options=False, validator=str.startswith)


def _experiments(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> Candidates:
    """Return experiment files: those that come with fedtext, and files and folders here."""
    if getattr(parsed_args, "experiment", None):
        return {}
    found = {} if "/" in prefix else {file.name: "comes with fedtext" for file in SPACES.glob("*.yaml")}
    return found | _files(prefix, (".yaml", ".yml"))


def _files(prefix: str, endings: tuple[str, ...]) -> Candidates:
    """Return files with one of the endings, and folders, that begin with ``prefix``."""
    folder, _, name = prefix.rpartition("/")
    found = {}
    with suppress(OSError, UserError):
        start = expanded(folder or ("/" if prefix.startswith("/") else "."))
        for path in sorted(start.iterdir()):
            if path.name.startswith(".") and not name.startswith("."):
                continue
            shown = f"{folder}/{path.name}" if "/" in prefix else path.name
            if path.is_dir():
                found[f"{shown}/"] = ""
            elif path.name.endswith(endings):
                found[shown] = ""
    return found


def _overrides(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> Candidates:
    """Return changes to the experiment that is named before."""
    return _keys(prefix, parsed_args) if getattr(parsed_args, "experiment", None) else {}


def _keys(prefix: str, parsed_args: argparse.Namespace) -> Candidates:
    """Return ``key=``, or ``key=value`` behind an equals sign; keys of the classes that the experiment chooses."""
    from fedtext.config.overridable import overridable

    keys = overridable()
    path, equals, _ = prefix.partition("=")
    if equals:
        found = {f"{path}={value}": "" for key in keys if key.path == path for value in key.values}
        return {word: summary for word, summary in found.items() if word.startswith(prefix)}
    chosen = _chosen(parsed_args)
    sections = {key.path for key in keys if key.values}
    found = {}
    for key in keys:
        section = next((part for part in _above(key.path) if part in sections), None)
        if key.owners and section in chosen and chosen[section] not in key.owners:
            continue
        found[f"{key.path}="] = key.summary
    return {word: summary for word, summary in found.items() if word.startswith(prefix)}


def _above(path: str) -> Iterator[str]:
    """Yield the sections above a key, the nearest first."""
    while "." in path:
        path = path.rpartition(".")[0]
        yield path


def _chosen(parsed_args: argparse.Namespace) -> dict[str, str]:
    """Return the names that the experiment, with its changes, chooses: ``{"method": "kteps"}``."""
    chosen: dict[str, str] = {}

    def walk(node: Any, path: str) -> None:
        if isinstance(node, str):
            chosen[path] = node
        elif isinstance(node, dict):
            if isinstance(node.get("name"), str) and path:
                chosen[path] = node["name"]
            for key, value in node.items():
                if key not in ("name", "space"):
                    walk(value, f"{path}.{key}" if path else key)

    with suppress(UserError):
        walk(read(find(parsed_args.experiment)), "")
    for word in getattr(parsed_args, "overrides", None) or ():
        path, _, value = word.partition("=")
        chosen[path] = value
    return chosen


def _runs(**_: Any) -> Candidates:
    """Return the names of the runs in runs/."""
    names: Callable[[], list[str]] = importlib.import_module("platform.ls").run_names
    return dict.fromkeys(names(), "a run")


def _names(**_: Any) -> Candidates:
    """Return what --keys explains: keys, and classes by their names."""
    from fedtext.config.overridable import overridable

    keys = overridable()
    return {key.path: key.summary for key in keys} | {name: "" for key in keys for name in key.owners} | {"metrics": ""}


def _of_files(*endings: str) -> Callable[..., Candidates]:
    return lambda prefix, **_: _files(prefix, endings)


COMPLETERS: dict[str, Callable[..., Candidates]] = {
    "experiment": _experiments,
    "source": _experiments,
    "overrides": _overrides,
    "resume": _runs,
    "sweep": _runs,
    "run": _runs,
    "keys": _names,
    "paper": lambda **_: {file.stem: "" for file in PAPERS.glob("*.yaml")},
    "plugin": _of_files(".py"),
    "render": _of_files(".csv"),
    "picture": _of_files(".svg"),
    "target": _of_files(".yaml", ".yml"),
    **dict.fromkeys(("data", "out", "storage", "model"), _of_files("/")),
    **dict.fromkeys(
        ("name", "seed", "address", "num_cpus", "num_gpus", "client", "texts", "tables", "scene", "methods", "rows"),
        lambda **_: {},
    ),
}


def answer(parser_of: ParserOf, commands: dict[str, str]) -> None:
    """Answer the shell, and end the process. What goes wrong ends it quietly: a person is typing.

    Args:
        parser_of: Returns the parser of a command, by its name and the words of the line.
        commands: Summaries of the commands, by name.
    """
    with suppress(Exception):
        complete(parser_of, commands)
    sys.exit(1)
