"""Common options of the commands, and the command ``fedtext``, which runs them from any folder."""

import argparse
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("sweep", "run", "report", "reproduce", "corpora")


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one sentence, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}; {self.prog} --help shows what can be given\n")


def add_keys(parser: argparse.ArgumentParser) -> None:
    """Add ``--keys [NAME]``, which describes keys (fedtext/config/keys.py). Without NAME it is ""."""
    parser.add_argument(
        "--keys",
        nargs="?",
        const="",
        metavar="NAME",
        help="list every key of an experiment with its default; or describe NAME (a key, method, mechanism, model, "
        "corpus, audit, or metrics), with its keys and alternatives; then exit",
    )


def add_plugin(parser: argparse.ArgumentParser) -> None:
    """Add ``--plugin NAME``, which may be given several times."""
    parser.add_argument(
        "--plugin",
        action="append",
        default=[],
        metavar="NAME",
        help="a file (my_method.py) or an installed module with parts of your own, beside those that the experiment "
        "lists; may be given several times",
    )


def main(words: Sequence[str] | None = None) -> int:
    """Run ``fedtext sweep ...`` as ``python -m platform.sweep ...``, which works only in the repository.

    Returns:
        The exit status.
    """
    parser = Parser(prog="fedtext", description="The commands of fedtext, from any folder.")
    parser.add_argument("command", choices=NAMES, help="COMMAND --help shows its arguments")
    parser.add_argument("words", nargs=argparse.REMAINDER, help="arguments of python -m platform.COMMAND")
    arguments = parser.parse_args(words)
    if not (ROOT / "platform" / f"{arguments.command}.py").is_file():
        parser.exit(
            2,
            f"error: {ROOT} has the library of fedtext without its commands: install the repository with make install, "
            "or train without Ray by python -m fedtext FILE\n",
        )
    sys.path.insert(0, str(ROOT))
    sys.modules.pop("platform", None)  # the module of the standard library, which has no commands
    # Ray's workers search for modules in the folder of this process's script.
    sys.argv = [str(ROOT / "fedtext"), *arguments.words]
    try:
        runpy.run_module(f"platform.{arguments.command}", run_name="__main__")
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
