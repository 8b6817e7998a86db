"""The parser of a command: its help, its examples, and its errors in one sentence."""

import argparse
import difflib
import re
import shutil
import textwrap
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, NoReturn

from fedtext.errors import spelled

SUCCESS = "exit status:\n  0    success\n"
FAILED = "  1    training failed, or a trial is left\n"
WRONG = """\
  2    an error that you can fix: one sentence says what is wrong, where, and what to do
  130  interrupted (Ctrl-C)
"""
STATUSES = SUCCESS + FAILED + WRONG
COMMENTS = 62  # column of the comments of examples, at most
WIDEST = 120  # characters of a line of prose, however wide the terminal is
KEY_PARTS = 3  # of a key that is proposed
Example = tuple[str, str]  # words that are typed, and what they do


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one sentence, without the usage, with the option that was probably meant."""

    def error(self, message: str) -> NoReturn:
        problem = f"{message}{self._nearest(message)}"
        end = " " if problem.endswith("?") else "; "
        self.exit(2, f"error: {problem}{end}{self.prog} --help shows what can be given\n")

    def _nearest(self, message: str) -> str:
        """Return the key that an option which is not there has the name of, or the nearest option, as the end of a
        sentence; empty if there is none."""
        unknown = re.match(r"unrecognized arguments: .*?--([\w.-]+)(?:[= ]([^\s=]+)(?=\s|$))?", message)
        if not unknown:
            return ""
        if any(action.dest == "overrides" for action in self._actions) and (keys := _keys_called(unknown[1])):
            value = unknown[2] if unknown[2] and not unknown[2].startswith("-") else "VALUE"
            return f"; did you mean {' or '.join(f'{key}={value}' for key in keys)}?"
        shown = [name for name, action in self._option_string_actions.items() if action.help != argparse.SUPPRESS]
        return did_you_mean(f"--{unknown[1]}", shown)


def _keys_called(name: str) -> list[str]:
    """Return the one or two keys of an experiment that ``--name`` may stand for; empty if there are more or none.

    Of all keys called so, or whose last part is, they are the shortest. Keys of more than three parts are left out: a
    newcomer who has guessed a name does not mean them.
    """
    from fedtext.config.overridable import overridable

    name = name.replace("-", "_")
    paths = [key.path.split(".") for key in overridable()]
    keys = {".".join(path[:end]): end for path in paths for end in range(1, min(len(path), KEY_PARTS) + 1)}
    found = {key: parts for key, parts in keys.items() if key == name or key.endswith(f".{name}")}
    shortest = [key for key, parts in found.items() if parts == min(found.values())]
    return shortest if len(shortest) < 3 else []


def did_you_mean(word: str, names: Sequence[str]) -> str:
    """Return ``; did you mean sweep?`` if one of the names is near to ``word``, else an empty text."""
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


class Help(argparse.HelpFormatter):
    """Help whose paragraphs are as wide as the terminal allows; examples and lists keep their lines."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=min(shutil.get_terminal_size().columns - 2, WIDEST))

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return filled(text, width)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return broken(" ".join(text.split()), width)  # not within --num-gpus


def broken(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Return the lines of a sentence on a terminal. Options, names and paths stay whole.

    Args:
        text: The sentence.
        width: Characters of a line.
        first: Indentation of the first line.
        rest: That of the others.
    """
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False, break_long_words=False
    )


def filled(text: str, width: int) -> str:
    """Return a text with lines of at most ``width`` characters where that is possible, and never more than 120.

    Lines that begin without a space are joined to paragraphs. Comments of other lines, behind two
    spaces, are broken.
    """
    lines, width = list[str](), min(width, WIDEST)
    for prose, group in groupby(text.splitlines(), lambda line: line[:1].strip() != ""):
        block = list(group)
        lines += broken(" ".join(block), width) if prose else _list(block, width)
    return "\n".join(lines)


def _list(lines: Sequence[str], width: int) -> list[str]:
    """Return lines of a list, of which a long comment goes on in its column, or all begin below if little is left."""
    if max(map(len, lines)) <= width:
        return [*lines]
    found = [re.fullmatch(r"( *\S.*?)(  +)(\S.*)", line) for line in lines]
    column = max((match.start(3) for match in found if match), default=0)
    below = column > width - 30
    made = []
    for line, match in zip(lines, found, strict=True):
        if match is None:
            made.append(line)
            continue
        first, rest = (" " * 8, " " * 8) if below else (match[1] + match[2], " " * match.start(3))
        made += [match[1]] if below else []
        made += broken(match[3], width, first, rest)
    return made


def command_parser(
    name: str,
    description: str,
    examples: Sequence[Example],
    notes: str = "",
    trains: bool = False,
    further: Sequence[Example] = (),
) -> Parser:
    """Return the parser of a command.

    Args:
        name: Name of the command, such as ``sweep``.
        description: Its description.
        examples: Examples of its use: the words after the command.
        notes: Text of its help after the examples. Lines that are not indented are filled into paragraphs.
        trains: Whether it trains, which may fail.
        further: Examples that begin with the name of another program.
    """
    lines = [*((f"{spelled(name)} {words}".rstrip(), comment) for words, comment in examples), *further]
    statuses = STATUSES if trains else SUCCESS + WRONG
    return Parser(
        prog=spelled(name.partition(" ")[0]),
        description=description,
        epilog="\n".join(part for part in (f"examples:\n{listing(lines)}", notes, statuses) if part),
        formatter_class=Help,
    )


def listing(lines: Sequence[Example]) -> str:
    """Return lines with their comments in a column."""
    width = max((len(typed) for typed, comment in lines if comment and len(typed) < COMMENTS), default=0)
    return "".join(f"  {typed.ljust(width)}  {comment}".rstrip() + "\n" for typed, comment in lines)


class Refused(argparse.Action):
    """An option that does not belong to a command. Giving it is an error, with the sentence ``why``."""

    def __init__(self, option_strings: Sequence[str], dest: str, why: str, nargs: int | str = 0) -> None:
        super().__init__(option_strings, dest, nargs=nargs, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        self.why = why

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        parser.exit(2, f"error: {self.option_strings[0]} {self.why}\n")


def at_least(least: int, what: str) -> Callable[[str], int]:
    """Return the type of an option that is a whole number of ``what``, from ``least`` on.

    Raises:
        argparse.ArgumentTypeError: By the returned function: a word is no such number.
    """

    def count(word: str) -> int:
        if not word.lstrip("-").isdecimal() or int(word) < least:
            raise argparse.ArgumentTypeError(
                f"{word!r} is no number of {what}, which is a whole number from {least} on"
            )
        return int(word)

    return count


def add_experiment(parser: argparse.ArgumentParser, optional: str = "") -> None:
    """Add the experiment file and the changes to it.

    Args:
        parser: The parser.
        optional: What stands in for a file, for the help; empty: a file is required.
    """
    about = "experiment file (YAML), here or in tune_spaces/"
    if optional:
        parser.add_argument("experiment", nargs="?", help=f"{about}; {optional}")
    else:
        parser.add_argument("experiment", help=about)
    # With a default argparse does not count it among the required arguments
    parser.add_argument("overrides", nargs="*", default=[], metavar="key=value", help="changes to the experiment")


def add_data(parser: argparse._ActionsContainer) -> None:
    """Add ``--data FOLDER``."""
    parser.add_argument(
        "--data", metavar="FOLDER", help="folder of corpora, or its URI (s3://BUCKET/FOLDER; else $FEDTEXT_DATA)"
    )


def add_keys(parser: argparse._ActionsContainer) -> None:
    """Add ``--keys [PATTERN]``, which describes keys (fedtext/config/keys.py). Without PATTERN it is ""."""
    parser.add_argument(
        "--keys",
        nargs="?",
        const="",
        metavar="PATTERN",
        help="list every key of an experiment with its default; or describe a key, method, mechanism, aggregation, "
        "model, corpus, audit, attack or metric by its name, or all whose names match: --keys kteps, --keys lambda, "
        "--keys 'training.*'; then exit",
    )


def add_plugin(parser: argparse._ActionsContainer) -> None:
    """Add ``--plugin NAME``, which may be given several times."""
    parser.add_argument(
        "--plugin",
        action="append",
        default=[],
        metavar="NAME",
        help="a file (my_method.py) or an installed module with parts of your own, beside those that the experiment "
        "lists; may be given several times",
    )
