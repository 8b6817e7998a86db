"""The table of limits has those of the code."""

from docs.generate.markdown import ROOT
from fedtext.config import limits
from tests.loops import nonempty


def test_the_page_of_errors_has_every_limit() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()
    found = [value for value in vars(limits).values() if isinstance(value, limits.Limit)]
    assert len(found) == 7
    for limit in nonempty(found):
        (row,) = [line for line in page.splitlines() if line.startswith(f"| {limit.what}")]
        assert f"| {limit.most:,} |" in row
