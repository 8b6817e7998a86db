"""``fedtext cp SOURCE TARGET``: copy an experiment, with its comments, to edit it."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from fedtext.commands import summaries
from fedtext.commands.parser import Parser, command_parser
from fedtext.errors import UserError, spelled, writing
from fedtext.runtime import durable
from fedtext.runtime.paths import local_path


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
        UserError: There is no such experiment, or the file has no name, exists or cannot be written.
    """
    arguments = parser().parse_args(words)
    if not arguments.target:  # such as "$UNSET"
        raise UserError("cp: '' is no file: name one")
    from fedtext.config.spaces import find, read

    source = find(arguments.source)
    target = local_path(arguments.target, "cp")
    if arguments.target.endswith("/") or target.is_dir():
        target /= source.name
    _copy(source, target, arguments.force)
    named = read(source).get("plugins")
    for plugin in named if isinstance(named, list) else ():
        beside = [folder / str(plugin) for folder in (source.parent, target.parent)]
        if beside[0].is_file() and not beside[1].exists():
            print(f"its plug-in {plugin} is looked up beside {target}: copy {os.path.relpath(beside[0])} there too")
    then = f"{spelled('sweep')} {target} --dry-run checks it"
    if "sweep" not in summaries():
        then = f"{spelled('run')} {target} --no-ray runs it"
    print(f"{target} is a copy of {source.name}: edit it, then {then}")
    return 0


def _copy(source: Path, target: Path, force: bool) -> None:
    """Copy a file as it is. If that fails, what was at ``target`` is there unchanged.

    Args:
        source: The file.
        target: The new file.
        force: Whether to overwrite ``target``.

    Raises:
        UserError: ``target`` exists and ``force`` is not set, is the same file, or cannot be written.
    """
    if target.exists() and target.samefile(source):
        raise UserError(f"{target} is that experiment itself: choose another name")
    with writing(target, "cp"):
        try:
            (_overwrite if force else _create)(target, source.read_bytes())
        except FileExistsError as error:
            raise UserError(f"{target} exists: choose another name, or overwrite it with --force") from error
        except FileNotFoundError as error:
            if target.parent.is_dir():
                raise
            raise UserError(f"there is no folder {target.parent}: make it first (mkdir -p)") from error


def _create(target: Path, content: bytes) -> None:
    """Create a file. None is left if it cannot be written."""
    target.open("xb").close()  # from here on no other command creates it
    try:
        durable.write(target, content)
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def _overwrite(target: Path, content: bytes) -> None:
    """Write a file that may be there. It is left unchanged if it cannot be written."""
    if target.exists() and not target.is_file():
        target.write_bytes(content)  # such as /dev/stdout, whose place no file can take
        return
    file = Path(os.path.realpath(target))  # a link stays one
    if file.is_symlink():  # it leads to itself
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(file))
    if not file.exists():
        durable.write(file, content)
        return
    if not os.access(file, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file))
    mode = file.stat().st_mode & 0o777
    durable.write(file, content, mode)
    file.chmod(mode)  # also where the umask takes a part of it from new files
