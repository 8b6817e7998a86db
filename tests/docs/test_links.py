"""docs/links.py: links and anchors are those of a forge."""

from docs import links

PAGE = """# Read a `ledger`

[one](a.md#x) and `[code](b.md)` and [two](../c.md)

```yaml
[three](d.md)
# no heading
```

## A thing, and [another](e.md): "it's"
## A thing, and [another](e.md): "it's"
<a id="given"></a>
"""


def test_anchors_are_those_of_a_forge() -> None:
    assert links.anchors(PAGE) == ["read-a-ledger", "a-thing-and-another-its", "a-thing-and-another-its-1", "given"]


def test_links_in_code_are_none() -> None:
    assert links.targets(PAGE) == ["a.md#x", "../c.md", "e.md", "e.md"]
    assert links.replace_targets("[a](b) `[a](b)` [c](b)", str.upper) == "[a](B) `[a](b)` [c](B)"


def test_special_tokens_are_shown_and_no_html() -> None:
    assert links.escape_tokens("a <unk> of </s> `<pad>` <br>") == "a &lt;unk> of &lt;/s> `<pad>` <br>"


def test_a_code_span_ends_with_as_many_backticks_as_it_began_with() -> None:
    assert links.targets("``a `[b](c)` d`` [e](f) `` ` `` [g](h)") == ["f", "h"]


def test_backticks_without_an_end_begin_no_code() -> None:
    assert links.targets("(`tags.`lr``) [a](b) `c` [d](e)\n\n[f](g) `` [h](i)") == ["b", "e", "g", "i"]
    assert links.targets("a ` b\n\n[c](d) ` e") == ["d"]
