"""Pods that are made from templates in files are those that real controllers and a real API server make of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shiplap.kubernetes.objects import Pod, Toleration
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap_cli.inputs.cluster_files import read_cluster_state
from tests.e2e import programs
from tests.e2e.api import RealApi, api_of
from tests.e2e.control_plane import ControlPlane

pytestmark = pytest.mark.e2e

NAMESPACE = "templates"
_WAIT_S = 60.0
_OF_CLUSTER = ("pod-template-hash", "controller-revision-hash", "controller-uid", "batch.kubernetes.io/controller-uid")
"""Labels whose values only a cluster computes: that they are there, and equal for the pods of one workload, counts."""

_WHEN_NODES_FAIL = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")

Object = dict[str, Any]


def _template(spec: Object | None = None, **labels: str) -> Object:
    containers = [{"name": "c", "image": "pause", "ports": [{"containerPort": 8080}]}]
    return {"metadata": {"labels": {"app": "web", **labels}}, "spec": {"containers": containers, **(spec or {})}}


def _selected(kind: str, name: str, template: Object, **spec: Any) -> Object:
    labelled = {**template, "metadata": {"labels": {**template["metadata"]["labels"], "of": name}}}
    whole = {"selector": {"matchLabels": {"of": name}}, "template": labelled, **spec}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, "spec": whole}


def _job(name: str, **spec: Any) -> Object:
    template = _template({"restartPolicy": "Never"})
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template, **spec}}


CLASSES: list[Object] = [
    {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "vm"},
        "handler": "vm",
        "overhead": {"podFixed": {"cpu": "250m"}},
        "scheduling": {"nodeSelector": {"kvm": "yes"}, "tolerations": [{"key": "kvm", "operator": "Exists"}]},
    },
    {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000},
    {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "usual"},
        "value": 7,
        "globalDefault": True,
    },
    {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "limits", "namespace": NAMESPACE},
        "spec": {"limits": [{"type": "Container", "max": {"cpu": "4"}, "defaultRequest": {"memory": "64Mi"}}]},
    },
]
LIMITED = {"containers": [{"name": "c", "image": "pause", "resources": {"limits": {"cpu": "300m"}}}]}
CLAIMS = [
    {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
]
WORKLOADS: list[Object] = [
    _selected("Deployment", "plain", _template(), replicas=2),
    _selected("Deployment", "limited", _template(LIMITED), replicas=1),
    _selected("Deployment", "host", _template({"hostNetwork": True}), replicas=2),
    _selected("Deployment", "vm", _template({"runtimeClassName": "vm"}), replicas=1),
    _selected("Deployment", "high", _template({"priorityClassName": "high"}), replicas=1),
    _selected("ReplicaSet", "set", _template(), replicas=2),
    _selected(
        "StatefulSet",
        "db",
        _template(),
        replicas=2,
        ordinals={"start": 3},
        serviceName="db",
        podManagementPolicy="Parallel",
        volumeClaimTemplates=CLAIMS,
    ),
    _job("work", parallelism=2, completions=5),
    _job("indexed", parallelism=3, completions=5, completionMode="Indexed"),
    _job("queue", parallelism=2),
    _job("waits", parallelism=2, suspend=True),
]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealApi]:
    try:
        programs.find()
    except programs.ProgramsMissing as missing:
        pytest.skip(f"no control plane: {missing}")
    folder = tmp_path_factory.mktemp("templates")
    with ControlPlane(folder, scheduler=False, nodes=False) as plane, api_of(plane) as client:
        yield client


def test_pods_are_those_of_real_controllers(api: RealApi, tmp_path: Path) -> None:
    """Field by field, as far as a decision reads them."""
    ours = _made_from_files(tmp_path)
    for item in (*CLASSES, *WORKLOADS):
        api.apply(item)
    theirs = _made_by_controllers(api, sum(map(len, ours.values())))
    assert {name: len(pods) for name, pods in theirs.items()} == {name: len(pods) for name, pods in ours.items()}
    for name, pods in sorted(ours.items()):
        assert [_facts(pod) for pod in pods] == [_facts(pod) for pod in theirs[name]], name
        for label in _OF_CLUSTER:
            assert len({pod.metadata.labels.get(label) for pod in theirs[name]}) == 1
            assert len({pod.metadata.labels.get(label) for pod in pods}) == 1


def _made_from_files(folder: Path) -> dict[str, list[Pod]]:
    storage = {"kind": "StorageClass", "metadata": {"name": "any"}, "provisioner": "ebs.csi.aws.com"}
    file = folder / "all.json"
    file.write_text(json.dumps({"kind": "List", "items": [*CLASSES, *WORKLOADS, storage]}))
    return _by_workload(read_cluster_state([file], []).view.pods)


def _made_by_controllers(api: RealApi, number: int) -> dict[str, list[Pod]]:
    deadline = time.monotonic() + _WAIT_S
    while True:
        items = [item for item in api.list("pods").items if item["metadata"]["namespace"] == NAMESPACE]
        if len(items) >= number or time.monotonic() > deadline:
            return _by_workload(msgspec.convert(items, list[Pod]))
        time.sleep(0.2)


def _by_workload(pods: Any) -> dict[str, list[Pod]]:
    """The pods of each workload, in the order of their ordinals or indexes."""
    found: dict[str, list[Pod]] = {}
    for pod in sorted(pods, key=lambda item: (_place(item), item.metadata.name)):
        labels = pod.metadata.labels
        found.setdefault(labels.get("of") or labels["job-name"], []).append(pod)
    return found


def _place(pod: Pod) -> int:
    labels = pod.metadata.labels
    place = labels.get("apps.kubernetes.io/pod-index") or labels.get("batch.kubernetes.io/job-completion-index")
    return int(place or 0)


def _facts(pod: Pod) -> Object:
    """Return the facts of a pod that a decision reads, without the facts that only a cluster knows."""
    spec = pod.spec
    return {
        "labels": {key: "" if key in _OF_CLUSTER else value for key, value in pod.metadata.labels.items()},
        "requests": pod_requests(pod),
        "ports": [(port.host_port, port.container_port) for container in spec.containers for port in container.ports],
        "selector": spec.node_selector,
        "tolerations": [item for item in spec.tolerations if not _is_default(item)],
        "priority": (spec.priority, spec.priority_class_name),
        "claims": sorted(
            volume.persistent_volume_claim.claim_name for volume in spec.volumes if volume.persistent_volume_claim
        ),
        "network": spec.host_network,
        "runtime": spec.runtime_class_name,
    }


def _is_default(toleration: Toleration) -> bool:
    return toleration.key in _WHEN_NODES_FAIL and toleration.effect == "NoExecute"
