"""The files for real clusters: what can be checked of them without machines, a cloud or Kubernetes."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from actors.cluster import FREEING
from fedtext.config.files import load
from tests import ROOT
from tests.loops import nonempty

ROOM = ROOT / "cluster"
RAY_VERSION = re.search(r"^ray==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]  # type: ignore[index]


RAY_UP = ("ray-up/onprem.yaml", "ray-up/aws.yaml", "ray-up/gcp.yaml")
KUBERAY = ("kuberay/rayjob.yaml", "kuberay/raycluster.yaml")


def text(name: str) -> str:
    return (ROOM / name).read_text()


@pytest.mark.parametrize("name", RAY_UP)
def test_ray_up_files_are_valid(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    util = pytest.importorskip("ray.autoscaler._private.util")
    pytest.importorskip("jsonschema")
    monkeypatch.chdir(ROOT)
    config = util.prepare_config(yaml.safe_load(text(name)))
    util.validate_config(config)
    for local in nonempty(config["file_mounts"].values()):
        assert local.startswith("~") or Path(local).exists(), local
    installs = [line for line in config["setup_commands"] if "pip install" in line]
    assert installs
    assert all(nonempty("-c constraints.txt " in line for line in installs))
    for role in ("head", "worker"):
        start = next(line for line in config[f"{role}_start_ray_commands"] if "ray start" in line)
        assert "export RAY_AUTH_MODE=token" in start
    assert "MLFLOW_TRACKING_URI=http" in config["head_start_ray_commands"][-1]
    assert config["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"
    assert f"ray up cluster/{name}" in text(name)
    assert re.search(
        r"ray job submit --address \S+ --working-dir \. -- python -m platform.sweep kteps.yaml", text(name)
    )


FILES = (*RAY_UP, "Dockerfile")


def strings(value: Any) -> Iterator[str]:
    """Every string in a YAML document."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from strings(inner)


@pytest.mark.parametrize("name", FILES)
def test_they_install_what_their_experiment_imports(name: str) -> None:
    """The image is the RayJob's."""
    told = text("kuberay/rayjob.yaml") if name == "Dockerfile" else text(name)
    (experiment,) = set(re.findall(r"platform\.sweep (\w+\.yaml)", told))
    needs = {"platform"} | ({"word2vec"} if "word2vec" in repr(load(experiment)[1].model.embedding) else set())
    assert "word2vec" in needs, "kteps.yaml starts from skip-gram vectors, which gensim trains"
    installs = re.findall(r'pip install .*-c constraints\.txt "\.\[([\w,]+)\]"', text(name))
    assert len(installs) == text(name).count("pip install -") == 1, "each with the pinned versions"
    assert set(installs[0].split(",")) >= needs


def test_their_shell_lines_are_shell() -> None:
    lines = re.findall(r"^RUN (.+)$", text("Dockerfile"), re.MULTILINE)
    for name in RAY_UP:
        config = yaml.safe_load(text(name))
        for key in ("setup_commands", "head_start_ray_commands", "worker_start_ray_commands"):
            lines += list(strings(config[key]))
        typed = re.findall(r"^#   (\S.*?)(?:   .*)?$", text(name), re.MULTILINE)
        assert any(line.startswith("ray up") for line in typed)
        lines += typed
    lines += re.findall(r"^```bash\n(.+?)^```$", text("README.md"), re.MULTILINE | re.DOTALL)
    assert sum("ray start" in line for line in lines) == 8
    for line in nonempty(lines):
        done = subprocess.run(["bash", "-n"], input=line, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), line


def test_ray_by_hand_is_started_with_the_token_and_the_port_that_workers_are_told() -> None:
    head, worker, use = re.findall(r"^```bash\n(.+?)^```$", text("README.md"), re.MULTILINE | re.DOTALL)
    for part in (head, worker):
        assert part.index("RAY_AUTH_MODE=token") < part.index("ray start")
        assert part.index("RAY_free_objects_period_milliseconds=0") < part.index("ray start")
    assert head.index("ray get-auth-token --generate") < head.index("ray start --head --port=6379")
    assert "ray start --address=HEAD:6379" in worker
    assert "ray job submit -- python -m platform.sweep kteps.yaml" in use


def test_gcp_has_a_head_and_gpu_workers() -> None:
    config = yaml.safe_load(text("ray-up/gcp.yaml"))
    head, worker = (config["available_node_types"][name] for name in (config["head_node_type"], "gpu_worker"))
    assert "GPU" not in head["resources"]
    assert worker["resources"]["GPU"] == 1
    assert worker["node_config"]["machineType"].startswith("g2-")
    assert worker["min_workers"] <= worker["max_workers"] <= config["max_workers"]
    assert {"region", "availability_zone", "project_id"} <= set(config["provider"])


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
    assert worker["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert "nvidia.com/gpu" not in head["resources"]["limits"]
    assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for container in (head, worker):
        assert any(entry["name"] == "MLFLOW_TRACKING_URI" and entry["value"] for entry in container["env"])
    assert "workingDir" not in head  # the image's: the repository
    assert not worker["workingDir"].endswith("fedtext")


def test_every_image_has_the_version_of_ray_that_was_tested() -> None:
    found = {
        name: set(re.findall(r"rayproject/ray:([\d.]+)-py311", text(name)))
        for name in ("Dockerfile", "ray-up/aws.yaml", "ray-up/gcp.yaml")
    }
    assert list(found.values()) == [{RAY_VERSION}] * 3
    named = (
        "Dockerfile",
        *KUBERAY,
        "kuberay/storage.yaml",
        "../docs/clusters/kubernetes.md",
        "../docs/clusters/container.md",
    )
    tags = [set(re.findall(r"fedtext:ray([\d.]+\d)", text(name))) for name in named]
    assert tags == [{RAY_VERSION}] * len(named)
    assert [yaml.safe_load(text("kuberay/raycluster.yaml"))["spec"]["rayVersion"]] == [RAY_VERSION]


def test_the_image_holds_every_room_that_a_command_needs() -> None:
    copied = set(re.findall(r"^COPY \S+ (\w+) \1$", text("Dockerfile"), re.MULTILINE))
    assert copied == {"fedtext", "platform", "dashboards", "tune_spaces", "sweeps", "actors", "cluster"}


def test_ray_frees_at_once_wherever_it_is_started() -> None:
    ((name, value),) = FREEING.items()
    for file, starts in (("Dockerfile", 1), ("ray-up/aws.yaml", 2), ("ray-up/gcp.yaml", 2), ("ray-up/onprem.yaml", 2)):
        assert text(file).count(f"{name}={value}") == starts
    assert f'"{name}": "{value}"' in text("local.py")
