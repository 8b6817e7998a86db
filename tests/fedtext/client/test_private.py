"""Private tensors of clients in a bounded memory: what comes back is what was put in."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fedtext.client import private
from fedtext.client.private import PrivateStates
from fedtext.errors import UserError
from tests import tiny
from tests.loops import nonempty
from tests.outcomes import final


def tensors(client: int, round_: int = 0) -> dict[str, NDArray]:
    return {"a": np.full((5, 10), client + 100 * round_, np.float32), "#steps": np.array([client, round_])}


def same(one: dict[str, NDArray], two: dict[str, NDArray]) -> bool:
    return one.keys() == two.keys() and all(
        np.array_equal(one[n], two[n]) and one[n].dtype == two[n].dtype for n in one
    )


@pytest.mark.parametrize("encrypted", [False, True])
def test_clients_come_back_from_disk_and_memory_is_bounded(encrypted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if encrypted:
        pytest.importorskip("cryptography")
    else:
        monkeypatch.setattr(private, "find_spec", lambda name: None)
    states, rng, expected = PrivateStates(most=3 * 216), np.random.default_rng(0), dict[int, dict[str, NDArray]]()
    for step in range(300):
        client = int(rng.integers(20))
        if step % 3:
            assert same(states.get(client, {}), expected.get(client, {}))
        else:
            states[client] = expected[client] = tensors(client, step)
        assert len(states.recent) <= 3
        assert states.end <= 3 * states.most + 40 * 400, "what is superseded is removed from the file"
        assert states.needed == sum(size for _, size in states.places.values())
    assert sorted(states) == sorted(expected)
    for client, there in nonempty(list(expected.items())):
        assert same(states[client], there)
    assert (states.key is not None) == encrypted
    assert states.file is not None
    states.file.seek(0)
    assert (b'"F32"' in states.file.read()) != encrypted


def test_what_a_checkpoint_gets_is_not_brought_into_memory_and_restores_everything() -> None:
    states, other = PrivateStates(most=3 * 216), PrivateStates(most=216)
    for client in range(10):
        states[client] = tensors(client)
    states[99] = {}
    recent = list(states.recent)
    found = states.encoded()
    assert list(states.recent) == recent
    assert list(found) == list(range(10)), "those that have tensors"
    assert states.sizes().keys() == found.keys()
    assert {states.sizes()[client] for client in recent if client != 99} == {216}
    assert states.encoded([99, 100, 3]) == {99: b"", 100: b"", 3: found[3]}
    other.restore(found)
    for client in nonempty(range(10)):
        assert same(other[client], tensors(client))
    del other[3], other[9]
    assert set(other) == set(range(10)) - {3, 9}
    assert 3 not in other


def test_a_run_that_pages_its_state_gives_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = tiny.experiment("kteps", participation={"fraction": 0.5}, training=tiny.TRAINING | {"rounds": 6})
    corpus = tiny.corpus(clients=6)
    expected = final(tiny.federation(experiment, corpus))
    monkeypatch.setattr("fedtext.client.host.PrivateStates", lambda: PrivateStates(most=1))
    paged = tiny.federation(experiment, corpus, folder=tmp_path)
    assert final(paged) == expected
    assert paged.fleet.worker.private.file is not None
    assert len(paged.fleet.worker.private.recent) == 1


def test_a_full_disk_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is a device that is always full."""
    monkeypatch.setattr("tempfile.TemporaryFile", lambda: Path("/dev/full").open("w+b"))  # noqa: SIM115
    states = PrivateStates(most=1)
    states[0] = {"table": np.ones(9)}
    with pytest.raises(
        UserError, match=r"^private states of clients: /\S+ cannot be written \(No space left on device\):"
    ):
        states[1] = {"table": np.ones(9)}
