"""Equivalent mutants of ``fedtext/mechanisms/``."""

_LEAST = "1/2 - (1 - 2 flip) / 2 is the least chance already, and stays it beyond"
_PIECES_DRAWN = "how many bits are drawn at a time: which random word a bit takes changes, its probability does not"

EQUIVALENTS = (
    (
        "mechanisms/clip",
        "scale = np.float32(min(1.0, norm / length)) if length else np.float32(1)",
        "scale = np.float32(min(1.0, norm / length)) if length else np.float32(0)",
        "of an update of zeros any multiple is zeros",
    ),
    (
        "mechanisms/clip",
        "scale = np.float32(min(1.0, norm / length)) if length else np.float32(1)",
        "scale = np.float32(min(1.0, norm / length)) if length else np.float32(2)",
        "of an update of zeros any multiple is zeros",
    ),
    (
        "mechanisms/clip",
        "clipped = delta if scale == 1 else {name: tensor * scale for name, tensor in delta.items()}",
        "clipped = delta if scale == 0 else {name: tensor * scale for name, tensor in delta.items()}",
        "once each number, to the last bit",
    ),
    (
        "mechanisms/clip",
        "clipped = delta if scale == 1 else {name: tensor * scale for name, tensor in delta.items()}",
        "clipped = delta if scale == 2 else {name: tensor * scale for name, tensor in delta.items()}",
        "once each number, to the last bit",
    ),
    (
        "mechanisms/clip",
        "return bool(left[WITHIN][0] < 0) if self.adaptive else _length(left) >= self.norm * (1 - _ROUNDED)",
        "return bool(left[WITHIN][0] < 0) if self.adaptive else (_length(left) > self.norm * (1 - _ROUNDED))",
        "no update has that length to the last bit",
    ),
    *(
        ("mechanisms/draws", f"_CHUNK = 1 << 16{comment}", f"_CHUNK = {size}{comment}", _PIECES_DRAWN)
        for comment in ("  # coordinates at a time, so that intermediate results stay in the cache",)
        for size in ("2 << 16", "1 << 17", "1 << 15")
    ),
    (
        "mechanisms/draws",
        "np.greater(part, 0, out=side) if slope > 0 else np.less(part, 0, out=side)",
        "np.greater(part, 0, out=side) if (slope >= 0) else np.less(part, 0, out=side)",
        "at a slope of 0 both values are as likely, whatever the sign",
    ),
    (
        "mechanisms/draws",
        "rest = np.clip((_LEVELS * chance - levels) * _REST, 0, np.nextafter(_REST, 0))",
        "rest = np.clip(0, (_LEVELS * chance - levels) * _REST, np.nextafter(_REST, 0))",
        "max(a, 0) = max(0, a)",
    ),
    (
        "mechanisms/draws",
        "size = min(_CHUNK, len(flat_N))",
        "size = max(_CHUNK, len(flat_N))",
        "the length of buffers of which each piece takes as much as it needs: only memory changes",
    ),
    (
        "mechanisms/draws",
        "rest = np.clip((_LEVELS * chance - levels) * _REST, 0, np.nextafter(_REST, 0))",
        "rest = np.clip((_LEVELS * chance - levels) * _REST, 0, np.nextafter(_REST, 1))",
        "the next number towards 1 is the next one towards 0",
    ),
    (
        "mechanisms/draws",
        "flat_N, bits_N = np.ravel(numbers), bits.reshape(-1)",
        "flat_N, bits_N = np.ravel(numbers), bits.reshape(-2)",
        "numpy takes every negative length for the one that is left over",
    ),
    (
        "mechanisms/project",
        "return vectors_DD * np.sign(vectors_DD[largest_D, np.arange(len(largest_D))])",
        "return (vectors_DD / np.sign(vectors_DD[largest_D, np.arange(len(largest_D))]))",
        "the largest entry of a vector of length one is not 0, and its sign is 1 or -1",
    ),
    (
        "mechanisms/randomized_response",
        "each, run = composition.basic(epsilon, count), composition.basic(epsilon, every)",
        "each, run = composition.basic(epsilon, count), composition.basic(every, epsilon)",
        "a b = b a",
    ),
    (
        "mechanisms/randomized_response",
        "each, run = composition.basic(epsilon, count), composition.basic(epsilon, every)",
        "each, run = composition.basic(count, epsilon), composition.basic(epsilon, every)",
        "a b = b a",
    ),
    *(
        (
            "mechanisms/randomized_response",
            "return {name: bernoulli(sign, 1 - 2 * flip, flip, rng) for name, sign in signs.items()}",
            f"return {{name: bernoulli(sign, {slope}, flip, rng) for name, sign in signs.items()}}",
            _LEAST,
        )
        for slope in ("(1 + 2 * flip)", "2 - 2 * flip", "1 - 1 * flip")
    ),
    *(
        (
            "mechanisms/randomized_response",
            "signs = {name: np.where(bits, np.float32(0.5), np.float32(-0.5)) for name, bits in delta.items()}",
            f"signs = {{name: np.where(bits, np.float32({one}), np.float32({other})) for name, bits in delta.items()}}",
            _LEAST,
        )
        for one, other in ((0.5, -1.0), (1.0, -0.5))
    ),
)
