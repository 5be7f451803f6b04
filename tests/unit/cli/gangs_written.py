"""Files with gangs and requests, a NodePool with GPUs and its templates, and a folder that `shiplap plan` is given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.commands import Shiplap, listed
from tests.unit.cli.planned_files import CATALOG, POOL, pod
from tests.unit.manifests.manifest_samples import NODE_POOL, changed

GPU = "nvidia.com/gpu"
MINIMUM = "shiplap.dev/gang-minimum"
ATOMIC, CHECK = (f"{kind}.autoscaling.x-k8s.io" for kind in ("best-effort-atomic-scale-up", "check-capacity"))


def gpu_pool(name: str = "train", gpus: str = "", *families: str, **template: Any) -> dict[str, Any]:
    rule = {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": list(families or ("g6",))}
    made = changed(NODE_POOL, "metadata.name", name)
    made = changed(made, "spec.template.spec.requirements", [rule])
    made = changed(made, "spec.template.spec.taints", template.pop("taints", []))
    made = changed(made, "spec.template.metadata", {"labels": template.pop("labels", {})})
    return changed(made, "spec.limits", {GPU: gpus} if gpus else {})


def template(minimum: int | None = 4, gpus: str = "8", **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {GPU: gpus}, "limits": {GPU: gpus}}}
    said = {} if minimum is None else {"annotations": {MINIMUM: str(minimum)}}
    return {"metadata": said, "spec": {"containers": [container], **spec}}


def arguments(folder: Path, nodes: int, *objects: dict[str, Any]) -> list[str]:
    pool = json.loads(json.dumps(POOL))
    pool["spec"]["limits"] = {"nodes": str(nodes)}
    (folder / "pool.json").write_text(listed(pool))
    (folder / "state.json").write_text(listed(*objects))
    (folder / "catalog.json").write_text(json.dumps(CATALOG))
    given = ("-f", str(folder / "state.json"), "--manifests", str(folder / "pool.json"))
    return ["plan", *given, "--catalog", str(folder / "catalog.json")]


def pod_template(name: str = "worker", namespace: str = "web", cpu: str = "5") -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    spec = {"containers": [container], "tolerations": [{"key": "dedicated", "operator": "Exists"}]}
    meta = {"name": name, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": meta,
        "template": {"spec": spec},
    }


def request(count: object = 3, of: str = ATOMIC, name: str = "train", **spec: Any) -> dict[str, Any]:
    sets = [{"podTemplateRef": {"name": "worker"}, "count": count}]
    meta = {"name": name, "namespace": "web"}
    wanted = {"provisioningClassName": of, "podSets": sets, **spec}
    return {"apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest", "metadata": meta, "spec": wanted}


def consumer(name: str = "train-0") -> dict[str, Any]:
    found = pod(name, "5")
    found["metadata"]["annotations"] = {"autoscaling.x-k8s.io/consume-provisioning-request": "train"}
    return found


def request_status(*conditions: tuple[str, str, str], booked: str = "") -> dict[str, Any]:
    """A status with conditions of type, status and time."""
    written = [
        {"type": kind, "status": state, "reason": "Known", "message": f"{kind} it is", "lastTransitionTime": at}
        for kind, state, at in conditions
    ]
    return {"conditions": written, "provisioningClassDetails": {"BookedNodes": booked} if booked else {}}


def members(total: int = 3) -> list[dict[str, Any]]:
    found = [pod(f"train-{number}", "1500m") for number in range(3)]
    for item in found:
        item["metadata"]["labels"] = {"kueue.x-k8s.io/pod-group-name": "train"}
        item["metadata"]["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": str(total)}
    return found


def thing(api_version: str, kind: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "train", "namespace": "ml"}, "spec": spec}


def job(parallelism: int = 4, **fields: Any) -> dict[str, Any]:
    return thing("batch/v1", "Job", parallelism=parallelism, template=template(**fields))


def warned_of_gangs(shiplap: Shiplap, folder: Path, *objects: dict[str, Any]) -> list[dict[str, Any]]:
    (folder / "all.json").write_text(listed(*objects))
    found: list[dict[str, Any]] = shiplap.json("validate", folder)["warnings"]
    return [item for item in found if "gang" in item["reason"] + item["field"]]


KINDS = [
    job(),
    thing("apps/v1", "StatefulSet", replicas=4, template=template()),
    thing(
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        replicatedJobs=[
            {"name": "leader", "template": {"spec": {"template": template()}}},
            {"name": "workers", "replicas": 3, "template": {"spec": {"parallelism": 1, "template": template()}}},
        ],
    ),
    thing(
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        replicas=3,
        leaderWorkerTemplate={"size": 4, "workerTemplate": template()},
    ),
    thing(
        "ray.io/v1",
        "RayCluster",
        headGroupSpec={"template": template()},
        workerGroupSpecs=[{"replicas": 3, "template": template()}],
    ),
    thing(
        "kubeflow.org/v1",
        "MPIJob",
        mpiReplicaSpecs={"Launcher": {"template": template()}, "Worker": {"replicas": 3, "template": template()}},
    ),
]
