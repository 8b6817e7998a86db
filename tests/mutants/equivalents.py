"""Mutants that compute the same, or what nothing may depend on, each with the reason. They are run like all others."""

ANY = "*"  # any change of the line

_DRAW = "a draw of 53 bits equals the chance once in 2^53 times"
_CHUNK = "how many numbers are treated at a time: speed alone"

# (module, the line as it is, the line as it was changed to or ANY, why no test can or should fail)
EQUIVALENTS: tuple[tuple[str, str, str, str], ...] = (
    (
        "aggregation",
        "_CHUNK = 1 << 15  # numbers at a time, so that intermediate results stay in the cache",
        ANY,
        _CHUNK,
    ),
    ("aggregation", "step = max(1, _CHUNK // delta.shape[1])", ANY, _CHUNK),
    (
        "cohort",
        "ids = [i for i, chance in zip(ids, chances, strict=True) if chance < config.fraction]",
        "ids = [i for i, chance in zip(ids, chances, strict=True) if (chance <= config.fraction)]",
        _DRAW,
    ),
    (
        "cohort",
        'ids = [i for i in ids if generator(seed, "dropout", round_, i).random() >= config.dropout]',
        "ids = [i for i in ids if (generator(seed, 'dropout', round_, i).random() > config.dropout)]",
        _DRAW,
    ),
    (
        "mechanisms/draws",
        "_CHUNK = 1 << 16  # numbers at a time, so that intermediate results stay in the cache",
        ANY,
        _CHUNK,
    ),
)


def reason(module: str, before: str, after: str) -> str:
    """Why a mutant may survive; empty if nothing says so."""
    file = module.removeprefix("fedtext/").removesuffix(".py")
    return next(
        (why for name, line, changed, why in EQUIVALENTS if (name, line) == (file, before) and changed in (ANY, after)),
        "",
    )
