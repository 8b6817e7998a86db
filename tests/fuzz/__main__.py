"""``python -m tests.fuzz``: try many malformed inputs, and print each one that breaks the rule."""

import argparse
import faulthandler
import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.fuzz.rule import REFUSED
from tests.fuzz.tried import KINDS, confined

SECONDS = 5.0  # of CPU until a refusal; the tests, which run on slower machines too, wait longer
HANGS = 600  # seconds without a verdict, after which the script says where it is and ends


def main() -> int:
    """Try what is asked for; 1 if an input broke the rule."""
    made = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    for kind in KINDS:
        made.add_argument(f"--{kind}", type=int, default=0, metavar="N", help=f"number of {kind}")
    made.add_argument("--seed", type=int, default=0, help="number of the first input of each kind")
    asked, broken = made.parse_args(), 0
    with tempfile.TemporaryDirectory() as folder, confined(Path(folder)) as home:
        os.chdir(folder)
        for kind, tried in KINDS.items():
            counts: Counter[str] = Counter()
            numbers = range(asked.seed, asked.seed + getattr(asked, kind))
            for name, text, verdict in tried(numbers, home) if numbers else ():
                faulthandler.dump_traceback_later(HANGS, exit=True)
                violation = verdict.broken(SECONDS)
                counts["violations" if violation else "refused" if verdict.status == REFUSED else "accepted"] += 1
                if violation:
                    said = {"input": name, "what": violation, "text": text, "said": verdict.said[-1500:]}
                    print(json.dumps(said), flush=True)
            broken += counts["violations"]
            if counts:
                print(f"{kind}: " + ", ".join(f"{count} {word}" for word, count in sorted(counts.items())), flush=True)
        os.chdir("/")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
