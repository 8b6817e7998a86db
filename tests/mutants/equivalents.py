"""Mutants that compute the same, or what nothing may depend on, each with the reason. They are run like all others."""

_DRAW = "a draw of 53 bits equals the chance once in 2^53 times"
_PIECES = "how many numbers are treated at a time: each is treated once anyhow, so that speed alone changes"
_PIECES_DRAWN = "how many bits are drawn at a time: which random word a bit takes changes, its probability does not"
_PIECES_SUMMED = "how many rows are summed at a time: speed, and the last bits of a norm in double precision"

_ORDERS = "[2, 2.25, 2.5, 2.75, 3, 3.5, *range(4, 17), 20, 24, 32, 48, 64, 128, 256]"

# (module, the line as it is, the line as it was changed to, why no test can or should fail)
EQUIVALENTS: tuple[tuple[str, str, str, str], ...] = (
    *(
        ("server/aggregation", f"_CHUNK = 1 << 15{comment}", f"_CHUNK = {size}{comment}", _PIECES)
        for comment in ("  # numbers at a time, so that intermediate results stay in the cache",)
        for size in ("2 << 15", "1 << 16", "1 << 14")
    ),
    *(
        ("server/aggregation", "step = max(1, _CHUNK // delta.shape[1])", changed, _PIECES)
        for changed in ("step = max(2, _CHUNK // delta.shape[1])", "step = max(1, (_CHUNK * delta.shape[1]))")
    ),
    (
        "server/sampling",
        "ids = [i for i, chance in zip(ids, chances, strict=True) if chance < config.fraction]",
        "ids = [i for i, chance in zip(ids, chances, strict=True) if (chance <= config.fraction)]",
        _DRAW,
    ),
    (
        "server/sampling",
        'ids = [i for i in ids if generator(seed, "dropout", round_, i).random() >= config.dropout]',
        "ids = [i for i in ids if (generator(seed, 'dropout', round_, i).random() > config.dropout)]",
        _DRAW,
    ),
    *(
        (
            "accounting/composition",
            f"_ORDERS = {_ORDERS}  # of Renyi divergence",
            f"_ORDERS = {_ORDERS.replace(f', {order}', f', {order + change}')}  # of Renyi divergence",
            "above epsilon = 100, where this bound counts alone, its order is 2; below, another bound is smaller",
        )
        for order in (20, 24, 32, 48, 64, 128, 256)
        for change in (1, -1)
    ),
    (
        "accounting/composition",
        "if high > 1e6:",
        "if high > 2000000.0:",
        "it takes powers of ten alone, of which none lies between",
    ),
    (
        "accounting/composition",
        "while high / low > 1 + 10.0**-_DIGITS / 4:",
        "while (high / low >= 1 + 10.0 ** (-_DIGITS) / 4):",
        "a ratio equal to the bound to the last bit is halved once more, and then rounded up to four digits",
    ),
    (
        "accounting/composition",
        "while high / low > 1 + 10.0**-_DIGITS / 4:",
        "while high / low > 1 + 10.0**-_DIGITS / 5:",
        "a finer search; what it finds is rounded up to four digits either way",
    ),
    *(
        ("mechanisms/draws", f"_CHUNK = 1 << 16{comment}", f"_CHUNK = {size}{comment}", _PIECES_DRAWN)
        for comment in ("  # coordinates at a time, so that intermediate results stay in the cache",)
        for size in ("2 << 16", "1 << 17", "1 << 15")
    ),
    (
        "mechanisms/draws",
        "np.add(chance, np.float32(_LEVELS / 2), out=chance)",
        "np.add(np.float32(_LEVELS / 2), chance, out=chance)",
        "a + b = b + a",
    ),
    (
        "mechanisms/draws",
        "size = min(_CHUNK, len(flat_N))",
        "size = max(_CHUNK, len(flat_N))",
        "the length of buffers of which each piece takes as much as it needs: only memory changes",
    ),
    *(
        ("methods/fedatt", f"_CHUNK = 1 << 15{comment}", f"_CHUNK = {size}{comment}", _PIECES_SUMMED)
        for comment in ("  # numbers at a time, so that intermediate results stay in the cache",)
        for size in ("2 << 15", "1 << 16", "1 << 14")
    ),
    *(
        ("methods/fedatt", "step = max(at_least, _CHUNK // max(1, matrix_RN.shape[1]))", changed, _PIECES_SUMMED)
        for changed in (
            "step = max(at_least, (_CHUNK * max(1, matrix_RN.shape[1])))",
            "step = max(at_least, _CHUNK // max(2, matrix_RN.shape[1]))",
            "step = max(at_least, _CHUNK // max(1, matrix_RN.shape[0]))",
        )
    ),
    (
        "methods/fedatt",
        "self.sum_RN = np.zeros(_as_matrix(tensor).shape)",
        "self.sum_RN = np.ones(_as_matrix(tensor).shape)",
        "the first client's score exceeds minus infinity, and what was there before is multiplied by exp(-inf) = 0",
    ),
    *(
        (
            "methods/fedatt",
            "tall_RN = delta_RN.T if len(delta_RN) < delta_RN.shape[1] else delta_RN",
            changed,
            "both Gram matrices have the same largest eigenvalue: the larger one costs more time",
        )
        for changed in (
            "tall_RN = delta_RN.T if (len(delta_RN) <= delta_RN.shape[1]) else delta_RN",
            "tall_RN = delta_RN.T if len(delta_RN) < delta_RN.shape[0] else delta_RN",
        )
    ),
    (
        "methods/kteps",
        "b = distances_BB.detach()[upper[0], upper[1]].median().clamp_min(1e-12)",
        "b = distances_BB.detach()[upper[0], upper[1]].median().clamp_min(2e-12)",
        "some positive number, lest 0 / 0 is computed where features coincide: any gives a kernel of exp(0) = 1",
    ),
    (
        "state/noise_key",
        "def generator(self, purpose: str, round_: int = 0, client: int = SERVER) -> np.random.Generator:",
        "def generator(self, purpose: str, round_: int = 1, client: int = SERVER) -> np.random.Generator:",
        "the round is left out where it is asked whether the library is installed, and nothing is drawn",
    ),
)


def reason(module: str, before: str, after: str) -> str:
    """Why a mutant may survive; empty if nothing says so."""
    file = module.removeprefix("fedtext/").removesuffix(".py")
    return next((why for *mutant, why in EQUIVALENTS if mutant == [file, before, after]), "")
