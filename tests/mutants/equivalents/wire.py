"""Equivalent mutants of ``fedtext/wire/``."""

EQUIVALENTS = (
)
