"""States of runs that are encrypted: what a reader without the key sees, and which key a run goes on with."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

import fedtext
from fedtext.errors import UserError
from fedtext.state import seal
from fedtext.state.checkpoint import Checkpoints, history, recorded
from fedtext.state.noise_key import FILE
from fedtext.state.seal import VARIABLE, StateKey, check_key, state_key
from fedtext.testing import tiny
from tests.fedtext.state.test_segments import Run, exchange
from tests.loops import nonempty

pytest.importorskip("cryptography")
ONE, OTHER = StateKey(bytes(range(32))), StateKey(bytes(32))


def test_what_is_sealed_opens_under_its_name_and_key_alone() -> None:
    content = b"private" * 10
    sealed = ONE.seal(content, "name")
    assert content[:7] not in sealed
    assert ONE.open(sealed, "name") == content
    assert ONE.seal(content, "name") != sealed, "no nonce comes twice"
    for key, name, other in (
        (ONE, "another", sealed),
        (OTHER, "name", sealed),
        (ONE, "name", sealed[:-1]),
        (ONE, "name", sealed[:5]),
        (ONE, "name", b""),
        (ONE, "name", bytes([sealed[0] ^ 1]) + sealed[1:]),
        (ONE, "name", sealed[:-1] + bytes([sealed[-1] ^ 1])),
    ):
        with pytest.raises(UserError, match=f"^{name} cannot be decrypted"):
            key.open(other, name)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 16, 40])
def test_long_contents_are_sealed_in_chunks_that_keep_their_places(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert seal._CHUNK == 67_108_864, "with another one, earlier files could not be opened"
    monkeypatch.setattr(seal, "_CHUNK", 8)
    content = bytes(range(size))
    sealed = ONE.seal(content, "name")
    assert len(sealed) == size + 28 * max(1, -(-size // 8))
    assert ONE.open(sealed, "name") == content
    if size > 8:
        for moved in (sealed[:36], sealed[36:], sealed[36:72] + sealed[:36] + sealed[72:]):
            with pytest.raises(UserError, match="cannot be decrypted"):
                ONE.open(moved, "name")


def test_a_ciphertext_is_that_of_the_standard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Test case 13 of the mode's specification: an empty text under a key and a nonce of zeros, here without a name."""
    monkeypatch.setattr(os, "urandom", bytes)
    monkeypatch.setattr(seal, "_said", lambda name, number, last: b"")
    assert OTHER.seal(b"", "").hex() == "00" * 12 + "530f8afbc74536b9a963b4f1c4cb738b"


@pytest.mark.parametrize("text", ["secret", "00" * 31, "00" * 33, "zz" * 32])
def test_what_is_no_key_is_refused_and_not_repeated(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(UserError, match=f"^{VARIABLE} is no key: it has 64 hexadecimal digits") as refused:
        state_key()
    assert text not in str(refused.value)
    assert repr(OTHER) == "StateKey()"
    assert len(bytes.fromhex(OTHER.id)) == 8


def test_keys_are_told_apart() -> None:
    check_key(None, None, "run")
    check_key(ONE, ONE.id, "run")
    for key, begun_with, words in (
        (None, ONE.id, f"run is encrypted: set {VARIABLE} to the key"),
        (ONE, None, f"run was written without a key: unset {VARIABLE}"),
        (ONE, OTHER.id, f"run is encrypted with another key than {VARIABLE}"),
    ):
        with pytest.raises(UserError) as refused:
            check_key(key, begun_with, "run")
        assert str(refused.value).startswith(words)


def run(folder: Path, rounds: int) -> Any:
    content = tiny.experiment("kteps", uplink=[{"clip": {"norm": 1.0}}, {"gaussian": {"sigma": 0.1}}]).model_dump(
        mode="json"
    )
    made = fedtext.load(content | {"privacy": {"noise": "secret"}}, f"training.rounds={rounds}", "corpus.clients=3")
    return fedtext.run(made, out=folder, resume=True)


def test_a_run_is_encrypted_and_goes_on_with_its_key_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("randomgen")
    monkeypatch.setenv(VARIABLE, ONE.material.hex())
    run(tmp_path, 2)
    fingerprint = recorded(tmp_path)
    assert fingerprint is not None
    snapshot = Checkpoints(tmp_path, fingerprint, ONE).load()
    assert snapshot is not None
    private = [state for state in snapshot.clients.values() if state]
    secrets = [snapshot.flat.tobytes()[:16], *(state[-16:] for state in nonempty(private)), b"encoder"]
    for file in nonempty(path for path in tmp_path.rglob("round-*/*") if path.name != "state.json"):
        content = file.read_bytes()
        assert not [secret for secret in secrets if secret in content], file.name
    assert (tmp_path / FILE).read_text().startswith(f"encrypted {ONE.id} ")
    assert len(history(tmp_path)) == 2, "records can be read without it"

    for value, words in (("", "is encrypted: set"), (OTHER.material.hex(), "is encrypted with another key")):
        monkeypatch.setenv(VARIABLE, value)
        with pytest.raises(UserError, match=words):
            run(tmp_path, 3)
        (tmp_path / FILE).rename(tmp_path / "aside")
        with pytest.raises(UserError, match=r"noise\.key is missing"):
            run(tmp_path, 3)
        (tmp_path / "aside").rename(tmp_path / FILE)
        with pytest.raises(UserError, match=words):
            Checkpoints(tmp_path, fingerprint, state_key()).load()
    monkeypatch.setenv(VARIABLE, ONE.material.hex())
    assert len(run(tmp_path, 3).history) == 3


def test_a_run_without_a_key_goes_on_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    fedtext.run(tiny.experiment(), "training.rounds=1", out=tmp_path)
    monkeypatch.setenv(VARIABLE, ONE.material.hex())
    with pytest.raises(UserError, match=r"round-000001 was written without a key: unset FEDTEXT_STATE_KEY"):
        fedtext.run(tiny.experiment(), "training.rounds=2", out=tmp_path, resume=True)


def test_files_that_are_shared_open_in_each_round_and_others_in_their_own_alone(tmp_path: Path) -> None:
    encrypted = Run(tmp_path, clients=8, key=ONE)
    for _ in range(9):
        encrypted.round(100)
        encrypted.check()
    earlier, later = (tmp_path / f"round-00000{round_}" / "server.f32" for round_ in (8, 9))
    exchange(later, earlier.read_bytes())
    with pytest.raises(UserError, match=r"one/9/server\.f32 cannot be decrypted"):
        encrypted.check()


def test_without_the_library_a_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    monkeypatch.setenv(VARIABLE, ONE.material.hex())
    with pytest.raises(UserError, match=r"cryptography is not installed: pip install 'fedtext\[encryption\]'"):
        state_key()
