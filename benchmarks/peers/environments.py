"""Virtual environments of the other frameworks, made once and reused while their pins are unchanged."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PEERS = {"flower": ["flwr[simulation]", "torch", "peft", "transformers"], "pfl": ["pfl[pytorch]", "torch"]}


def cache_folder() -> Path:
    return Path(os.environ.get("FEDTEXT_CACHE", Path.home() / ".cache" / "fedtext")).expanduser() / "peers"


def python_of(peer: str) -> Path:
    """Return the interpreter of ``peer``'s environment, which is made if necessary.

    Raises RuntimeError with pip's message if it cannot be made.
    """
    pins = HERE / f"{peer}.txt"
    wanted = f"{sys.version} {hashlib.sha256(pins.read_bytes()).hexdigest()}"
    folder = cache_folder() / peer
    python, stamp = folder / "bin" / "python", folder / "ready"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"making the environment of {peer} in {folder}", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    _call([sys.executable, "-m", "venv", str(folder)])
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _call([*install, "-c", str(pins), *PEERS[peer]])
    stamp.write_text(wanted)
    return python


def versions() -> dict[str, str]:
    """The peers' own pins."""
    names = [extras[0].partition("[")[0] for extras in PEERS.values()]
    lines = [line for peer in PEERS for line in (HERE / f"{peer}.txt").read_text().splitlines()]
    return {name: line.partition("==")[2] for name in names for line in lines if line.startswith(f"{name}==")}


def _call(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        errors = [line for line in done.stdout.splitlines() if line.startswith("ERROR")] or done.stdout.splitlines()
        raise RuntimeError(errors[-1].removeprefix("ERROR: ") if errors else f"exit status {done.returncode}")
