"""Equivalent mutants of ``fedtext/aggregations/``."""

_FIRST = "the first client's score exceeds minus infinity, and what was there before is multiplied by exp(-inf) = 0"
_PIECES = "how many numbers are treated at a time: each is treated once anyhow, so that speed alone changes"
_PIECES_SUMMED = "how many rows are summed at a time: speed, and the last bits of a norm in double precision"

EQUIVALENTS = (
    (
        "aggregations/attention",
        "self.sum_RN = np.zeros(as_matrix(tensor).shape)",
        "self.sum_RN = np.ones(as_matrix(tensor).shape)",
        _FIRST,
    ),
    *(
        (
            "aggregations/attention",
            f"self.largest, self.weight, self.squares = -math.inf, 0.0, 0.0{comment}",
            f"self.largest, self.weight, self.squares = -math.inf, {weight}, {squares}{comment}",
            _FIRST,
        )
        for comment in ("  # of exp(s_k - largest): the sum, and of squares",)
        for weight, squares in ((1.0, 0.0), (0.0, 1.0))
    ),
    (
        "aggregations/attention",
        'return spectral(delta_RN) if self.norm == "spectral" and len(delta_RN) > 1 else frobenius(delta_RN)',
        'return spectral(delta_RN) if self.norm == "spectral" and (len(delta_RN) >= 1) else frobenius(delta_RN)',
        "a matrix of one row has one singular value, its Frobenius norm",
    ),
    (
        "aggregations/attention",
        'score = self._distance(delta_RN) if self.attention == "softmax" else 0.0',
        'score = self._distance(delta_RN) if self.attention == "softmax" else 1.0',
        "exp(s - s) = 1, whatever score all clients have",
    ),
    (
        "aggregations/attention",
        'return spectral(delta_RN) if self.norm == "spectral" and len(delta_RN) > 1 else frobenius(delta_RN)',
        'return spectral(delta_RN) if self.norm == "spectral" and len(delta_RN) > 0 else frobenius(delta_RN)',
        "both norms of a single row are its length",
    ),
    (
        "aggregations/attention",
        "if score > self.largest:",
        "if (score >= self.largest):",
        "what was there before is multiplied by exp(0) = 1",
    ),
    (
        "aggregations/norm_bounded",
        "return self.norm / found if found > self.norm else 1.0",
        "return self.norm / found if (found >= self.norm) else 1.0",
        "of two equal numbers the quotient is 1",
    ),
    *(
        ("aggregations/norms", f"_CHUNK = 1 << 15{comment}", f"_CHUNK = {size}{comment}", _PIECES_SUMMED)
        for comment in ("  # numbers at a time, so that intermediate results stay in the cache",)
        for size in ("2 << 15", "1 << 16", "1 << 14")
    ),
    *(
        ("aggregations/norms", "step = max(at_least, _CHUNK // max(1, matrix_RN.shape[1]))", changed, _PIECES_SUMMED)
        for changed in (
            "step = max(at_least, (_CHUNK * max(1, matrix_RN.shape[1])))",
            "step = max(at_least, _CHUNK // max(2, matrix_RN.shape[1]))",
            "step = max(at_least, _CHUNK // max(1, matrix_RN.shape[0]))",
        )
    ),
    (
        "aggregations/norms",
        "return tensor.reshape(len(tensor), math.prod(tensor.shape[1:])) if tensor.ndim > 1 else tensor.reshape(1, -1)",
        "return tensor.reshape(len(tensor), math.prod(tensor.shape[1:])) if (tensor.ndim >= 1) else "
        "tensor.reshape(1, -1)",
        "a vector as one column has the norms that it has as one row, to the last bits",
    ),
    *(
        (
            "aggregations/norms",
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
        "aggregations/norms",
        "tall_RN = delta_RN.T if len(delta_RN) < delta_RN.shape[1] else delta_RN",
        "tall_RN = (delta_RN if len(delta_RN) < delta_RN.shape[1] else delta_RN.T)",
        "both Gram matrices have the same largest eigenvalue: the larger one costs more time",
    ),
    (
        "aggregations/norms",
        "return tensor.reshape(len(tensor), math.prod(tensor.shape[1:])) if tensor.ndim > 1 else tensor.reshape(1, -1)",
        "return tensor.reshape(len(tensor), math.prod(tensor.shape[1:])) if tensor.ndim > 0 else tensor.reshape(1, -1)",
        "a vector as one column has the norms that it has as one row, to the last bits",
    ),
    (
        "aggregations/norms",
        "return tensor.reshape(len(tensor), math.prod(tensor.shape[1:])) if tensor.ndim > 1 else tensor.reshape(1, -1)",
        "return tensor.reshape(len(tensor), math.prod(tensor.shape[1:])) if tensor.ndim > 1 else tensor.reshape(-1, 1)",
        "a vector as one column has the norms that it has as one row, to the last bits",
    ),
    (
        "aggregations/norms",
        "def parts(matrix_RN: NDArray[np.float32], at_least: int = 1) -> Iterator[slice]:",
        "def parts(matrix_RN: NDArray[np.float32], at_least: int = 2) -> Iterator[slice]:",
        _PIECES_SUMMED,
    ),
    (
        "aggregations/norms",
        "return tensor.reshape(len(tensor), math.prod(tensor.shape[1:])) if tensor.ndim > 1 else tensor.reshape(1, -1)",
        "return tensor.reshape(len(tensor), math.prod(tensor.shape[1:])) if tensor.ndim > 1 else tensor.reshape(1, -2)",
        "numpy takes every negative length for the one that is left over",
    ),
    *(
        (
            "aggregations/trimmed_mean",
            f"return math.floor(self.share * updates + 1e-9){comment}",
            f"return math.floor(self.share * updates + 2e-09){comment}",
            "more than a product of such numbers is rounded by, and far less than a share has decimals",
        )
        for comment in ("  # 0.29 * 100 is just below 29",)
    ),
    *(
        ("aggregations/update_set", f"_PIECE = 1 << 18{comment}", f"_PIECE = {size}{comment}", _PIECES)
        for comment in ("  # numbers of a piece, in float64: 2 MB, about a core's cache",)
        for size in ("2 << 18", "1 << 19", "1 << 17")
    ),
    *(
        ("aggregations/update_set", "step = max(1, _PIECE // max(1, len(self) * numbers))", changed, _PIECES)
        for changed in (
            "step = max(2, _PIECE // max(1, len(self) * numbers))",
            "step = max(1, _PIECE // max(2, len(self) * numbers))",
        )
    ),
)
