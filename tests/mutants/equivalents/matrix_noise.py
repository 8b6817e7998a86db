"""Equivalent mutants of ``fedtext/matrix_noise/``."""

_TIME = "a limit on the time of a search: that its neighbour is used instead changes no number"
_NONE = "the entry of no participation is only compared with those of more, which are larger; it is never added"
_EMPTY = "further counts have no pattern, and their tables are left out"

_MOST = "  # additions that are worth an exact number: a fraction of a second, which the ledger asks each round"
_BITS = "for level in range(rounds.bit_length() - 1, -1, -1):"
_ROW = "  # of the trees so far, by participations: rounds behind the last one"

EQUIVALENTS = (
    *(
        ("matrix_noise/tree_patterns", f"200_000_000{_MOST}", f"{changed}{_MOST}", _TIME)
        for changed in ("200000001", "199999999")
    ),
    (
        "matrix_noise/tree_patterns",
        f"row: Table = [np.zeros((1, separation))]{_ROW}",
        f"row: Table = [np.ones((1, separation))]{_ROW}",
        _NONE,
    ),
    (
        "matrix_noise/tree_patterns",
        "return [np.zeros((separation, separation)), one]",
        "return [np.ones((separation, separation)), one]",
        _NONE,
    ),
    *(
        ("matrix_noise/tree_patterns", _BITS, _BITS.replace("rounds.bit_length() - 1,", changed), "these bits are 0")
        for changed in ("(rounds.bit_length() + 1),", "rounds.bit_length() - 0,")
    ),
    (
        "matrix_noise/tree_patterns",
        "return float(max(each[0, 0] for each in row))",
        "return max((each[0, 0] for each in row))",
        "numpy's float64 is a float",
    ),
    *(
        (
            "matrix_noise/tree_patterns",
            "separation = right[0].shape[1]",
            changed,
            "all tables of the right one are b x b",
        )
        for changed in ("separation = right[1].shape[1]", "separation = right[0].shape[0]")
    ),
    *(
        (
            "matrix_noise/tree_patterns",
            "for count in range(len(left) + len(right) - 1):",
            f"for count in range({changed}):",
            _EMPTY,
        )
        for changed in ("(len(left) + len(right) + 1)", "len(left) + len(right) - 0")
    ),
    ("matrix_noise/tree_patterns", "break", "pass", _EMPTY),
    *(
        ("matrix_noise/tree", f"return float({value}){said}", f"return {value}{said}", "numpy's float64 is a float")
        for value, said in (
            ("np.sqrt(largest_square(there, apart))", ""),
            ("np.sqrt(squared)", ""),
            ("np.sqrt(len(_sizes(self.rounds)))", "  # the first round is in a complete node of each level"),
        )
    ),
    ("matrix_noise/tree", "return np.asarray(change_P)", "return change_P", "it is an array, for mypy"),
    (
        "matrix_noise/tree",
        "for _ in range(1, levels):",
        "for _ in range(0, levels):",
        "a level more than there are, which nothing reads",
    ),
)
