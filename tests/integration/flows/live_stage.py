"""A stage whose manifests are objects of its API server."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from shiplap.flows.disrupt.disruption_round import DisruptionReport, disrupt
from shiplap.flows.live_settings import KnownManifests, listed_settings
from shiplap.flows.messages import PodsPending, Sweep
from shiplap.flows.schedule.schedule import ScheduleReport
from shiplap.flows.schedule.standalone_launches import with_standalone_claims
from shiplap.flows.sweep.manifest_statuses import publish_statuses
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.live.allowed_resources import AllowedResources
from shiplap.settings import ClusterSettings
from shiplap_lab.fakes.stores import FakeManifests, FakeMemory
from tests.integration.flows.stage import FLEX_FIRST, Stage
from tests.unit.manifests.manifest_samples import EC2_NODE_CLASS

LEASE = "karpenter-leader-election"


class LiveStage(Stage):
    """A stage whose NodePools and EC2NodeClass are objects of its API server."""

    def __init__(self) -> None:
        super().__init__()
        self.store = FakeManifests(self.faults)
        self.memory = FakeMemory(self.faults)
        self.context = replace(self.context, manifests=self.store, memory=self.memory)
        self.deployed: ClusterSettings = replace(
            self.settings,
            manifests=type(self.settings.manifests)(),
            live_manifests=True,
            allowed=AllowedResources(node_roles=("node",)),
        )
        self.known = KnownManifests()
        self.server.create("ec2nodeclasses", EC2_NODE_CLASS)
        for pool in FLEX_FIRST:
            self.server.create("nodepools", written(pool))

    def read(self, *, keep: bool = True) -> ClusterSettings:
        """Read the settings with which an invocation decides."""
        self.settings, self.manifest_state = listed_settings(self.deployed, self.context, self.known, keep=keep)
        return self.settings

    def schedule(self, *hints: PodsPending | Sweep, **options: Any) -> ScheduleReport:
        self.read()
        if any(isinstance(hint, Sweep) for hint in hints):
            self.manifest_state = with_standalone_claims(self.manifest_state, self.settings, self.context, self.known)
        return super().schedule(*hints, **options)

    def disrupt(self) -> DisruptionReport:
        self.read(keep=False)
        return disrupt(self.settings, self.context, self.memory, manifest_state=self.manifest_state)

    def edit(self, pool: str, **spec: Any) -> None:
        self.server.patch("nodepools", pool, {"spec": spec})

    def minute(self) -> None:
        """The next sweep, as the function does it: what the cluster shows comes last."""
        self.clock.advance(60)
        self.sweep()
        publish_statuses(self.settings, self.context, self.known, self.manifest_state)

    def pools(self) -> list[str]:
        return [pool.metadata.name for pool in self.read().manifests.node_pools]


def written(pool: msgspec.Struct) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(pool))
    body["spec"]["template"]["spec"]["nodeClassRef"] = {
        "group": "karpenter.k8s.aws",
        "kind": "EC2NodeClass",
        "name": "default",
    }
    if not body["spec"].get("weight"):
        body["spec"].pop("weight", None)
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", **body}


def lease(renewed_at: float, holder: str = "karpenter-abc") -> dict[str, Any]:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": rfc3339(renewed_at)}
    return {"metadata": {"name": LEASE, "namespace": "kube-system"}, "spec": spec}
