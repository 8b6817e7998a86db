"""The commands of fedtext, and Python's own ``platform`` module at the same time.

This folder carries the name of a standard-library module that torch, ray and mlflow import. Whoever imports
``platform`` from the repository gets the standard library's module, with this folder as its place for submodules:
``platform.system()`` is the real one and ``python -m platform.sweep`` is found. A Ray worker may hold the plain
standard module already, so nothing that a worker imports lives here.
"""

import importlib.util
import sys
import sysconfig
from pathlib import Path

_spec = importlib.util.spec_from_file_location(
    "platform",
    Path(sysconfig.get_path("stdlib")) / "platform.py",
    submodule_search_locations=[str(Path(__file__).parent)],
)
_module = importlib.util.module_from_spec(_spec)
sys.modules["platform"] = _module
_spec.loader.exec_module(_module)
