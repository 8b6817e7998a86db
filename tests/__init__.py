"""Tests, in folders that mirror the packages; whole runs are in ``runs``, the project's own files in ``project``."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
