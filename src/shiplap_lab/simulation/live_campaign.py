"""A run of the simulation in which the manifests are objects of the clusters, which people and faults change meanwhile.

Each change is drawn from the seed and lasts a few minutes: NodePools are all deleted, the lists are refused, Karpenter
takes its Lease, a NodePool does not validate, or an edit is taken back every half minute. The clusters are then as
before, so that the run must come to rest as any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

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
from shiplap.ports import ClusterApi, FleetOverride, FleetRequest, Instance
from shiplap.settings import ClusterSettings
from shiplap_lab.judge.promises import Promise
from shiplap_lab.scenarios.scenario import Fault, Play, ScenarioCluster
from shiplap_lab.simulation.chaos import draw_faults
from shiplap_lab.simulation.run import RunOutcome, Simulation
from shiplap_lab.virtual_time.supply import SimulatedHardware

CHANGES = ("emptied", "denied", "lease", "invalid", "wobble")
MOST_CHANGES = 6
NOTICED_S = 300.0
"""An invocation that has begun before a cluster is suspended may go on for so many seconds."""
_WOBBLE_S = 30.0
_RENEWED_S = 10.0
_LEASE = "karpenter-leader-election"


class LiveChange(msgspec.Struct, frozen=True, order=True):
    """A change of a cluster's manifests, or of who may read them; minutes since the start."""

    at: float
    kind: str
    cluster: str
    minutes: float

    @property
    def suspends(self) -> bool:
        """Whether nothing may be launched or disrupted meanwhile."""
        return self.kind in ("emptied", "denied", "lease")


def draw_changes(clusters: Sequence[str], seed: int) -> tuple[LiveChange, ...]:
    """Changes one after the other, so that each is taken back before the next one begins."""
    chance, at, drawn = Random(f"live/{seed}"), 2.0, []  # noqa: S311 - no secret
    for _ in range(chance.randint(2, MOST_CHANGES)):
        at += chance.uniform(1, 5)
        change = LiveChange(at, chance.choice(CHANGES), chance.choice(sorted(clusters)), chance.uniform(2, 12))
        drawn.append(change)
        at += change.minutes
    return tuple(drawn)


class _LiveCluster:
    """A ClusterApi whose manifests may be refused."""

    def __init__(self, cluster: ClusterApi) -> None:
        self._cluster = cluster
        self.denied = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def manifest_objects(self) -> Any:
        if self.denied:
            raise ClusterDenied("nodepools.karpenter.sh is forbidden", status=403)
        return self._cluster.manifest_objects()


class LiveSimulation(Simulation):
    """A simulation with `manifests: cluster`."""

    def __init__(self, play: Play, seed: int, faults: Sequence[Fault], hours: float) -> None:
        super().__init__(play, seed, faults, hours)
        self._drawn = draw_changes(list(self.clusters), seed)
        self._active: dict[str, tuple[LiveChange, float]] = {}
        self._bodies = {name: _objects(manifests) for name, manifests in play.manifests.items()}
        self._judged: set[str] = set()
        self._apis: list[tuple[str, _LiveCluster]] = []
        for install in self.installs.values():
            for name, context in install.contexts.items():
                api = _LiveCluster(context.cluster)
                self._apis.append((name, api))
                install.contexts[name] = replace(context, cluster=api, memory=install.memory)
        for cluster in play.scenario.clusters:
            written = super()._settings_of(cluster)
            self.hardware[cluster.name] = SimulatedHardware(self.sold, written, play.scenario.memory, seed)
        for name, bodies in self._bodies.items():
            for plural, body in bodies:
                self.clusters[name].server.create(plural, body)
        self._calm_from = max(
            self._calm_from, *(self._start + 60 * (change.at + change.minutes) + 120 for change in self._drawn)
        )
        self.observers += [self._judge_commands, self._collect_orphans]

    def _settings_of(self, cluster: ScenarioCluster) -> ClusterSettings:
        settings = super()._settings_of(cluster)
        allowed = AllowedResources(node_roles=("node",))
        return replace(settings, manifests=Manifests(), live_manifests=True, allowed=allowed)

    def play(self) -> RunOutcome:
        for change in self._drawn:
            self.loop.after(change.at * 60, partial(self._change, change))
            self.loop.after((change.at + change.minutes) * 60, partial(self._take_back, change))
        return super().play()

    def _outcome(self) -> RunOutcome:
        if not self.loop.stopped:
            self._judge_objects()
        return super()._outcome()

    # Changes

    def _change(self, change: LiveChange) -> None:
        self.trace.record("live change", kind=change.kind, target=change.cluster, minutes=change.minutes)
        self._active[change.cluster] = (change, self.loop.now())
        server = self.clusters[change.cluster].server
        if change.kind == "emptied":
            for plural, body in self._bodies[change.cluster]:
                if plural == "nodepools":
                    server.delete(plural, body["metadata"]["name"])
        elif change.kind == "denied":
            self._deny(change.cluster, denied=True)
        elif change.kind == "lease":
            self._renew_lease(change)
        elif change.kind == "invalid":
            self._edit_first(change.cluster, {"expireAfter": "soon"})
        else:
            self._wobble(change, on=True)
        self._tell(change.cluster)

    def _take_back(self, change: LiveChange) -> None:
        self._active.pop(change.cluster, None)
        server = self.clusters[change.cluster].server
        if change.kind == "emptied":
            for plural, body in self._bodies[change.cluster]:
                if plural == "nodepools":
                    server.create(plural, body)
        elif change.kind == "denied":
            self._deny(change.cluster, denied=False)
        elif change.kind == "invalid":
            self._edit_first(change.cluster, {"expireAfter": self._first(change.cluster)["expireAfter"]})
        elif change.kind == "wobble":
            self._label_first(change.cluster, None)
        self._tell(change.cluster)

    def _deny(self, cluster: str, *, denied: bool) -> None:
        for name, api in self._apis:
            if name == cluster:
                api.denied = denied

    def _renew_lease(self, change: LiveChange) -> None:
        if self._active.get(change.cluster, (None, 0.0))[0] is not change:
            return
        spec = {"holderIdentity": "karpenter-1", "leaseDurationSeconds": 15, "renewTime": rfc3339(self.loop.now())}
        server = self.clusters[change.cluster].server
        try:
            server.patch("leases", _LEASE, {"spec": spec}, "kube-system")
        except ObjectNotFound:
            server.create("leases", {"metadata": {"name": _LEASE, "namespace": "kube-system"}, "spec": spec})
        self.loop.after(_RENEWED_S, partial(self._renew_lease, change))

    def _wobble(self, change: LiveChange, *, on: bool) -> None:
        if self._active.get(change.cluster, (None, 0.0))[0] is not change:
            return
        self._label_first(change.cluster, "a" if on else None)
        self.loop.after(_WOBBLE_S, partial(self._wobble, change, on=not on))

    def _first(self, cluster: str) -> dict[str, Any]:
        pools = [body for plural, body in self._bodies[cluster] if plural == "nodepools"]
        spec: dict[str, Any] = pools[0]["spec"]["template"]["spec"]
        return spec

    def _edit_first(self, cluster: str, spec: dict[str, Any]) -> None:
        self._patch_first(cluster, {"template": {"spec": spec}})

    def _label_first(self, cluster: str, team: str | None) -> None:
        self._patch_first(cluster, {"template": {"metadata": {"labels": {"wobble": team}}}})

    def _patch_first(self, cluster: str, spec: dict[str, Any]) -> None:
        name = next(body["metadata"]["name"] for plural, body in self._bodies[cluster] if plural == "nodepools")
        self.clusters[cluster].server.patch("nodepools", name, {"spec": spec})
        self._tell(cluster)

    def _tell(self, cluster: str) -> None:
        """As the watch function does."""
        now = self.loop.now()
        event_id = f"{cluster}/manifests/{self.clusters[cluster].server.resource_version}"
        for install in self.installs.values():
            install.functions.route(pods_pending(cluster, (), MANIFESTS_CHANGED, now, event_id=event_id))

    def _collect_orphans(self) -> None:
        """As kube-controller-manager: pods that were bound to a Node in its last minutes go when it is gone."""
        for cluster in self.clusters.values():
            present = {node["metadata"]["name"] for node in cluster.server.list("nodes").items}
            for pod in cluster.server.list("pods").items:
                if (node := pod["spec"].get("nodeName")) and node not in present:
                    metadata = pod["metadata"]
                    cluster.server.delete("pods", metadata["name"], metadata["namespace"], grace_s=0)

    # Promises

    def _suspended_since(self, cluster: str) -> float | None:
        change, since = self._active.get(cluster, (None, 0.0))
        return since if change is not None and change.suspends else None

    def _is_wobbling(self, cluster: str, at: float) -> bool:
        """Whether the spec of a NodePool changes all the time, and has done so for a minute."""
        change, since = self._active.get(cluster, (None, 0.0))
        return change is not None and change.kind == "wobble" and at > since + SETTLED_S

    def _launched(self, instance: Instance, request: FleetRequest, override: FleetOverride) -> None:
        since = self._suspended_since(instance.cluster)
        if since is not None and self.loop.now() > since + NOTICED_S:
            self.judge.found(Promise.EXPECTED, f"{instance.id} was launched although {instance.cluster} is suspended")
        super()._launched(instance, request, override)

    def _judge_commands(self) -> None:
        for install in self.installs.values():
            for cluster in self.clusters:
                for command in install.state.commands(cluster):
                    if command.name in self._judged:
                        continue
                    self._judged.add(command.name)
                    since = self._suspended_since(cluster)
                    if since is not None and command.created_at > since + NOTICED_S:
                        self.judge.found(Promise.EXPECTED, f"{command.name} was begun although {cluster} is suspended")
                    if command.reason is Reason.DRIFTED and self._is_wobbling(cluster, command.created_at):
                        self.judge.found(Promise.EXPECTED, f"{command.name}: no spec has stood for a minute")

    def _judge_objects(self) -> None:
        """At the end the objects show the claims; the statuses of the last minute may still be missing."""
        for install in self.installs.values():
            for settings in install.settings.clusters:
                api = install.contexts[settings.name].cluster
                pools = [
                    msgspec.convert(item, NodePool)
                    for item in self.clusters[settings.name].server.list("nodepools").items
                ]
                claims, objects = install.state.claims(settings.name), api.node_claim_objects()
                now = self.loop.now()
                changes = claim_object_changes(claims, objects, pools, api.nodes(), settings.install, now, None)
                wrong = [item["metadata"]["name"] for item in (*changes.created, *changes.deleted)]
                if wrong:
                    self.judge.found(Promise.EXPECTED, f"NodeClaim objects do not show the claims: {wrong}")


def run_live_seed(play: Play, seed: int) -> RunOutcome:
    """One run; faults and changes are drawn from the seed."""
    return LiveSimulation(play, seed, draw_faults(play.scenario, seed), play.scenario.hours).play()


def _objects(manifests: Manifests) -> list[tuple[str, dict[str, Any]]]:
    """A cluster's NodePools and EC2NodeClasses as users write them, by the plural of their kind."""
    found: list[tuple[str, dict[str, Any]]] = []
    names = {pool.spec.template.spec.node_class_ref.name for pool in manifests.node_pools}
    for name in sorted(names):
        spec = {
            "role": "node",
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [{"tags": {"shiplap": "simulation"}}],
            "securityGroupSelectorTerms": [{"tags": {"shiplap": "simulation"}}],
        }
        body = {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": name}, "spec": spec}
        found.append(("ec2nodeclasses", body))
    for pool in manifests.node_pools:
        written: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(pool))
        reference = written["spec"]["template"]["spec"]["nodeClassRef"]
        reference |= {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass"}
        written["spec"]["template"]["spec"].setdefault("expireAfter", "720h")
        if not written["spec"].get("weight"):
            written["spec"].pop("weight", None)
        found.append(("nodepools", {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", **written}))
    return found
