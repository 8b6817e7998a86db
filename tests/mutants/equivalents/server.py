"""Equivalent mutants of ``fedtext/server/``."""

_DRAW = "a draw of 53 bits equals the chance once in 2^53 times"
_PIECES = "how many numbers are treated at a time: each is treated once anyhow, so that speed alone changes"

EQUIVALENTS = (
    (
        "server/clock",
        'return generator(seed, f"availability{again}", hour).random(clients) < chance_K',
        "return (generator(seed, f'availability{again}', hour).random(clients) <= chance_K)",
        _DRAW,
    ),
    *(
        ("server/clock", f"return float({seconds})", f"return {seconds}", "it is a float already: math.exp returns one")
        for seconds in (
            "read / pace.texts_per_second * math.exp(pace.jitter * now) * times",
            "read / pace.texts_per_second * math.exp(pace.jitter * now - pace.spread * speed.standard_normal())",
        )
    ),
    *(
        ("server/weighted_sum", f"_CHUNK = 1 << 15{comment}", f"_CHUNK = {size}{comment}", _PIECES)
        for comment in ("  # numbers at a time, so that intermediate results stay in the cache",)
        for size in ("2 << 15", "1 << 16", "1 << 14")
    ),
    *(
        ("server/weighted_sum", "step = max(1, _CHUNK // delta.shape[1])", changed, _PIECES)
        for changed in (
            "step = max(2, _CHUNK // delta.shape[1])",
            "step = max(1, (_CHUNK * delta.shape[1]))",
        )
    ),
    (
        "server/weighted_sum",
        "if self.holders_V is not None and other.holders_V is not None:",
        "if (self.holders_V is not None or other.holders_V is not None):",
        "the parts of one sum all count holders, or none does",
    ),
    (
        "server/weighted_sum",
        "shares_V = np.divide(self.weight, self.holders_V, out=np.zeros_like(self.holders_V), where=held_V)",
        "shares_V = np.divide(self.weight, self.holders_V, out=np.ones_like(self.holders_V), where=held_V)",
        "the sum of a row that no client holds is zero",
    ),
    (
        "server/weighted_sum",
        "flat_N = delta.reshape(-1)",
        "flat_N = delta.reshape(-2)",
        "numpy takes every negative length for the one that is left over",
    ),
    (
        "server/downlink",
        "name for name, changed in earlier.items() if not changed or self.took_part.get(client.id, 0) > changed",
        "name for name, changed in earlier.items() if not changed or self.took_part.get(client.id, 1) > changed",
        "a round that is compared with is 1 at least, and 1 > 1 is as false as 0 > 1",
    ),
    (
        "server/downlink",
        "self.drawn = one",
        "pass",
        "cohorts of all earlier rounds are drawn once more, to the same",
    ),
    (
        "server/downlink",
        "before = range(round_ - 1, 0, -1)",
        "before = range(round_ - 0, 0, -1)",
        "it is asked of tensors that are not shared in this round",
    ),
    (
        "server/downlink",
        "return self.received.shapes.get(TABLE, (0,))[0]",
        "return self.received.shapes.get(TABLE, (1,))[0]",
        "how many rows a table has that is not shared is never asked",
    ),
    (
        "server/downlink",
        "self.drawn = 0",
        "self.drawn = 1",
        "what a client that took part in the first round alone lacks is what one lacks that never took part",
    ),
    (
        "server/optimizers",
        "if optimizer.lr != 1:",
        "if optimizer.lr != 0:",
        "a rate of 0 is refused, and 1 times a number is that number: only time is saved",
    ),
    (
        "server/sampling",
        "ids_K = ids_K[rng.random(len(ids_K)) < config.fraction]",
        "ids_K = ids_K[(rng.random(len(ids_K)) <= config.fraction)]",
        _DRAW,
    ),
    (
        "server/sampling",
        'return [i for i in ids if generator(seed, f"dropout{again}", round_, i).random() >= chance]',
        "return [i for i in ids if (generator(seed, f'dropout{again}', round_, i).random() > chance)]",
        _DRAW,
    ),
    (
        "server/sampling",
        "elif size < len(ids_K):",
        "elif (size <= len(ids_K)):",
        "as many distinct clients as there are, sorted, are all of them",
    ),
)
