"""The library's modules import each other in one direction only."""

from benchmarks.house import circles, imports
from tests import ROOT


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Also not for types alone (``TYPE_CHECKING``), which import-linter's contract of packages allows inside one."""
    graph = imports(ROOT)
    assert "fedtext.errors" in graph["fedtext.server.start"]
    assert circles(graph) == []
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [{"a", "b", "c"}]
