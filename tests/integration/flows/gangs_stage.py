"""A stage on which gangs wait: no two of its pods fit on one node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from shiplap.manifests.custom_resources import NodePool
from shiplap.policies.gangs.gangs_settings import WHOLE, GangSettings
from shiplap.policies.policy_settings import chosen
from tests.builders.pools import family_pool
from tests.integration.flows.stage import ZONES, Stage

ONLY_LARGE = (family_pool("any", ("m6i",), sizes=("large",)),)
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


def only(stage: Stage, *numbers: int) -> None:
    """EC2 has so many instances left, zone by zone."""
    stage.compute.capacity.update(dict(zip(OFFERINGS, numbers, strict=True)))
