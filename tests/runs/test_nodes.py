"""The user's own commands on a real Ray cluster of two nodes, with token authentication.

The second node sees neither the repository nor the working copy: whatever it runs was shipped to it.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from mlflow import MlflowClient

from cluster.local import LocalCluster, available
from tests.commands import EXPERIMENT, ROOT, runs, states, undisturbed, write
from tests.fedtext.config.plugged import HALVED, MINE
from tests.loops import nonempty

pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.skipif(available() is not None, reason=f"no namespaces here: {available()}"),
]


@dataclass(frozen=True)
class Place:
    """A running cluster, the copy of the repository that its head works in, and where results go."""

    cluster: LocalCluster
    copy: Path
    home: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    copy, home = tmp_path_factory.mktemp("copy") / "fedtext", tmp_path_factory.mktemp("home")
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "runs", "mlflow.db*", "mlartifacts", "__pycache__"))
    for name in (".gitignore", ".rayignore"):
        shutil.copy(ROOT / name, copy)
    write(copy, space={"method.lambda1": {"grid": [0.1]}})
    environment = {"FEDTEXT_HOME": str(home)}
    with LocalCluster(nodes=2, cpus=1, cwd=copy, hide=[copy, ROOT], node_env=environment) as cluster:
        yield Place(cluster, copy, home)


def newest(home: Path) -> Path:
    return max((home / "runs").iterdir(), key=lambda path: path.stat().st_mtime)


def check(place: Place, output: str, cases: list[str]) -> None:
    """All cases are there, used both nodes, and the last computed what one process computes."""
    run = newest(place.home)
    assert "Sorted by Ap_val" in output
    found = states(run)
    assert list(found) == cases
    assert found[cases[-1]] == undisturbed(EXPERIMENT | {"method": {"name": "kteps", "lambda1": 0.1}}, run.parent)
    shutil.rmtree(run.parent / "local")
    tracked = [r for r in runs(place.home) if r.data.tags.get("fedtext.run") == run.name]
    parents = [r for r in tracked if any(r.info.run_id == t.data.tags.get("mlflow.parentRunId") for t in tracked)]
    assert len(parents) == (len(cases) > 1)
    trials = [r for r in tracked if r not in parents]
    assert len(trials) == len(cases)
    assert all(nonempty(r.info.status == "FINISHED" for r in tracked))
    assert {r.data.metrics["time/nodes"] for r in trials} == {2.0}
    assert {r.data.tags["cluster.nodes"] for r in tracked} == {"2"}


def test_ray_job_submit_in_the_repository(place: Place) -> None:
    argv = ["ray", "job", "submit", "--", "python", "-m", "platform.sweep", "kteps.yaml"]
    done = place.cluster.run(argv, cwd=Path("/"), timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    check(place, done.stdout, ["00-fedavg", "01-kteps"])


def test_ray_job_submit_with_a_working_dir_from_elsewhere(place: Place) -> None:
    words = ["python", "-m", "platform.run", "kteps.yaml", "method.lambda1=0.1"]
    done = place.cluster.run(["ray", "job", "submit", "--working-dir", ".", "--", *words], cwd=place.copy, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    check(place, done.stdout, ["00-kteps"])


def test_a_driver_on_the_head_ships_the_code_itself(place: Place) -> None:
    argv = ["python", "-m", "platform.run", "kteps.yaml", "training.rounds=1"]
    done = place.cluster.run(argv, cwd=place.copy, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 client actors of 1 CPU" in done.stdout


def test_a_plug_in_reaches_a_node_that_has_never_seen_its_file(place: Place) -> None:
    """Nor does the head see it when the run goes on: its text lies in the run's folder."""
    own, changes = place.copy / "own", {"method": "mine", "uplink": ["halved"], "training": {"rounds": 1}}
    own.mkdir()
    (own / "mine.py").write_text(MINE + HALVED)
    content = {k: v for k, v in EXPERIMENT.items() if k not in ("space", "baselines")} | changes
    (own / "own.yaml").write_text(yaml.safe_dump(content | {"name": "own", "plugins": ["mine.py"]}))
    begin = ["python", "-m", "platform.run", "own/own.yaml", "--name", "own"]
    go_on = ["python", "-m", "platform.run", "--resume", "own", "training.rounds=2"]
    for argv in (begin, go_on):
        done = place.cluster.run(argv, cwd=place.copy, timeout=200)
        assert done.returncode == 0, done.stdout + done.stderr
        shutil.rmtree(own, ignore_errors=True)
    run = place.home / "runs" / "own"
    listed = {"plugins": [str(run / "plugins" / "mine.py")]}
    assert states(run)["00-mine"] == undisturbed(content | {"training": {"rounds": 2}} | listed, run.parent)
    shutil.rmtree(run.parent / "local")
    (tracked,) = runs(place.home, "own")
    assert tracked.data.metrics["time/nodes"] == 2.0
    files = MlflowClient(f"sqlite:///{place.home}/mlflow.db").list_artifacts(tracked.info.run_id, "plugins")
    assert [file.path for file in files] == ["plugins/mine.py"]
