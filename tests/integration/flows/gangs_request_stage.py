"""A stage on which ProvisioningRequests are made: no two of their pods fit on one node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from shiplap.policies.gangs.gangs_settings import WHOLE, GangSettings
from shiplap.policies.gangs.provisioning_requests import ATOMIC_SCALE_UP, CHECK_CAPACITY
from shiplap.policies.policy_settings import chosen
from tests.integration.flows.disrupted import Disrupted

ATOMIC, CHECK = ATOMIC_SCALE_UP, CHECK_CAPACITY
CONSUMES = "autoscaling.x-k8s.io/consume-provisioning-request"


def stage_of_requests(*, serves: bool = True) -> Disrupted:
    """A stage with gangs, on which the disrupt function is played, too."""
    stage = Disrupted()
    stage.settings = replace(stage.settings, policies=chosen(GangSettings(WHOLE, provisioning_requests=serves)))
    stage.with_policies()
    return stage


def limit_pool(stage: Disrupted, cpu: str) -> None:
    """Give the NodePool of a stage a limit."""
    (pool,) = stage.settings.manifests.node_pools
    limited = replace(pool, spec=replace(pool.spec, limits={"cpu": cpu}))
    stage.settings = replace(stage.settings, manifests=replace(stage.settings.manifests, node_pools=(limited,)))


def add_template(stage: Disrupted, name: str = "worker", *, cpu: str = "7", **spec: Any) -> None:
    """Add a PodTemplate; no two of its pods fit on one node."""
    container = {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "2Gi"}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], **spec}}
    stage.server.create("podtemplates", {"metadata": {"name": name, "namespace": "default"}, "template": template})


def add_request(
    stage: Disrupted,
    *counts: int,
    name: str = "train",
    of: str = ATOMIC,
    templates: Sequence[str] = ("worker",),
    parameters: Mapping[str, str] | None = None,
    uid: str = "",
) -> None:
    """Add a request for so many pods of each template."""
    sets = [
        {"podTemplateRef": {"name": each}, "count": count}
        for each, count in zip(templates, counts or (2,), strict=True)
    ]
    spec = {"provisioningClassName": of, "podSets": sets, "parameters": dict(parameters or {})}
    meta = {"name": name, "namespace": "default", "uid": uid or f"uid-of-{name}", "generation": 1}
    stage.server.create("provisioningrequests", {"metadata": meta, "spec": spec})


def add_consumers(stage: Disrupted, count: int = 2, of: str = "train", *, cpu: str = "7", **annotations: str) -> None:
    """Add the pods of the job that consumes a request."""
    pending = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    container = {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "2Gi"}}}
    for number in range(count):
        meta = {
            "name": f"{of}-{number}",
            "namespace": "default",
            "uid": f"uid-{of}-{number}",
            "annotations": annotations or {CONSUMES: of},
        }
        status = {"phase": "Pending", "conditions": [pending]}
        stage.server.create("pods", {"metadata": meta, "spec": {"containers": [container]}, "status": status})


def status_of(stage: Disrupted, name: str = "train") -> dict[str, Any]:
    """Return the status of a request."""
    return dict(stage.server.get("provisioningrequests", name, "default").get("status", {}))


def conditions(stage: Disrupted, name: str = "train") -> dict[str, tuple[str, str]]:
    """Return status and reason of each condition of a request."""
    return {item["type"]: (item["status"], item["reason"]) for item in status_of(stage, name).get("conditions", [])}


def message(stage: Disrupted, kind: str, name: str = "train") -> str:
    """Return the message of a condition of a request."""
    found = (item["message"] for item in status_of(stage, name)["conditions"] if item["type"] == kind)
    return str(next(found))
