"""Mutants that compute the same, or a difference on which nothing may depend, each with the reason.

They are run like all others. There is a file for each package of ``fedtext``. An entry is (module, the line as it is,
the line as it was changed to, why no test can or should fail).
"""

from tests.mutants.equivalents import (
    accounting,
    aggregations,
    client,
    evaluation,
    layout,
    ledger,
    matrix_noise,
    mechanisms,
    methods,
    server,
    state,
    training,
)

FILES = (
    accounting,
    aggregations,
    client,
    evaluation,
    layout,
    ledger,
    matrix_noise,
    mechanisms,
    methods,
    server,
    state,
    training,
)
EQUIVALENTS: tuple[tuple[str, str, str, str], ...] = tuple(entry for file in FILES for entry in file.EQUIVALENTS)


def reason(module: str, before: str, after: str) -> str:
    """Return why a mutant may survive; empty if no entry explains it."""
    file = module.removeprefix("fedtext/").removesuffix(".py")
    return next((why for *mutant, why in EQUIVALENTS if mutant == [file, before, after]), "")
