"""Commands that are called in this process, and as processes of their own."""

import contextlib
import io

from fedtext import commands

FEDTEXT = "import sys; from fedtext.commands import main; sys.exit(main())"


def said(*words: str, main: object = commands.main) -> tuple[int, str, str]:
    """Return the exit status, standard output and standard error of a command."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(list(words))  # type: ignore[operator]
        except SystemExit as ended:
            status = ended.code
    return status, out.getvalue(), err.getvalue()
