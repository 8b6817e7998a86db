"""Addresses of Ray clusters, without Ray: which one is meant, and whether anything listens there."""

import os
import socket
from pathlib import Path

from fedtext.errors import UserError, option

AUTO, LOCAL = "auto", "local"
REACH_SECONDS = 10.0


def last_started() -> str:
    """Return the address of the cluster that ``ray start`` has started or joined on this machine last, from the file
    that Ray keeps; empty if there is none."""
    file = Path(os.environ.get("RAY_TMPDIR") or "/tmp", "ray", "ray_current_cluster")
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def named(address: str | None) -> str | None:
    """Return the address of the cluster that is to be joined.

    Args:
        address: As it was given; None: $RAY_ADDRESS. "auto" is the cluster that was started here last, unless
            $RAY_ADDRESS names one.

    Returns:
        The address; "auto" where Ray has to find one; None if none is named, and Ray is to start here ("local").
    """
    environment = os.environ.get("RAY_ADDRESS")
    if address in (None, "", AUTO) and environment:
        address = environment
    if address == AUTO:
        return last_started() or AUTO
    return None if address == LOCAL else address or None


def check(address: str) -> None:
    """Check that something listens at ``host:port``: Ray would retry for minutes. Other forms of an address pass.

    Raises:
        UserError: Nothing listens there.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UserError(
            f"no Ray cluster answers at {address} ({error}): start it (ray start --head), or correct "
            f"{option('address')} or $RAY_ADDRESS"
        ) from error
