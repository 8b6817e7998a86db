"""Values that nobody expects, and YAML that says more than it seems to."""

import datetime
import random
from typing import Any

NUMBERS = (0, 1, -1, 2, 7, 10**6, 10**9, -(10**9), 2**31, 2**63, 10**18, 10**30, 10**400)
FLOATS = (0.5, -0.5, 1e-320, 1e-9, 1e9, 1e308, -1e308, float("inf"), float("-inf"), float("nan"))
STRINGS = (
    *("", " ", "x", "auto", "none", "null", "all", "nan", "1e5", "-", ".", "..", "/", "~", "%s {0}", "ünï ✓", "\0"),
    *("\x1b[31m", "a" * 100_000, "two\nlines", "\ud800", "name: x", "[", "s3://", "file://", "s3://bucket/../.."),
    *("http://[", "a/../../b"),
)
CONTAINERS: tuple[Any, ...] = (
    *([], {}, [[]], [None], [1, 2], ["x"], [{}], {"name": "x"}, {"name": None}, {"name": []}, {"x": 1}, {"": 1}),
    *({1: 2}, {None: 1}, {"a": {"b": {"c": 1}}}, [0] * 1000, ["clip"] * 200, {"grid": [1]}, {"grid": []}),
)
TYPED: tuple[Any, ...] = (datetime.date(2026, 1, 1), datetime.datetime(1, 1, 1), b"\xff\x00", {"x"})
VALUES: tuple[Any, ...] = (None, True, False, *NUMBERS, *FLOATS, *STRINGS, *CONTAINERS, *TYPED)

BOMB = "&a0 [x, x, x, x, x, x, x, x, x, x]"
for _level in range(1, 10):
    BOMB = f"{BOMB}, &a{_level} [{', '.join([f'*a{_level - 1}'] * 10)}]"
TALL = "&m0 {k: x}"
for _level in range(1, 28):
    TALL = f"{TALL}, &m{_level} {{a: *m{_level - 1}, b: *m{_level - 1}}}"

# Pieces of YAML that stand for a value, written as they are.
YAML = (
    *("9" * 5000, "-" + "9" * 5000, "9" * 4000, "0x" + "f" * 5000, "0b" + "1" * 5000, "1e999999", "-1e999999"),
    *("1" + "_0" * 3000, ".inf", "-.inf", ".NaN", "!!float nan", "!!int x", "!!int 1.5", "!!float 1e", "!!bool maybe"),
    *("!!null x", "1:30:00", "1:1:1e5", "2026-13-45", "2026-01-01T99:99:99Z", "99999-01-01", "!!timestamp x"),
    *("&r [*r]", "&r {a: *r}", "&r {name: *r}", "*nowhere", "&r [[*r], {x: *r}]", "{<<: &r {<<: *r}}", f"[{BOMB}]"),
    *(f"[{TALL}]", "!!python/object/apply:os.system [true]", "!!python/name:os.system", "!!python/tuple [1, 2]"),
    *("!x y", "!<tag:x> y", "!!set {a, b}", "!!omap [a: 1]", "!!pairs [a: 1]", "!!binary zzz", "!!binary /////w=="),
    *("{[a]: b}", "{{a: b}: c}", "{? : }", "{<<: x}", "{<<: [1]}", "{=: 1}", "!!str [a]", "!!map x", "!!seq x"),
    *("[" * 300 + "]" * 300, "[" * 20_000, "{a: " * 300 + "1" + "}" * 300, "- " * 2000, "a: b: c", "# x", "---"),
    *(
        "'",
        '"',
        '"\\ud800"',
        '"\\x00"',
        "|",
        ">",
        "%",
        "@",
        "`",
        "...",
        "? x",
        "&",
        "*",
        "!",
        "{",
        "}",
        "]",
        ",",
        "[,]",
    ),
    *("\t", "\x00", "\x07", "\ufeff", "\u2028", "\x85"),
)
MARK = "yaml{}yaml"


def strange(draw: random.Random, marks: bool = False) -> Any:
    """A value; with ``marks`` also the name of a piece of YAML, which ``spliced`` writes out."""
    if marks and draw.random() < 0.3:
        return MARK.format(draw.randrange(len(YAML)))
    return draw.choice(VALUES)


def spliced(text: str) -> str:
    """The text with the pieces of YAML in the place of their names."""
    for number, piece in enumerate(YAML):
        text = text.replace(MARK.format(number), piece)
    return text
