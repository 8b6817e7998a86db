"""The folder of a run that has ended, mutated."""

import json
import random
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from tests.fuzz import raw
from tests.fuzz.trees import mutated
from tests.fuzz.values import spliced

NAME = "begun"
CONTENT: dict[str, Any] = {
    "name": "begun",
    "plugins": ["mine.py"],
    "corpus": {"name": "demo", "clients": 2, "train": 10, "test": 6, "validation": 0.25},
    "model": {"embedding": {"dim": 2}, "hidden": 2, "head": {"hidden": 2}},
    "method": {"name": "kteps"},
    "uplink": ["mine"],
    "privacy": {"noise": "secret"},
    "training": {"rounds": 2, "local_epochs": 1},
    "evaluation": {"personalize": {"steps": 1}},
    "save": {"model": "clients"},
    "baselines": ["fedavg"],
    "space": {"method.lambda1": {"grid": [0.0, 0.1]}},
}
TRACKING = {
    "uri": "sqlite:///mlflow.db",
    "run_id": "0" * 32,
    "owed": {"end": {"status": "FINISHED", "time": 1.0, "tags": {}, "metrics": {}, "name": ""}, "model": "model"},
}
PLUGIN = '''"""A mechanism that changes nothing."""
from typing import Literal

from fedtext.mechanisms import Mechanism


class Mine(Mechanism):
    """Nothing."""

    name: Literal["mine"] = "mine"

    def apply(self, delta, received, rng):
        return delta
'''


def make(storage: Path) -> Path:
    """Train a sweep as the command leaves it, with models, in ``storage``; one trial is interrupted."""
    from fedtext.api.run import run
    from fedtext.state import model_folder
    from sweeps.folder import RunFolder
    from tests.reported import trained

    storage.mkdir(parents=True)
    (storage / "mine.py").write_text(PLUGIN)
    content = CONTENT | {"plugins": [str(storage / "mine.py")]}
    path = trained(storage / NAME, content, left=["02-kteps"])
    result = run(content)
    for case in ("00-fedavg", "01-kteps"):
        model_folder.write(result.trained, path / case / model_folder.FOLDER)
        (path / case / "ledger.json").write_text("[]")
        (path / case / "tracking.json").write_text(json.dumps(TRACKING))
        (path / case / "spool.jsonl").write_text(json.dumps(result.history[0].to_json()) + "\n")
    assert RunFolder(path).content()["name"] == NAME
    (storage / "mine.py").unlink()
    return path


def break_(folder: Path, pattern: str, draw: random.Random) -> str:
    """Mutate one or two files of a run whose paths match a pattern, and say which."""
    said = []
    for _ in range(draw.choice((1, 1, 2))):
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
        files = [path for path in files if re.search(pattern, str(path.relative_to(folder)))]
        if files:
            path = draw.choice(files)
            said.append(f"{path.relative_to(folder)}: {_break(path, draw)}")
    return "; ".join(said)


def _break(path: Path, draw: random.Random) -> str:
    kind = draw.randrange(8)
    if kind == 0:
        path.unlink()
        return "removed"
    if kind == 1:
        shutil.rmtree(path.parent)
        return "removed with its folder"
    if kind == 2:
        path.unlink()
        path.mkdir()
        return "a folder"
    data = raw.mutated(path.read_bytes(), draw)
    if kind < 6 and path.suffix in (".json", ".yaml"):
        with suppress(ValueError, yaml.YAMLError):  # it has been mutated before
            data = _another(path, draw).encode("utf-8", "surrogatepass")
    path.write_bytes(data)
    return repr(data[:1000])


def _another(path: Path, draw: random.Random) -> str:
    if path.suffix == ".json":
        return json.dumps(mutated(json.loads(path.read_bytes()), draw), default=str)
    return spliced(yaml.safe_dump(mutated(yaml.safe_load(path.read_bytes()), draw, marks=True)))


def _ls(home: Path) -> None:
    import platform.ls  # type: ignore[import-not-found]

    platform.ls.main([])
    platform.ls.main(["--json"])
    platform.ls.main([NAME])


def _report(home: Path) -> None:
    from sweeps.report import report

    report(NAME)


def _predict(home: Path) -> None:
    from fedtext.api.model import Model

    model = Model.load(home / "runs" / NAME / "01-kteps" / "model", trust_plugins=True)
    model.predict(["a superb kettle"], model.clients[0] if model.clients else None)


def _resume(home: Path) -> None:
    from sweeps.plan import plan
    from sweeps.request import Request

    plan(Request("sweep", None, resume=NAME))


def _run(home: Path) -> None:
    from sweeps.plan import plan
    from sweeps.request import Request

    plan(Request("run", None, resume=NAME))


def _continue(home: Path) -> None:
    from fedtext.api.run import run

    run(home / "runs" / NAME / "experiment.yaml", out=home / "runs" / NAME / "01-kteps" / "checkpoint", resume=True)


def _track(home: Path) -> None:
    from dashboards.mirror import Mirror

    Mirror(home / "runs" / NAME / "01-kteps", "sqlite:///mlflow.db")


PLANNED = r"^[^/]*$|outcome.json|checkpoint|\.py$"
# What commands do up to the start of Ray, with the files that they read.
USES: dict[str, tuple[Callable[[Path], None], str]] = {
    "ls": (_ls, r"\.json$|experiment.yaml$"),
    "report": (_report, PLANNED),
    "predict": (_predict, r"01-kteps/model/"),
    "sweep --resume": (_resume, PLANNED),
    "run --resume": (_run, PLANNED),
    "run --no-ray --out": (_continue, r"01-kteps/(checkpoint|model)|experiment.yaml$"),
    "tracking": (_track, r"01-kteps/(tracking.json|spool.jsonl)"),
}
