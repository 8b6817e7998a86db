"""One run of one system, in its own environment: `python -m benchmarks.peers.side SYSTEM TASK`."""

import importlib
import os
import sys

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported, here and in every process that is started from here


def main() -> None:
    system, file = sys.argv[1:]
    # Each system is a module of its own, imported by name: what Ray ships of it is then a reference, not a copy.
    importlib.import_module(f".{system}_side", __package__).run(file)


if __name__ == "__main__":
    main()
