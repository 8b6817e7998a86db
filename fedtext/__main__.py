"""``python -m fedtext``: the same as the command ``fedtext``.

``python -m fedtext FILE`` is short for ``fedtext run FILE --no-ray``: one run in this process, with the library alone.
"""

import sys
from collections.abc import Sequence

from fedtext import commands
from fedtext.commands import local
from fedtext.commands.parser import did_you_mean
from fedtext.errors import UserError, called_by

PREFIX = "python -m fedtext "
OWN = {*commands.COMMANDS, "-h", "--help", "help", "--version", "--keys", "--completion"}


def main(words: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        The exit status: 2 after a problem with the request, 1 if training failed.
    """
    words = list(sys.argv[1:] if words is None else words)
    if not words or words[0] in OWN or _is_misspelt(words[0]):
        return commands.main(words, PREFIX)
    called_by(PREFIX)
    return commands.guarded(lambda _: local.main(words))()


def _is_misspelt(word: str) -> bool:
    """Whether a word is near to a command, and no experiment."""
    if word.startswith("-") or "/" in word or not did_you_mean(word, [*commands.COMMANDS, *commands.MEANT]):
        return False
    from fedtext.config.spaces import find

    try:
        find(word)
    except UserError:
        return not word.endswith((".yaml", ".yml"))
    return False


if __name__ == "__main__":
    sys.exit(main())
