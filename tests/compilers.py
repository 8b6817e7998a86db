"""What the C files compute, compiled for vectors of several widths."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.loops import nonempty

x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="the instructions of an x86-64 are left out")


def printed_by_width(script: str, folder: Path) -> set[str]:
    """Return what a script prints with the vectors of AVX-512, where there are such, and with narrower ones.

    With AVX-512 numbers in bfloat16 are multiplied one by one and, where there are instructions for it, in pairs. They
    are not multiplied in tile registers, in which sums have an order of their own.

    Args:
        script: The script.
        folder: For what is compiled.
    """
    found = set()
    for compiler in nonempty(["cc", "cc -mno-avx512f", "cc -DALWAYS_PAIRS", "cc -mno-avx512bf16"]):
        environment = os.environ | {"CC": f"{compiler} -DNO_TILES", "XDG_CACHE_HOME": str(folder / compiler)}
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        found.add(done.stdout)
    return found
