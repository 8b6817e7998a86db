"""Equivalent mutants of ``fedtext/layout.py``."""

EQUIVALENTS = (
    (
        "layout",
        "return bool(np.isfinite(tensor.sum()) or np.isfinite(tensor).all())",
        "return np.isfinite(tensor.sum()) or np.isfinite(tensor).all()",
        "it is a truth value already",
    ),
)
