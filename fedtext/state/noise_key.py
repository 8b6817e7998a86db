"""Keys of the random draws that hide something: noise of the uplink and of the server, and randomised response.

Two runs that share a draw can be subtracted from each other, and what the draw hid is left. So these draws do not come
from the seed alone, as all others do (``fedtext.seeding``). ``privacy.noise`` chooses between two keys:

``reproducible``
    The key is derived from the seed and from everything that a round's updates depend on. The same experiment on the
    same texts draws the same noise again, and no two different ones share a draw. Whoever knows the experiment can
    draw the noise too: this is a simulation. Devices are not part of the key, nor are processors: what the same
    experiment gives on two of them differs by rounding alone.
``secret``
    The key is derived from that and from 32 bytes of the operating system, which are kept in the folder of the run's
    state, readable by its owner alone. Draws come from ChaCha20, and the choice of a Poisson sample and clients' own
    initial vectors are among them. A run that is resumed, or repeats a round, ends with the same bits; another run of
    the same experiment has another key, and so has another experiment in the same folder.
"""

import hashlib
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedtext.config.experiment import Experiment
from fedtext.errors import UserError
from fedtext.seeding import SERVER, generator
from fedtext.state.fingerprint import released

FILE = "noise.key"
_BYTES = 32
INSTALL = "privacy.noise: secret draws from ChaCha20, and randomgen is not installed: pip install 'fedtext[secret]'"


@dataclass(frozen=True)
class NoiseKey:
    """What all draws of one run are derived from that hide something. Each purpose, round and client has its own."""

    material: bytes = field(repr=False)
    secret: bool = False

    def generator(self, purpose: str, round_: int = 0, client: int = SERVER) -> np.random.Generator:
        """A fresh generator for one purpose of one client in one round.

        Raises:
            UserError: If the key is secret and the library with ChaCha20 is not installed.
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
        """A generator for what hides something only if no one knows it: who is in a Poisson sample, a client's own
        initial vectors. Without a secret key it is the seed's, so that experiments of one seed differ in nothing that
        was not changed."""
        return self.generator(purpose, round_, client) if self.secret else generator(seed, purpose, round_, client)


def noise_key(experiment: Experiment, content: str, clients: int, folder: Path | None = None) -> NoiseKey:
    """The key of a run.

    Args:
        experiment: The experiment; its ``privacy.noise`` chooses the kind of key.
        content: Digest of the corpus as the clients hold it.
        clients: Number of participants.
        folder: Folder of the run's state. A secret key is read from it, or written to it before the first draw.
            None: a secret key ends with this process.

    Raises:
        UserError: If the folder has checkpoints of rounds whose secret key is missing or damaged, or cannot be written.
    """
    if experiment.privacy.noise == "reproducible":
        return NoiseKey(bytes.fromhex(released(experiment, content, clients)))
    entropy = _entropy(folder) if folder else secrets.token_bytes(_BYTES)
    name = bytes.fromhex(released(experiment, content, clients))
    key = NoiseKey(hashlib.blake2b(name, key=entropy, digest_size=_BYTES).digest(), secret=True)
    key.generator("installed")
    return key


def _entropy(folder: Path) -> bytes:
    """The random bytes of the run whose state lies in ``folder``; drawn and written if it has not begun."""
    if (folder / FILE).exists():
        return _read(folder / FILE)
    if any(folder.glob("round-*")):
        raise UserError(
            f"{folder / FILE} is missing: without it the rounds in {folder} cannot be continued under the same noise; "
            "put it back, or start a new run"
        )
    drawn = secrets.token_bytes(_BYTES)
    _write(folder / FILE, drawn)
    return drawn


def _read(file: Path) -> bytes:
    try:
        word, check = file.read_text().split()
        material = bytes.fromhex(word)
        sound = len(material) == _BYTES and check == _check(material)
    except OSError as error:
        raise UserError(f"{file} cannot be read ({error.strerror}): it is the key of this run's noise") from error
    except ValueError:
        sound = False
    if not sound:
        raise UserError(f"{file} is damaged: put back the key that this run was begun with, or start a new run")
    return material


def _write(file: Path, material: bytes) -> None:
    """Durable before it is used, and never readable by others, not even for a moment."""
    draft = file.with_name(f".{file.name}-{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.write(f"{material.hex()} {_check(material)}\n")
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft, file)
    except OSError as error:
        with suppress(OSError):  # there may be no such folder
            draft.unlink()
        raise UserError(f"the key of this run's noise cannot be written to {file} ({error.strerror})") from error


def _check(material: bytes) -> str:
    return hashlib.sha256(material).hexdigest()[:16]
