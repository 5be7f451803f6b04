"""Faults of scenarios in which the manifests are objects of the clusters: what people and other controllers do to them.

Each fault says how the objects are to be while it lasts; faults of several kinds may last at once. When the last one
is over the objects are as the scenario has them, so that the run must come to rest as any other. Nobody reaches the
objects of a cluster whose API server is down: what was to happen then happens afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from shiplap.disruption.commands import Reason
from shiplap.errors import ClusterDenied, ObjectNotFound
from shiplap.flows.claim_events import pods_pending
from shiplap.flows.messages import MANIFESTS_CHANGED
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.custom_resources import Manifests, NodePool
from shiplap.manifests.live.allowed_resources import AllowedResources
from shiplap.manifests.live.live_manifests import SETTLED_S
from shiplap.manifests.live.nodeclaim_objects import claim_object_changes
from shiplap.ports import ClusterApi, Instance
from shiplap.settings import ClusterSettings
from shiplap_lab.api_server.server import ApiServer
from shiplap_lab.cluster_simulator.simulated_cluster import SimulatedCluster
from shiplap_lab.scenarios.scenario import Fault
from shiplap_lab.virtual_time.event_loop import EventLoop
from shiplap_lab.virtual_time.fault_injector import FaultInjector
from shiplap_lab.virtual_time.simulated_install import SimulatedInstall
from shiplap_lab.virtual_time.trace import Trace

NOTICED_S = 300.0
"""An invocation that has begun before a cluster is suspended may go on for so many seconds."""

LEASE_LASTS_S = 120.0
"""How long after its last renewal Karpenter's Lease may suspend a cluster, in seconds."""

_SUSPENDING = ("pools-deleted", "manifests-denied", "karpenter-lease")
_LASTING = (*_SUSPENDING, "invalid-manifest", "edit-and-back", "own-nodeclaim")
_WOBBLE_S = 30.0
_RENEWED_S = 10.0
_RETRY_S = 5.0
_LEASE = "karpenter-leader-election"
_LEASE_NAMESPACE = "kube-system"


class ManifestWorld(NamedTuple):
    """The world of these faults. `manifests` come from the scenario; `broken` gets what is not as expected."""

    loop: EventLoop
    faults: FaultInjector
    trace: Trace
    clusters: Mapping[str, SimulatedCluster[Instance]]
    installs: Mapping[str, SimulatedInstall]
    manifests: Mapping[str, Manifests]
    broken: Callable[[str], object]


def with_live_manifests(settings: ClusterSettings) -> ClusterSettings:
    """The settings of a cluster with `manifests: cluster`."""
    return replace(
        settings, manifests=Manifests(), live_manifests=True, allowed=AllowedResources(node_roles=(_NODE_ROLE,))
    )


class ManifestFaults:
    """Begins and ends faults, and judges what only they could make Shiplap do."""

    def __init__(self, world: ManifestWorld) -> None:
        self._world, self._loop, self._faults = world, world.loop, world.faults
        self._bodies = {name: _objects(manifests) for name, manifests in world.manifests.items()}
        self._since: dict[tuple[str, str], float] = {}
        self._is_edited = False
        self._judged: set[str] = set()
        self._momentary: dict[str, Callable[[int, Fault], None]] = {
            "nodeclaims-deleted": partial(self._delete_some, "nodeclaims"),
            "nodes-deleted": partial(self._delete_some, "nodes"),
        }
        for install in world.installs.values():
            for name, context in install.contexts.items():
                api = _RefusingCluster(context.cluster, partial(self._lasts, name, "manifests-denied"))
                install.contexts[name] = replace(context, cluster=api, memory=install.memory)
        for name, bodies in self._bodies.items():
            for plural, body in bodies:
                world.clusters[name].server.create(plural, body)

    def begin(self, number: int, fault: Fault) -> None:
        """A fault becomes active."""
        if fault.kind in self._momentary:
            self._when_up(partial(self._momentary[fault.kind], number, fault))
        elif fault.kind in _LASTING:
            self._faults.effects[fault.kind] += 1
            self._when_up(partial(self._note_begin, fault))
            self._when_up(self._show_all)
            if fault.kind == "karpenter-lease":
                self._renew_leases(number)
            elif fault.kind == "edit-and-back":
                self._edit_again(number)
            elif fault.kind == "own-nodeclaim":
                self._when_up(partial(self._write_nodeclaim, number, fault))

    def end(self, number: int, fault: Fault) -> None:
        """A fault is over."""
        if fault.kind == "api-down":  # Karpenter has lost its Lease meanwhile and takes it again
            leases = [key for key in self._since if key[1] == "karpenter-lease"]
            self._since |= dict.fromkeys(leases, self._loop.now())
        if fault.kind not in _LASTING:
            return
        for cluster in self._targets(fault):
            if not self._lasts(cluster, fault.kind):
                self._since.pop((cluster, fault.kind), None)
        self._when_up(self._show_all)
        if fault.kind == "own-nodeclaim":
            self._when_up(partial(self._delete_nodeclaim, number, fault))

    def _note_begin(self, fault: Fault) -> None:
        for cluster in self._targets(fault):
            if self._lasts(cluster, fault.kind):
                self._since.setdefault((cluster, fault.kind), self._loop.now())

    # Objects

    def _targets(self, fault: Fault) -> list[str]:
        return [name for name in sorted(self._bodies) if fnmatchcase(name, fault.target)]

    def _first(self, cluster: str) -> str:
        """The NodePool that is edited."""
        name: str = next(body["metadata"]["name"] for plural, body in self._bodies[cluster] if plural == "nodepools")
        return name

    def _lasts(self, cluster: str, kind: str) -> bool:
        return bool(self._faults.active_of(kind, cluster))

    def _when_up(self, act: Callable[[], object]) -> None:
        if self._faults.active_of("api-down"):
            self._loop.after(_RETRY_S, partial(self._when_up, act))
        else:
            act()

    def _server(self, cluster: str) -> ApiServer:
        return self._world.clusters[cluster].server

    def _show_all(self) -> None:
        """Make the NodePools of all clusters as the active faults want them."""
        for name, bodies in self._bodies.items():
            before = self._server(name).resource_version
            self._show(name, [body for plural, body in bodies if plural == "nodepools"])
            if self._server(name).resource_version != before:
                self._tell(name)

    def _show(self, cluster: str, pools: Sequence[dict[str, Any]]) -> None:
        server = self._server(cluster)
        there = {item["metadata"]["name"] for item in server.list("nodepools").items}
        if self._lasts(cluster, "pools-deleted"):
            for name in sorted(there):
                server.delete("nodepools", name)
            return
        for body in pools:
            if body["metadata"]["name"] not in there:
                server.create("nodepools", body)
        self._edit_first(cluster, pools[0])

    def _edit_first(self, cluster: str, body: dict[str, Any]) -> None:
        """The first NodePool is invalid, or has a label more, while a fault wants it so."""
        expiry = "soon" if self._lasts(cluster, "invalid-manifest") else body["spec"]["template"]["spec"]["expireAfter"]
        label = "a" if self._is_edited and self._lasts(cluster, "edit-and-back") else None
        template = {"metadata": {"labels": {"wobble": label}}, "spec": {"expireAfter": expiry}}
        self._server(cluster).patch("nodepools", body["metadata"]["name"], {"spec": {"template": template}})

    def _edit_again(self, number: int) -> None:
        if number not in self._faults.active:
            self._is_edited = False
            return
        self._is_edited = not self._is_edited
        self._when_up(self._show_all)
        self._loop.after(_WOBBLE_S, partial(self._edit_again, number))

    def _renew_leases(self, number: int) -> None:
        fault = self._faults.active.get(number)
        if fault is None:
            return
        if not self._faults.active_of("api-down"):
            for cluster in self._targets(fault):
                self._renew_lease(self._server(cluster))
        self._loop.after(_RENEWED_S, partial(self._renew_leases, number))

    def _renew_lease(self, server: ApiServer) -> None:
        now = rfc3339(self._loop.now())
        spec = {"holderIdentity": "karpenter-1", "leaseDurationSeconds": 15, "renewTime": now}
        try:
            server.patch("leases", _LEASE, {"spec": spec}, _LEASE_NAMESPACE)
        except ObjectNotFound:
            metadata = {"name": _LEASE, "namespace": _LEASE_NAMESPACE}
            server.create("leases", {"metadata": metadata, "spec": spec}, _LEASE_NAMESPACE)

    def _delete_some(self, plural: str, number: int, fault: Fault) -> None:
        """Somebody deletes so many of the NodeClaims or Nodes of each cluster."""
        chance = self._faults.random_of(number)
        for cluster in self._targets(fault):
            server = self._server(cluster)
            names = [item["metadata"]["name"] for item in server.list(plural).items]
            for name in chance.sample(sorted(names), min(len(names), int(fault.amount))):
                self._world.trace.record("deleted by a user", kind=plural, name=name)
                self._faults.effects[fault.kind] += 1
                server.delete(plural, name)

    def _write_nodeclaim(self, number: int, fault: Fault) -> None:
        """Somebody wants a node without a NodePool."""
        if number not in self._faults.active:
            return
        requirement = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
        for cluster in self._targets(fault):
            node_class = next(body["metadata"]["name"] for kind, body in self._bodies[cluster] if kind == _CLASSES)
            reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": node_class}
            metadata = {"name": _own_name(number), "creationTimestamp": rfc3339(self._loop.now())}
            spec = {"nodeClassRef": reference, "requirements": [requirement]}
            self._server(cluster).create("nodeclaims", {"kind": "NodeClaim", "metadata": metadata, "spec": spec})
            self._tell(cluster)

    def _delete_nodeclaim(self, number: int, fault: Fault) -> None:
        for cluster in self._targets(fault):
            try:
                self._server(cluster).delete("nodeclaims", _own_name(number))
            except ObjectNotFound:
                self._world.trace.record("NodeClaim is gone already", name=_own_name(number))
            self._tell(cluster)

    def _tell(self, cluster: str) -> None:
        """As the watch function does."""
        now = self._loop.now()
        event_id = f"{cluster}/manifests/{self._server(cluster).resource_version}"
        for install in self._world.installs.values():
            install.functions.route(pods_pending(cluster, (), MANIFESTS_CHANGED, now, event_id=event_id))

    def collect_orphans(self) -> None:
        """As kube-controller-manager: pods that were bound to a Node in its last minutes go when it is gone."""
        if self._faults.active_of("api-down"):
            return
        for cluster in self._world.clusters.values():
            present = {node["metadata"]["name"] for node in cluster.server.list("nodes").items}
            for pod in cluster.server.list("pods").items:
                if (node := pod["spec"].get("nodeName")) and node not in present:
                    metadata = pod["metadata"]
                    cluster.server.delete("pods", metadata["name"], metadata["namespace"], grace_s=0)

    # Promises

    def _suspended_since(self, cluster: str) -> float | None:
        since = [self._since[cluster, kind] for kind in _SUSPENDING if (cluster, kind) in self._since]
        return min(since, default=None)

    def launched(self, instance: Instance) -> None:
        """An instance was launched: not while its cluster is suspended."""
        since = self._suspended_since(instance.cluster)
        if since is not None and self._loop.now() > since + NOTICED_S and not self._may_launch(instance):
            self._world.broken(f"{instance.id} was launched although {instance.cluster} is suspended")

    def _may_launch(self, instance: Instance) -> bool:
        """NodeClaims of users need no NodePool."""
        kinds = [kind for kind in _SUSPENDING if (instance.cluster, kind) in self._since]
        return not instance.node_pool and kinds == ["pools-deleted"]

    def judge_commands(self) -> None:
        """Check that no command since the last time was decided against the manifests."""
        for install in self._world.installs.values():
            for cluster in self._world.clusters:
                for command in install.state.commands(cluster):
                    if command.name in self._judged:
                        continue
                    self._judged.add(command.name)
                    since = self._suspended_since(cluster)
                    if since is not None and command.created_at > since + NOTICED_S:
                        self._world.broken(f"{command.name} was begun although {cluster} is suspended")
                    pools = {install.state.written[cluster, name].plan.node_pool for name in command.targets}
                    wobbles_since = self._since.get((cluster, "edit-and-back"), command.created_at)
                    is_early = self._first(cluster) in pools and command.created_at > wobbles_since + SETTLED_S
                    if command.reason is Reason.DRIFTED and is_early:
                        self._world.broken(f"{command.name}: no spec has stood for a minute")

    def judge_objects(self) -> None:
        """At the end the objects show the claims; the statuses of the last minute may still be missing."""
        for install in self._world.installs.values():
            for settings in install.settings.clusters:
                api, server = install.contexts[settings.name].cluster, self._server(settings.name)
                pools = [msgspec.convert(item, NodePool) for item in server.list("nodepools").items]
                claims, objects = install.state.claims(settings.name), api.node_claim_objects()
                now = self._loop.now()
                changes = claim_object_changes(claims, objects, pools, api.nodes(), settings.install, now, None)
                wrong = [item["metadata"]["name"] for item in (*changes.created, *changes.deleted)]
                if wrong:
                    self._world.broken(f"NodeClaim objects do not show the claims: {wrong}")


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


_NODE_ROLE = "node"
_CLASSES = "ec2nodeclasses"


def _own_name(number: int) -> str:
    return f"own-{number}"


def _objects(manifests: Manifests) -> Sequence[tuple[str, dict[str, Any]]]:
    """A cluster's NodePools and EC2NodeClasses as users write them, by the plural of their kind."""
    found: list[tuple[str, dict[str, Any]]] = []
    names = {pool.spec.template.spec.node_class_ref.name for pool in manifests.node_pools}
    for name in sorted(names):
        spec = {
            "role": _NODE_ROLE,
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [{"tags": {"shiplap": "simulation"}}],
            "securityGroupSelectorTerms": [{"tags": {"shiplap": "simulation"}}],
        }
        body = {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": name}, "spec": spec}
        found.append((_CLASSES, body))
    for pool in manifests.node_pools:
        written: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(pool))
        reference = written["spec"]["template"]["spec"]["nodeClassRef"]
        reference |= {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass"}
        written["spec"]["template"]["spec"].setdefault("expireAfter", "720h")
        if not written["spec"].get("weight"):
            written["spec"].pop("weight", None)
        found.append(("nodepools", {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", **written}))
    return found
