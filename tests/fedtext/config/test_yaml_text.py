"""Texts that are no YAML, or more of it than anybody writes, are refused with the line."""

import pytest

from fedtext.config.yaml_text import DEEPEST, YAMLTextError, number, parse, with_numbers

DOUBLED = ", ".join(["&a0 [x]", *(f"&a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 20))])


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        ("a: 1\nb: &r [*r]", 2, "contains itself by an alias"),
        ("a: &r\n  b: {c: *r}", 1, "contains itself by an alias"),
        ("{<<: &r {<<: *r}}", 1, "contains itself by an alias"),
        (f"a: [{DOUBLED}]", 1, "more than 100,000 values"),
        ("a:\n " + "[" * 20_000, 2, f"nested more than {DEEPEST} deep"),
        ("a: 1\nb: 0x" + "f" * 5000, 2, "a whole number has more than 10000 bits"),
        ("a: " + "9" * 5000, None, "a value cannot be read"),
        ("a: !!bool maybe", None, "a value cannot be read"),
        ("a: !!timestamp x", None, "a value cannot be read"),
        ("a: !!python/name:os.system", 1, "this is not YAML"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, line: int | None, sentence: str) -> None:
    with pytest.raises(YAMLTextError, match=sentence) as refused:
        parse(text)
    assert refused.value.line == line


def test_aliases_and_depth_within_reason_are_read() -> None:
    assert parse("a: &one [1, 2]\nb: [*one, *one]") == {"a": [1, 2], "b": [[1, 2], [1, 2]]}
    deep = parse("[" * (DEEPEST - 1) + "]" * (DEEPEST - 1))
    assert len(deep) == 1
    assert parse("{<<: {a: 1}, b: 2}") == {"a": 1, "b": 2}


def test_numbers_in_lists_and_mappings_are_numbers() -> None:
    given = parse("{a: [1e-5, {b: 2e3, c: [lstm]}], d: 1e-2, e: [0.1]}")
    assert with_numbers(given) == {"a": [1e-5, {"b": 2000.0, "c": ["lstm"]}], "d": 0.01, "e": [0.1]}


def test_numbers_with_an_exponent_alone_are_numbers_and_other_texts_remain() -> None:
    assert [number(parse(text)) for text in ("1e-5", "-2E3", "+1.5e2", ".5e1", "3.e0")] == [1e-5, -2000.0, 150, 5, 3]
    for text in ("e5", "1e", "1e-5x", "1_0e5", "x", "1e999", "nan", "", "12", "\u0661e5"):
        assert number(text) == text
    assert number(True) is True
