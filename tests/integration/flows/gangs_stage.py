"""A stage on which gangs wait: no two of its pods fit on one node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from shiplap.manifests.custom_resources import NodePool
from shiplap.policies.gangs.gangs_settings import WHOLE, GangSettings
from shiplap.policies.policy_settings import chosen
from tests.builders.pools import family_pool
from tests.integration.flows.stage import ZONES, Stage

ONLY_LARGE = (family_pool("any", ("m6i",), sizes=("large",)),)
KUBERNETES, PLUGINS = "scheduling.k8s.io", "scheduling.x-k8s.io"
_NAMED: dict[str, Callable[[str], dict[str, Any]]] = {
    KUBERNETES: lambda name: {"spec": {"schedulingGroup": {"podGroupName": name}}},
    PLUGINS: lambda name: {"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": name}}},
    "scheduling.volcano.sh": lambda name: {"metadata": {"annotations": {"scheduling.k8s.io/group-name": name}}},
    "scheduling.run.ai": lambda name: {"metadata": {"annotations": {"pod-group-name": name}}},
}
APIS = tuple(_NAMED)
"""The APIs that have PodGroups."""

OFFERINGS = tuple(("m6i.large", zone, "on-demand") for zone in ZONES)


def stage_of_gangs(mode: str = WHOLE, *, pools: Sequence[NodePool] = ONLY_LARGE, beside: Stage | None = None) -> Stage:
    """A stage with gangs in this mode."""
    stage = Stage(pools, beside=beside)
    stage.settings = replace(stage.settings, policies=chosen(GangSettings(mode)))
    return stage.with_policies()


def add_gang(stage: Stage, size: int = 3, name: str = "train", total: int | None = None) -> None:
    """Add a pod group of Kueue whose gates are gone; `total` where it needs another number of pods."""
    pending = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    requests = {"cpu": "1200m", "memory": "2Gi"}
    for number in range(size):
        metadata: dict[str, Any] = {
            "name": f"{name}-{number}",
            "namespace": "default",
            "uid": f"uid-{name}-{number}",
            "labels": {"kueue.x-k8s.io/pod-group-name": name},
            "annotations": {"kueue.x-k8s.io/pod-group-total-count": str(total or size)},
        }
        container = {"name": "main", "resources": {"requests": requests}}
        status = {"phase": "Pending", "conditions": [pending]}
        stage.server.create("pods", {"metadata": metadata, "spec": {"containers": [container]}, "status": status})


def add_members(stage: Stage, size: int = 3, api: str = PLUGINS, name: str = "train", *, cpu: str = "1200m") -> None:
    """Add pods that name a PodGroup of this API."""
    pending = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    container = {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "2Gi"}}}
    said = _NAMED[api](name)
    for number in range(size):
        identity = {"name": f"{name}-{number}", "namespace": "default", "uid": f"uid-{name}-{number}"}
        spec = {"containers": [container], **said.get("spec", {})}
        body = {"metadata": {**identity, **said.get("metadata", {})}, "spec": spec}
        stage.server.create("pods", {**body, "status": {"phase": "Pending", "conditions": [pending]}})


def add_pod_group(
    stage: Stage, minimum: object = 3, api: str = PLUGINS, name: str = "train", namespace: str = "default"
) -> None:
    """Add a PodGroup of this API that needs so many members."""
    spec = {"minMember": minimum} if api != KUBERNETES else {"schedulingPolicy": {"gang": {"minCount": minimum}}}
    stage.server.create(f"podgroups.{api}", {"metadata": {"name": name, "namespace": namespace}, "spec": spec})


def only(stage: Stage, *numbers: int) -> None:
    """EC2 has so many instances left, zone by zone."""
    stage.compute.capacity.update(dict(zip(OFFERINGS, numbers, strict=True)))
