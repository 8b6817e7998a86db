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
