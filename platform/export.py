"""``python -m platform.export MODEL FOLDER``: a causal language model in the format of the package transformers."""

import sys

from fedtext.commands import guarded
from fedtext.commands.export import main, parser

__all__ = ["main", "parser"]

if __name__ == "__main__":
    sys.exit(guarded(main)())
