"""Which cluster an address means, without Ray."""

import socket
from pathlib import Path

import pytest

from actors.address import check, named
from fedtext.errors import UserError

ELSEWHERE, LAST = "10.0.0.2:6379", "10.0.0.1:6379"


@pytest.mark.parametrize(
    ("given", "environment", "last", "meant"),
    [
        (None, None, LAST, None),
        ("", "", LAST, None),
        (None, ELSEWHERE, LAST, ELSEWHERE),
        (LAST, ELSEWHERE, "", LAST),
        ("auto", None, LAST, LAST),
        ("auto", None, "", "auto"),
        ("auto", ELSEWHERE, LAST, ELSEWHERE),
        (None, "auto", LAST, LAST),
        (None, "local", LAST, None),
        ("auto", "local", LAST, None),
    ],
)
def test_an_address_means_one_cluster(
    given: str | None,
    environment: str | None,
    last: str,
    meant: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    if last:
        (tmp_path / "ray").mkdir()
        (tmp_path / "ray" / "ray_current_cluster").write_text(f"{last}\n")
    if environment is None:
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
    else:
        monkeypatch.setenv("RAY_ADDRESS", environment)
    assert named(given) == meant


def test_a_cluster_that_has_gone_is_one_sentence() -> None:
    """Ray's file names it until another one is started, and Ray itself would try for minutes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        check(address)
    with pytest.raises(UserError, match=rf"no Ray cluster answers at {address} .*: start it \(ray start --head\)"):
        check(address)
    check("auto")
