"""Encryption of the state of runs by a key from the environment: AES-256 in Galois/Counter Mode (NIST SP 800-38D).

A content is encrypted in chunks, each under a random nonce of 12 bytes, with the name of the content, the number of the
chunk and whether it is the last one as associated data: a file that was put into the place of another one, or was cut,
is not decrypted.
"""

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fedtext.errors import UserError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

VARIABLE = "FEDTEXT_STATE_KEY"
INSTALL = f"{VARIABLE}: cryptography is not installed: pip install 'fedtext[encryption]'"
_BYTES, _NONCE, _TAG = 32, 12, 16
_CHUNK = 1 << 26  # bytes; the mode allows 2^36 in one message, the library 2^31


@dataclass(frozen=True)
class StateKey:
    """A key for the state of runs.

    Attributes:
        material: The bytes of the key.
    """

    material: bytes = field(repr=False)

    @property
    def id(self) -> str:
        """Identify the key. It cannot be derived from this."""
        return hashlib.blake2b(b"fedtext state", key=self.material, digest_size=8).hexdigest()

    def seal(self, content: bytes, name: str) -> bytes:
        """Return a content encrypted, under a name which is not in the result."""
        cipher, parts = _cipher(self.material), []
        starts = range(0, max(1, len(content)), _CHUNK)
        for number, start in enumerate(starts):
            nonce = os.urandom(_NONCE)
            said = _said(name, number, number == len(starts) - 1)
            parts += [nonce, cipher.encrypt(nonce, content[start : start + _CHUNK], said)]
        return b"".join(parts)

    def open(self, sealed: bytes, name: str) -> bytes:
        """Return the content that was encrypted under a name.

        Raises:
            UserError: It was encrypted under another name or key, or has changed.
        """
        from cryptography.exceptions import InvalidTag

        cipher, parts, size = _cipher(self.material), [], _NONCE + _CHUNK + _TAG
        starts = range(0, max(1, len(sealed)), size)
        try:
            for number, start in enumerate(starts):
                part = sealed[start : start + size]
                said = _said(name, number, number == len(starts) - 1)
                parts.append(cipher.decrypt(part[:_NONCE], part[_NONCE:], said))
        except (InvalidTag, ValueError) as error:
            raise UserError(f"{name} cannot be decrypted: it is another file, or has changed since") from error
        return b"".join(parts)


def state_key() -> StateKey | None:
    """Return the key in ``$FEDTEXT_STATE_KEY``; None if there is none, and states of runs are not encrypted.

    Raises:
        UserError: It is no key, or the library for it is not installed.
    """
    text = os.environ.get(VARIABLE, "")
    if not text:
        return None
    try:
        material = bytes.fromhex(text)
    except ValueError:
        material = b""
    if len(material) != _BYTES:
        raise UserError(f"{VARIABLE} is no key: it has 64 hexadecimal digits, such as `openssl rand -hex 32` prints")
    _cipher(material)
    return StateKey(material)


def check_key(key: StateKey | None, begun_with: str | None, what: str | Path) -> None:
    """Check that a run goes on with the key that it was begun with.

    Args:
        key: The key that there is now.
        begun_with: The ``id`` of the key that the run was begun with; None: it was begun without one.
        what: The run, or one of its files, for the message.

    Raises:
        UserError: It is another one, or only one of them is there.
    """
    if (key.id if key else None) == begun_with:
        return
    if key is None:
        raise UserError(f"{what} is encrypted: set {VARIABLE} to the key that the run was begun with")
    if begun_with is None:
        raise UserError(f"{what} was written without a key: unset {VARIABLE} to go on, or start a new run")
    raise UserError(f"{what} is encrypted with another key than {VARIABLE}: set the one that the run was begun with")


def _cipher(material: bytes) -> "AESGCM":
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise UserError(INSTALL) from error
    return AESGCM(material)


def _said(name: str, number: int, last: bool) -> bytes:
    return f"{name}/{number}/{'last' if last else 'more'}".encode()
