"""``python -m platform.cp SOURCE TARGET``: copy an experiment, with its comments, to edit it."""

import sys

from fedtext.commands import guarded
from fedtext.commands.copy import main, parser

__all__ = ["main", "parser"]

if __name__ == "__main__":
    sys.exit(guarded(main)())
