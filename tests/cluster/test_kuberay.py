"""The manifests for Kubernetes: with its own schemas, and with the names of KubeRay's resources."""

from typing import Any

import pytest
import yaml

from tests import ROOT
from tests.loops import nonempty

ROOM = ROOT / "cluster" / "kuberay"
VERSIONS = ("1.30", "1.33")
# The fields of KubeRay's resources, version 1, that are no part of Kubernetes itself.
RAY_JOB = (
    "activeDeadlineSeconds backoffLimit rayClusterSpec submitterPodTemplate metadata clusterSelector submitterConfig "
    "managedBy deletionStrategy entrypoint runtimeEnvYAML jobId submissionMode entrypointResources entrypointNumCpus "
    "entrypointNumGpus ttlSecondsAfterFinished shutdownAfterJobFinishes suspend"
)
RAY_CLUSTER = (
    "authOptions suspend managedBy autoscalerOptions headServiceAnnotations enableInTreeAutoscaling "
    "gcsFaultToleranceOptions headGroupSpec rayVersion workerGroupSpecs"
)
HEAD = "template headService enableIngress resources labels rayStartParams serviceType"
WORKERS = (
    "suspend groupName replicas minReplicas maxReplicas idleTimeoutSeconds resources labels rayStartParams template "
    "scaleStrategy numOfHosts"
)


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOM / name).read_text()))


def clusters() -> dict[str, dict[str, Any]]:
    """The specification of each RayCluster, by file."""
    (job,), (cluster,) = documents("rayjob.yaml"), documents("raycluster.yaml")
    return {"rayjob.yaml": job["spec"]["rayClusterSpec"], "raycluster.yaml": cluster["spec"]}


def groups(cluster: dict[str, Any]) -> list[dict[str, Any]]:
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]


def pods() -> list[dict[str, Any]]:
    """Every pod as Kubernetes is asked for it."""
    found = [one for one in documents("storage.yaml") if one["kind"] == "Pod"]
    for cluster in nonempty(clusters().values()):
        for group in nonempty(groups(cluster)):
            assert set(group["template"]) <= {"metadata", "spec"}
            named = {"metadata": {"name": "pod"}} | group["template"]
            found.append({"apiVersion": "v1", "kind": "Pod", **named})
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_pods_and_claims_are_valid(version: str) -> None:
    """Unknown fields are refused, as by ``kubectl apply --validate=strict``."""
    kubernetes = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    claims = [one for one in documents("storage.yaml") if one["kind"] == "PersistentVolumeClaim"]
    assert (len(pods()), len(claims)) == (5, 2)
    for document in nonempty([*pods(), *claims]):
        kubernetes.validate(document, version, strict=True)
    wrong = pods()[0]
    wrong["spec"]["containers"][0]["volumeMount"] = []
    with pytest.raises(kubernetes.ValidationError, match="volumeMount"):
        kubernetes.validate(wrong, version, strict=True)


def test_no_field_is_unknown_to_kuberay() -> None:
    (job,), (cluster,) = documents("rayjob.yaml"), documents("raycluster.yaml")
    assert [(one["apiVersion"], one["kind"]) for one in (job, cluster)] == [
        ("ray.io/v1", "RayJob"),
        ("ray.io/v1", "RayCluster"),
    ]
    assert set(job["spec"]) <= set(RAY_JOB.split())
    for spec in nonempty(clusters().values()):
        assert set(spec) <= set(RAY_CLUSTER.split())
        assert spec["authOptions"] == {"mode": "token"}
        assert set(spec["headGroupSpec"]) <= set(HEAD.split())
        for group in nonempty(spec["workerGroupSpecs"]):
            assert set(group) <= set(WORKERS.split())
        for group in nonempty(groups(spec)):
            values = group["rayStartParams"].values()
            assert [value for value in values if not isinstance(value, str)] == [], "they are words of a command"


def test_every_pod_is_without_privileges() -> None:
    for pod in nonempty(pods()):
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] == 1000
        for container in nonempty(spec["containers"]):
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_every_mount_has_its_volume_and_every_volume_its_claim() -> None:
    claims = {one["metadata"]["name"] for one in documents("storage.yaml") if one["kind"] == "PersistentVolumeClaim"}
    used = set()
    for pod in nonempty(pods()):
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        for container in nonempty(pod["spec"]["containers"]):
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            assert mounted == set(volumes)
        used |= {v["persistentVolumeClaim"]["claimName"] for v in volumes.values() if "persistentVolumeClaim" in v}
    assert used == claims


def test_requests_are_the_limits() -> None:
    for cluster in nonempty(clusters().values()):
        for group in nonempty(groups(cluster)):
            (container,) = group["template"]["spec"]["containers"]
            assert container["resources"]["requests"] == container["resources"]["limits"]


def test_the_head_has_the_state_of_runs_and_workers_are_outside_of_the_repository() -> None:
    for cluster in nonempty(clusters().values()):
        head, worker = (group["template"]["spec"]["containers"][0] for group in groups(cluster))
        mounts = {mount["name"]: mount["mountPath"] for mount in head["volumeMounts"]}
        environment = {one["name"]: one["value"] for one in head["env"]}
        assert environment["FEDTEXT_HOME"] == mounts["results"]
        assert environment["FEDTEXT_DATA"] == mounts["data"]
        assert environment["MLFLOW_TRACKING_URI"].startswith("http")
        assert "workingDir" not in head
        assert worker["workingDir"] == "/home/ray"
