"""``python -m fedtext FILE``: one run in this process, with the library alone: no Ray, no MLflow.

For a machine that has neither; prints a line a round and, with --out, keeps the rows and the state in a folder, from
which the same command continues.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from fedtext.client.audit_runner import write_files
from fedtext.client.local_fleet import LocalFleet
from fedtext.client.participants import count
from fedtext.commands import Parser, add_keys
from fedtext.config import files, keys
from fedtext.config.engine import engine_reason, stack_size
from fedtext.corpora.prepare import prepare
from fedtext.errors import ClientError, UserError, writing
from fedtext.parameters import initial
from fedtext.runtime.devices import device_of
from fedtext.server.federation import Federation
from fedtext.state.checkpoint import Checkpoints
from fedtext.state.fingerprint import fingerprint
from fedtext.state.noise_key import noise_key


def main(words: Sequence[str] | None = None) -> int:
    parser = Parser(prog="python -m fedtext", description=__doc__)
    parser.add_argument("experiment", nargs="?", help="experiment file (YAML), here or in tune_spaces/")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="changes to the experiment")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where corpora lie (else $FEDTEXT_DATA)")
    parser.add_argument("--device", default="cpu", help="torch device (cpu, cuda)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="keep state and rows here, and continue from them")
    add_keys(parser)
    arguments = parser.parse_intermixed_args(words)
    try:
        if arguments.keys is not None:
            print(keys.about(arguments.keys))
            return 0
        if arguments.experiment is None:
            parser.error("which experiment? name a file, demo.yaml for example; --keys lists what it can hold")
        return _run(arguments)
    except (UserError, ClientError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _run(arguments: argparse.Namespace) -> int:
    path = Path(arguments.experiment)
    path = path if path.is_file() else Path("tune_spaces") / path
    changes = dict(files.parse_override(word) for word in arguments.overrides)
    content = files.override(files.read(path), changes | {"space": {}, "baselines": [], "seeds": 1})
    experiment = files.validate(content, path.name, path, changes)
    device_of(arguments.device)
    corpus = prepare(
        experiment.corpus, experiment.model.embedding, experiment.seed, arguments.data, experiment.own_vocabularies
    )
    shared, private = initial(experiment, corpus)
    made_from = experiment, corpus.content, count(experiment, corpus)
    noise = noise_key(*made_from, arguments.out)
    fleet = LocalFleet(experiment, corpus, private, arguments.device, noise)
    print(f"{engine_reason(experiment)}; {stack_size(experiment, len(fleet.clients))[1]}")
    checkpoints = Checkpoints(arguments.out, fingerprint(*made_from)) if arguments.out else None
    federation = Federation(experiment, shared, fleet, checkpoints)
    for record in federation.run():
        shown = "  ".join(f"{name} {value:.4g}" for name, value in record.metrics.items())
        print(f"round {record.round}/{experiment.training.rounds}  {shown}", flush=True)
        if arguments.out:
            write_files(record, arguments.out)
    if arguments.out:
        with writing(arguments.out / "rows.json"):
            rows = [record.to_json() for record in federation.history]
            (arguments.out / "rows.json").write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
