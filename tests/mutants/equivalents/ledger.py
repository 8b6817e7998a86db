"""Equivalent mutants of ``fedtext/ledger/``."""

EQUIVALENTS = (
    (
        "ledger/__init__",
        "if not any(entry.holds for entry in known) or (holds and _run(stated) <= _run(known)):",
        "if not any(entry.holds for entry in known) or (holds and (_run(stated) < _run(known))):",
        "of two statements that are as strong either may count",
    ),
    *(
        (
            "ledger/__init__",
            "front = _chain(experiment.uplink[:place], Sent(1, 1, DELTA))",
            f"front = _chain(experiment.uplink[:place], Sent({count}, {rounds}, DELTA))",
            "whether something is guaranteed does not depend on the number of coordinates or rounds",
        )
        for count, rounds in ((0, 1), (2, 1), (1, 2))
    ),
    (
        "ledger/__init__",
        'return json.dumps(written, indent=1) + "\\n"',
        'return json.dumps(written, indent=0) + "\\n"',
        "how far a file of entries is indented",
    ),
    (
        "ledger/__init__",
        'return json.dumps(written, indent=1) + "\\n"',
        'return json.dumps(written, indent=2) + "\\n"',
        "how far a file of entries is indented",
    ),
)
