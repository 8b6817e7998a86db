"""Files of tensors, by the package safetensors."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from safetensors import SafetensorError


@contextmanager
def os_errors() -> Iterator[None]:
    """Raise what the package says of a disk, which is an error of its own, as OSError with its number."""
    try:
        yield
    except SafetensorError as error:
        if found := re.search(r"os error (\d+)", str(error)):
            raise OSError(int(found[1]), os.strerror(int(found[1]))) from error
        raise
