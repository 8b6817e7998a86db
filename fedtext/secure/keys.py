"""Keys of a round, and what is made from them: X25519, HKDF-SHA256, AES-256 in GCM for shares, and AES-128 in counter
mode for masks, which has the strength of X25519."""

import os

import numpy as np
from numpy.typing import NDArray

from fedtext.errors import UserError

INSTALL = "server.secure_aggregation: cryptography is not installed: pip install 'fedtext[encryption]'"
KEY, NONCE = 32, 12  # bytes
_MASK = 16  # bytes of a key that its mask is made from
_CHUNK = 1 << 16  # integers of a mask at a time, so that they stay in the cache
_ZEROS = bytes(4 * _CHUNK)


def check_installed() -> None:
    """Raise UserError if the library with the primitives is missing."""
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise UserError(INSTALL) from error


class KeyPair:
    """A pair of X25519 keys.

    Args:
        private: The private key; None: a new one.

    Attributes:
        private: The private key, 32 bytes.
        public: The public key, 32 bytes.
    """

    def __init__(self, private: bytes | None = None) -> None:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        made = X25519PrivateKey.generate() if private is None else X25519PrivateKey.from_private_bytes(private)
        self._key: X25519PrivateKey = made
        self.private = made.private_bytes_raw()
        self.public = made.public_key().public_bytes_raw()

    def agreed(self, public: bytes, purpose: bytes) -> bytes:
        """Return the key that the holder of another pair computes too.

        Args:
            public: The public key of that pair.
            purpose: What the key is for. Keys of different purposes are independent.
        """
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        secret = self._key.exchange(X25519PublicKey.from_public_bytes(public))
        return HKDF(SHA256(), KEY, None, b"fedtext secure aggregation " + purpose).derive(secret)


def seal(key: bytes, content: bytes, way: bytes) -> bytes:
    """Return a content encrypted, under a random nonce.

    Args:
        key: 32 bytes.
        content: The content.
        way: From whom to whom it goes, which has to be named again to open it.
    """
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(NONCE)
    return nonce + AESGCM(key).encrypt(nonce, content, way)


def unseal(key: bytes, sealed: bytes, way: bytes) -> bytes:
    """Return what was sealed.

    Args:
        key: The key.
        sealed: What ``seal`` returned.
        way: From whom to whom it went.

    Raises:
        ValueError: It was sealed with another key, or for another way, or has changed.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(key).decrypt(sealed[:NONCE], sealed[NONCE:], way)
    except InvalidTag as error:
        raise ValueError("a share was encrypted with another key, or has changed") from error


def add_mask(vector_N: NDArray[np.uint32], key: bytes, negative: bool = False) -> None:
    """Add the mask of a key to a vector modulo 2^32, in place: the key stream of AES-128 in counter mode.

    Args:
        vector_N: The vector, contiguous.
        key: 32 random bytes, used for no other mask. The mask follows from the first 16.
        negative: Subtract it instead.
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    stream = Cipher(algorithms.AES(key[:_MASK]), modes.CTR(bytes(16))).encryptor()
    buffer = bytearray(len(_ZEROS))
    mask = np.frombuffer(buffer, "<u4")
    combine = np.subtract if negative else np.add
    for start in range(0, len(vector_N), _CHUNK):
        part = vector_N[start : start + _CHUNK]
        stream.update_into(memoryview(_ZEROS)[: part.nbytes], buffer)
        combine(part, mask[: len(part)], out=part)
