"""The search for secrets in everything that a command has left behind."""

import gzip
import io
import os
import zipfile
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote


def forms(secret: str) -> set[bytes]:
    """Return what a secret looks like as it is, percent-encoded, in hexadecimal digits, as the bytes that hexadecimal
    digits stand for, and within a text in base64, wherever it begins there."""
    raw = secret.encode()
    found = {raw, quote(secret, safe="").encode(), raw.hex().encode()}
    for start in range(3):
        for encode in (b64encode, urlsafe_b64encode):  # the first and the last characters depend on what is beside it
            found.add(encode(bytes(start) + raw)[4 if start else 0 :].rstrip(b"=")[:-1])
    if set(secret) <= set("0123456789abcdef") and len(secret) % 2 == 0:
        found.add(bytes.fromhex(secret))
    return found


def unpacked(name: str, content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield a content under its name, and those in it if it is an archive or compressed."""
    yield name, content
    if content[:2] == b"\x1f\x8b":
        yield from unpacked(f"{name}!", gzip.decompress(content))
    elif content[:4] == b"PK\x03\x04":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for member in archive.namelist():
                yield from unpacked(f"{name}!{member}", archive.read(member))


def files(*folders: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of each file below some folders, sockets and the like left aside."""
    for folder in folders:
        # A folder that is removed meanwhile is left out, where Path.rglob would fail.
        there = (Path(where, name) for where, _, names in os.walk(folder) for name in names)
        for path in sorted(there):
            try:
                if path.is_file() and not path.is_symlink():
                    yield str(path), path.read_bytes()
            except FileNotFoundError:  # it was removed meanwhile
                continue


def holders(named: Iterable[tuple[str, bytes]], secrets: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return which of the contents have which of the secrets, in whatever form: names of both."""
    wanted = {name: forms(secret) for name, secret in secrets.items()}
    return [
        (where, secret)
        for name, content in named
        for where, part in unpacked(name, content)
        for secret, shapes in wanted.items()
        if any(shape in part for shape in shapes)
    ]
