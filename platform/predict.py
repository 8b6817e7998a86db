"""``python -m platform.predict MODEL TEXT ...``: classify texts, or predict next words, with a trained model."""

import sys

from fedtext.commands import guarded
from fedtext.commands.predict import main, parser

__all__ = ["main", "parser"]

if __name__ == "__main__":
    sys.exit(guarded(main)())
