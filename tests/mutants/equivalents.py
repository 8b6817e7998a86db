"""Mutants that compute the same, or what nothing may depend on, each with the reason. They are run like all others."""

# (module, the line as it is, the line as it was changed to, why no test can or should fail)
EQUIVALENTS: tuple[tuple[str, str, str, str], ...] = (
    (
        "cohort",
        'ids = [i for i in ids if generator(seed, "dropout", round_, i).random() >= config.dropout]',
        "ids = [i for i in ids if (generator(seed, 'dropout', round_, i).random() > config.dropout)]",
        "a draw of 53 bits equals the chance once in 2^53 times",
    ),
)


def reason(module: str, before: str, after: str) -> str:
    """Why a mutant may survive; empty if nothing says so."""
    file = module.removeprefix("fedtext/").removesuffix(".py")
    return next((why for *place, why in EQUIVALENTS if place == [file, before, after]), "")
