"""Passwords and tokens in addresses: they are neither stored with runs nor shown."""

import re

_PASSWORD = re.compile(r"(?<=://)([^/\s:@]*):[^\s'\"]*@")  # one that is not encoded may have a / in it
_TOKEN = re.compile(r"(?<=http://|ttps://)[^/\s:@]+@")  # in the place of a user and a password
_OPTION = re.compile(r"(?i)([?&][^=&\s]*(?:password|passwd|pwd|token|secret|key|sig)[^=&\s]*=)[^&\s'\"]+")


def redacted(text: str) -> str:
    """Return ``text`` with the passwords and tokens of addresses hidden."""
    return _OPTION.sub(r"\1***", _TOKEN.sub("***@", _PASSWORD.sub(r"\1:***@", text)))


def has_secret(uri: str) -> bool:
    """Whether an address has a password or a token in it."""
    return redacted(uri) != uri
