"""Keys of random draws that protect data: noise of the uplink and of the server, and randomised response.

If two runs shared a draw, the difference of their outputs would reveal what the draw protects. Therefore these draws
are not derived from the seed alone, as all others are (``fedtext.seeding``). ``privacy.noise`` is one of two keys:

``reproducible``
    The key is derived from the seed and from everything on which the updates of a round depend. The same experiment on
    the same texts draws the same noise again, and different experiments share no draws. Anyone who knows the experiment
    can draw the noise too: this is a simulation. Devices and processors are not part of the key: they change the
    results by rounding, which unstable training amplifies, so that a round should be repeated on the same kind.
``secret``
    The key is derived from the same parts and from 32 bytes of the operating system, which are stored in the folder of
    the run's state, readable by its owner alone. Draws come from ChaCha20; they include clients' own initial vectors. A
    run that is resumed, or repeats a round, gives the same bits; another run of the same experiment, and another
    experiment in the same folder, have other keys.

With ``server.noise`` Poisson samples are drawn from either key. If the trials of a sweep had the same samples, a client
would be in a round of all of them or of none, and the guarantees of the trials together would not be amplified.
"""

import hashlib
import secrets
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedtext.config.experiment import Experiment
from fedtext.errors import UserError
from fedtext.runtime import durable
from fedtext.seeding import SERVER, generator
from fedtext.state.fingerprint import released
from fedtext.state.seal import StateKey, check_key

FILE = "noise.key"
_BYTES = 32
_ENCRYPTED = "encrypted"  # first word of the file if it is
INSTALL = "privacy.noise: secret draws from ChaCha20, and randomgen is not installed: pip install 'fedtext[secret]'"


@dataclass(frozen=True)
class NoiseKey:
    """The key of one run, from which its protective draws are derived. They differ by purpose, round and client.

    Attributes:
        material: The bytes of the key.
        secret: Whether it is secret.
    """

    material: bytes = field(repr=False)
    secret: bool = False

    def generator(self, purpose: str, round_: int = 0, client: int = SERVER) -> np.random.Generator:
        """Return a new generator for one purpose of one client in one round.

        Args:
            purpose: What is drawn. Draws of different purposes are independent.
            round_: Number of the round; 0: none.
            client: Id of the client; by default the server.

        Raises:
            UserError: The key is secret, and the library with ChaCha20 is not installed.
        """
        size = 32 if self.secret else 16
        name = f"{purpose}/{round_}/{client}".encode()
        key = int.from_bytes(hashlib.blake2b(name, key=self.material, digest_size=size).digest(), "little")
        if not self.secret:
            return np.random.Generator(np.random.Philox(key=key))
        try:
            from randomgen import ChaCha
        except ImportError as error:
            raise UserError(INSTALL) from error
        return np.random.Generator(ChaCha(key=key, rounds=20))

    def paired(self, seed: int, purpose: str, round_: int = 0, client: int = SERVER) -> np.random.Generator:
        """Return a generator for draws that protect data only if they are unknown: clients' own initial vectors.

        Poisson samples without ``server.noise`` are drawn from it too. Without a secret key it is derived from the
        seed, so that experiments with the same seed have the same vectors and samples.

        Args:
            seed: The experiment's seed.
            purpose: What is drawn.
            round_: Number of the round; 0: none.
            client: Id of the client; by default the server.
        """
        return self.generator(purpose, round_, client) if self.secret else generator(seed, purpose, round_, client)


def noise_key(
    experiment: Experiment, content: str, clients: int, folder: Path | None = None, key: StateKey | None = None
) -> NoiseKey:
    """Make the key of a run.

    Args:
        experiment: The experiment; its ``privacy.noise`` is the kind of key.
        content: Digest of the corpus (``Corpus.content``).
        clients: Number of participants.
        folder: Folder of the run's state. A secret key is loaded from it, or written to it before the first draw.
            None: a secret key ends with this process.
        key: Encrypts a secret key in the folder; None: it is not encrypted.

    Raises:
        UserError: The folder has checkpoints whose secret key is missing or damaged or was encrypted with another key,
            or the key cannot be written.
    """
    if experiment.privacy.noise == "reproducible":
        return NoiseKey(bytes.fromhex(released(experiment, content, clients)))
    entropy = _entropy(folder, key) if folder else secrets.token_bytes(_BYTES)
    name = bytes.fromhex(released(experiment, content, clients))
    made = NoiseKey(hashlib.blake2b(name, key=entropy, digest_size=_BYTES).digest(), secret=True)
    made.generator("installed")
    return made


def _entropy(folder: Path, key: StateKey | None) -> bytes:
    """Return the random bytes of the run in ``folder``. They are drawn and written if it has not begun."""
    if (folder / FILE).exists():
        return _read(folder / FILE, key)
    if any(folder.glob("round-*")):
        raise UserError(
            f"{folder / FILE} is missing: without it the rounds in {folder} cannot be continued under the same noise; "
            "put it back, or start a new run"
        )
    drawn = secrets.token_bytes(_BYTES)
    _write(folder / FILE, drawn, key)
    return drawn


def _read(file: Path, key: StateKey | None) -> bytes:
    try:
        text = file.read_text()
        encrypted = text.split() if text.startswith(_ENCRYPTED) else None
        check_key(key, encrypted[1] if encrypted and len(encrypted) == 3 else None, file)
        word, check = (key.open(bytes.fromhex(encrypted[2]), FILE).decode() if key and encrypted else text).split()
        material = bytes.fromhex(word)
        sound = len(material) == _BYTES and check == _check(material)
    except OSError as error:
        raise UserError(f"{file} cannot be read ({error.strerror}): it is the key of this run's noise") from error
    except UserError:
        raise
    except ValueError:
        sound = False
    if not sound:
        raise UserError(f"{file} is damaged: put back the key that this run was begun with, or start a new run")
    return material


def _write(file: Path, material: bytes, key: StateKey | None) -> None:
    """Write the random bytes durably before they are used, in a file that others can never read."""
    text = f"{material.hex()} {_check(material)}\n"
    if key:
        text = f"{_ENCRYPTED} {key.id} {key.seal(text.encode(), FILE).hex()}\n"
    try:
        durable.make_folder(file.parent)
        durable.write(file, text, 0o600)
    except OSError as error:
        raise UserError(f"the key of this run's noise cannot be written to {file} ({error.strerror})") from error


def _check(material: bytes) -> str:
    return hashlib.sha256(material).hexdigest()[:16]
