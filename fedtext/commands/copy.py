"""``fedtext cp SOURCE TARGET``: copy an experiment, with its comments, to edit it."""

import os
from collections.abc import Sequence
from pathlib import Path

from fedtext.commands.parser import Parser, command_parser
from fedtext.errors import UserError, spelled, writing


def parser() -> Parser:
    """Return the parser of the command."""
    examples = [
        ("kteps.yaml my.yaml", "an experiment that comes with fedtext"),
        ("kteps.yaml studies", "into a folder, under its name"),
    ]
    made = command_parser("cp", "Copy an experiment file, with its comments, to edit it.", examples)
    made.add_argument("source", metavar="SOURCE", help="experiment file (YAML), here or in tune_spaces/")
    made.add_argument("target", metavar="TARGET", help="the new file, or a folder")
    made.add_argument("--force", action="store_true", help="overwrite TARGET")
    return made


def main(words: Sequence[str] | None) -> int:
    """Run the command, and return its exit status.

    Raises:
        UserError: There is no such experiment, or the file exists or cannot be written.
    """
    arguments = parser().parse_args(words)
    from fedtext.config.spaces import find, read

    source = find(arguments.source)
    target = Path(arguments.target)
    if arguments.target.endswith("/") or target.is_dir():
        target /= source.name
    _copy(source, target, arguments.force)
    named = read(source).get("plugins")
    for plugin in named if isinstance(named, list) else ():
        beside = [folder / str(plugin) for folder in (source.parent, target.parent)]
        if beside[0].is_file() and not beside[1].exists():
            print(f"its plug-in {plugin} is looked up beside {target}: copy {os.path.relpath(beside[0])} there too")
    print(f"{target} is a copy of {source.name}: edit it, then {spelled('sweep')} {target} --dry-run checks it")
    return 0


def _copy(source: Path, target: Path, force: bool) -> None:
    """Copy a file as it is.

    Raises:
        UserError: ``target`` exists and ``force`` is not set, is the same file, or cannot be written.
    """
    if target.exists() and target.samefile(source):
        raise UserError(f"{target} is that experiment itself: choose another name")
    with writing(target, "cp"):
        try:
            with open(target, "wb" if force else "xb") as stream:
                stream.write(source.read_bytes())
        except FileExistsError as error:
            raise UserError(f"{target} exists: choose another name, or overwrite it with --force") from error
        except FileNotFoundError as error:
            if target.parent.is_dir():
                raise
            raise UserError(f"there is no folder {target.parent}: make it first (mkdir -p)") from error
