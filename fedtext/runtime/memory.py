"""Freed memory that the C library keeps.

The processes that train tell it to keep large blocks (``fedtext.runtime.environment``), since training asks for the
same sizes again. An evaluation with large batches leaves gigabytes that training does not need.
"""

import ctypes
import os
from functools import cache
from pathlib import Path

MUCH = 1 << 30  # bytes: less is kept, since the next round would ask for most of it again
_PAGE = os.sysconf("SC_PAGE_SIZE")
_STATM = Path("/proc/self/statm")  # of Linux, as glibc is
_FIELDS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"  # of struct mallinfo2


class _Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS.split()]


def return_freed(above: int = MUCH) -> bool:
    """Return freed memory to the system if the process has more than ``above`` bytes of it.

    Free blocks that were returned before, and that nothing has used since, are not counted.

    Returns:
        Whether memory was returned. Only glibc since 2.33 can say how much there is; elsewhere nothing is done.
    """
    library = _glibc()
    if library is None:
        return False
    info = library.mallinfo2()
    freed = min(info.fordblks, _anonymous() - info.uordblks - info.hblkhd)
    return freed > above and bool(library.malloc_trim(0))


def _anonymous() -> int:
    """Return the bytes of this process in memory that belong to no file."""
    resident, of_files = map(int, _STATM.read_text().split()[1:3])
    return (resident - of_files) * _PAGE


@cache
def _glibc() -> ctypes.CDLL | None:
    """Return the C library of this process; None if it is not a glibc that has both functions."""
    try:
        library = ctypes.CDLL(None)
        library.mallinfo2.restype = _Info
        library.malloc_trim.argtypes = [ctypes.c_size_t]
    except (OSError, AttributeError, TypeError):
        return None
    return library
