"""Imports of a process that hosts clients, in advance.

The garbage collector is off meanwhile, which saves a tenth of the time, and afterwards leaves alone what was imported.
"""

import gc
from importlib import import_module

gc.disable()
try:
    for name in ("fedtext.client.worker", "fedtext.client.parts", "fedtext.server.start", "fedtext.server.trained"):
        import_module(name)
    gc.freeze()
finally:
    gc.enable()
