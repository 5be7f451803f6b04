"""Promises of a run in which the manifests are objects of the clusters, which faults change.

Nothing is launched or disrupted against the manifests, and at the end the NodeClaim objects show the claims.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from shiplap.disruption.commands import Reason
from shiplap.errors import ClusterDenied
from shiplap.manifests.custom_resources import Manifests, NodePool
from shiplap.manifests.live.allowed_resources import AllowedResources
from shiplap.manifests.live.live_manifests import SETTLED_S
from shiplap.manifests.live.nodeclaim_objects import claim_object_changes
from shiplap.ports import ClusterApi, Instance
from shiplap.settings import ClusterSettings
from shiplap_lab.cluster_simulator.simulated_cluster import SimulatedCluster
from shiplap_lab.faults.fault import Fault
from shiplap_lab.faults.fault_kinds import FAULTS
from shiplap_lab.faults.manifest_objects import NODE_ROLE, ShownManifests
from shiplap_lab.faults.manifests.edit_and_back import EditAndBackFault
from shiplap_lab.faults.manifests.karpenter_lease import KarpenterLeaseFault
from shiplap_lab.faults.manifests.manifest_fault import ManifestFaultKind
from shiplap_lab.faults.manifests.pools_deleted import PoolsDeletedFault
from shiplap_lab.faults.played_faults import PlayedFaults
from shiplap_lab.faults.requests.api_down import ApiDownFault
from shiplap_lab.virtual_time.simulated_install import SimulatedInstall

NOTICED_S = 300.0
"""An invocation that has begun before a cluster is suspended may go on for so many seconds."""

_LASTING = frozenset(kind.name for kind in FAULTS if issubclass(kind, ManifestFaultKind) and not kind.is_momentary)
_SUSPENDING = tuple(kind.name for kind in FAULTS if issubclass(kind, ManifestFaultKind) and kind.suspends)


def with_live_manifests(settings: ClusterSettings) -> ClusterSettings:
    """The settings of a cluster with `manifests: cluster`."""
    return replace(
        settings, manifests=Manifests(), live_manifests=True, allowed=AllowedResources(node_roles=(NODE_ROLE,))
    )


class ManifestPromises:
    """Judges what only faults of manifests could make Shiplap do; `broken` gets what is not as expected."""

    def __init__(
        self,
        faults: PlayedFaults,
        objects: ShownManifests,
        clusters: Mapping[str, SimulatedCluster[Instance]],
        installs: Mapping[str, SimulatedInstall],
        broken: Callable[[str], object],
    ) -> None:
        self._faults, self._objects, self._clusters, self._installs = faults, objects, clusters, installs
        self._broken, self._loop = broken, faults.loop
        self._since: dict[tuple[str, str], float] = {}
        self._judged: set[str] = set()
        for install in installs.values():
            for name, context in install.contexts.items():
                api = _RefusingCluster(context.cluster, partial(self._is_denied, name))
                install.contexts[name] = replace(context, cluster=api, memory=install.memory)

    def fault_began(self, fault: Fault) -> None:
        """A fault is active; it counts from when the API server answers."""
        if fault.kind in _LASTING:
            self._objects.when_up(partial(self._note_begin, fault))

    def fault_ended(self, fault: Fault) -> None:
        """A fault is over. Karpenter has lost its Lease while the API server was down, and takes it again."""
        if fault.kind == ApiDownFault.name:
            leases = [key for key in self._since if key[1] == KarpenterLeaseFault.name]
            self._since |= dict.fromkeys(leases, self._loop.now())
        if fault.kind in _LASTING:
            for cluster in self._objects.targets(fault):
                if not self._faults.active_of(fault.kind, cluster):
                    self._since.pop((cluster, fault.kind), None)

    def _note_begin(self, fault: Fault) -> None:
        for cluster in self._objects.targets(fault):
            if self._faults.active_of(fault.kind, cluster):
                self._since.setdefault((cluster, fault.kind), self._loop.now())

    def _is_denied(self, cluster: str) -> bool:
        return any(kind.denies_manifests(cluster) for kind in self._faults.at_work)

    def collect_orphans(self) -> None:
        """As kube-controller-manager: pods that were bound to a Node in its last minutes go when it is gone."""
        if self._faults.is_api_down:
            return
        for cluster in self._clusters.values():
            present = {node["metadata"]["name"] for node in cluster.server.list("nodes").items}
            for pod in cluster.server.list("pods").items:
                if (node := pod["spec"].get("nodeName")) and node not in present:
                    metadata = pod["metadata"]
                    cluster.server.delete("pods", metadata["name"], metadata["namespace"], grace_s=0)

    def _suspended_since(self, cluster: str) -> float | None:
        since = [self._since[cluster, kind] for kind in _SUSPENDING if (cluster, kind) in self._since]
        return min(since, default=None)

    def launched(self, instance: Instance) -> None:
        """An instance was launched: not while its cluster is suspended."""
        since = self._suspended_since(instance.cluster)
        if since is not None and self._loop.now() > since + NOTICED_S and not self._may_launch(instance):
            self._broken(f"{instance.id} was launched although {instance.cluster} is suspended")

    def _may_launch(self, instance: Instance) -> bool:
        """NodeClaims of users need no NodePool."""
        kinds = [kind for kind in _SUSPENDING if (instance.cluster, kind) in self._since]
        return not instance.node_pool and kinds == [PoolsDeletedFault.name]

    def judge_commands(self) -> None:
        """Check that no command since the last time was decided against the manifests."""
        for install in self._installs.values():
            for cluster in self._clusters:
                for command in install.state.commands(cluster):
                    if command.name in self._judged:
                        continue
                    self._judged.add(command.name)
                    since = self._suspended_since(cluster)
                    if since is not None and command.created_at > since + NOTICED_S:
                        self._broken(f"{command.name} was begun although {cluster} is suspended")
                    pools = {install.state.written[cluster, name].plan.node_pool for name in command.targets}
                    wobbles_since = self._since.get((cluster, EditAndBackFault.name), command.created_at)
                    is_early = self._objects.first(cluster) in pools and command.created_at > wobbles_since + SETTLED_S
                    if command.reason is Reason.DRIFTED and is_early:
                        self._broken(f"{command.name}: no spec has stood for a minute")

    def judge_objects(self) -> None:
        """At the end the objects show the claims; the statuses of the last minute may still be missing."""
        for install in self._installs.values():
            for settings in install.settings.clusters:
                api, server = install.contexts[settings.name].cluster, self._objects.servers[settings.name]
                pools = [msgspec.convert(item, NodePool) for item in server.list("nodepools").items]
                claims, objects = install.state.claims(settings.name), api.node_claim_objects()
                now = self._loop.now()
                changes = claim_object_changes(claims, objects, pools, api.nodes(), settings.install, now, None)
                wrong = [item["metadata"]["name"] for item in (*changes.created, *changes.deleted)]
                if wrong:
                    self._broken(f"NodeClaim objects do not show the claims: {wrong}")


class _RefusingCluster:
    """A ClusterApi whose manifests are refused while `is_denied`."""

    def __init__(self, cluster: ClusterApi, is_denied: Callable[[], bool]) -> None:
        self._cluster, self._is_denied = cluster, is_denied

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def manifest_objects(self) -> Any:
        if self._is_denied():
            raise ClusterDenied("nodepools.karpenter.sh is forbidden", status=403)
        return self._cluster.manifest_objects()
