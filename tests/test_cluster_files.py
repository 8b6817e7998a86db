"""The files for real clusters: what can be checked of them without machines, a cloud or Kubernetes."""

import re
from pathlib import Path

import pytest
import yaml

from actors.cluster import FREEING

REPOSITORY = Path(__file__).resolve().parents[1]
ROOM = REPOSITORY / "cluster"
RAY_VERSION = re.search(r"^ray==(\S+)$", (REPOSITORY / "constraints.txt").read_text(), re.MULTILINE)[1]  # type: ignore[index]


def text(name: str) -> str:
    return (ROOM / name).read_text()


@pytest.mark.parametrize("name", ["ray-up/onprem.yaml", "ray-up/aws.yaml"])
def test_ray_up_files_are_valid(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    util = pytest.importorskip("ray.autoscaler._private.util")
    pytest.importorskip("jsonschema")
    monkeypatch.chdir(REPOSITORY)
    config = util.prepare_config(yaml.safe_load(text(name)))
    util.validate_config(config)
    for local in config["file_mounts"].values():
        assert local.startswith("~") or Path(local).exists(), local
    installs = [line for line in config["setup_commands"] if "pip install" in line]
    assert installs
    assert all('-c constraints.txt ".[platform]"' in line for line in installs)
    for role in ("head", "worker"):
        start = next(line for line in config[f"{role}_start_ray_commands"] if "ray start" in line)
        assert "export RAY_AUTH_MODE=token" in start
    assert "MLFLOW_TRACKING_URI=http" in config["head_start_ray_commands"][-1]
    assert config["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"
    assert f"ray up cluster/{name}" in text(name)
    assert re.search(
        r"ray job submit --address \S+ --working-dir \. -- python -m platform.sweep kteps.yaml", text(name)
    )


def test_aws_has_a_head_and_gpu_workers() -> None:
    config = yaml.safe_load(text("ray-up/aws.yaml"))
    assert config["head_node_type"] == "head"
    worker = config["available_node_types"]["gpu_worker"]
    assert worker["node_config"]["InstanceType"].startswith("g")
    assert worker["min_workers"] <= worker["max_workers"] <= config["max_workers"]


def test_the_rayjob_runs_the_command_with_token_gpu_and_tracking() -> None:
    job = yaml.safe_load(text("kuberay/rayjob.yaml"))
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    spec, cluster = job["spec"], job["spec"]["rayClusterSpec"]
    assert spec["entrypoint"].startswith("python -m platform.sweep kteps.yaml")
    assert "resources.gpus_per_actor=0.25" in spec["entrypoint"]
    assert spec["shutdownAfterJobFinishes"] is True
    assert spec["ttlSecondsAfterFinished"] > 0
    assert cluster["authOptions"] == {"mode": "token"}
    assert cluster["rayVersion"] == RAY_VERSION
    (head,) = cluster["headGroupSpec"]["template"]["spec"]["containers"]
    (group,) = cluster["workerGroupSpecs"]
    (worker,) = group["template"]["spec"]["containers"]
    assert worker["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert "nvidia.com/gpu" not in head["resources"]["limits"]
    assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for container in (head, worker):
        assert any(entry["name"] == "MLFLOW_TRACKING_URI" and entry["value"] for entry in container["env"])
    assert "workingDir" not in head  # the image's: the repository
    assert not worker["workingDir"].endswith("fedtext")


def test_every_image_has_the_version_of_ray_that_was_tested() -> None:
    found = {
        name: set(re.findall(r"rayproject/ray:([\d.]+)-py311", text(name)))
        for name in ("Dockerfile", "ray-up/aws.yaml")
    }
    assert found == {"Dockerfile": {RAY_VERSION}, "ray-up/aws.yaml": {RAY_VERSION}}
    tags = {
        name: set(re.findall(r"fedtext:ray([\d.]+\d)", text(name))) for name in ("Dockerfile", "kuberay/rayjob.yaml")
    }
    assert tags == {"Dockerfile": {RAY_VERSION}, "kuberay/rayjob.yaml": {RAY_VERSION}}


def test_the_image_holds_every_room_that_a_command_needs() -> None:
    copied = set(re.findall(r"^COPY \S+ (\w+) \1$", text("Dockerfile"), re.MULTILINE))
    assert copied == {"fedtext", "platform", "dashboards", "tune_spaces", "actors", "cluster"}


def test_ray_frees_at_once_wherever_it_is_started() -> None:
    ((name, value),) = FREEING.items()
    for file, starts in (("Dockerfile", 1), ("ray-up/aws.yaml", 2), ("ray-up/onprem.yaml", 2)):
        assert text(file).count(f"{name}={value}") == starts
    assert f'"{name}": "{value}"' in text("local.py")
