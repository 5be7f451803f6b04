"""Reuses the last decision while nothing has changed.

In most minutes most clusters do not change, and a decision is expensive. A decision is a pure function of its snapshot:
if nothing else has changed, only time can change it. The clock of the decision knows when, except for plans, which do
not ask it: `plan_moments` has the moments of their conditions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from shiplap.disruption.commands import Decision
from shiplap.disruption.decide import decide
from shiplap.disruption.decision_clock import LONGEST_S, DecisionClock
from shiplap.disruption.disruption_snapshot import DisruptionSnapshot
from shiplap.kubernetes.objects import Node, Pod
from shiplap.kubernetes.timestamps import epoch
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.scheduling.model.planned_pods import STARTING_S, protected_until
from shiplap.scheduling.model.snapshot import ClusterView, NodeClassCatalog
from shiplap.scheduling.supply.reservations import SHOWN_AFTER_S

_ROUNDING_S = 0.001
_PODS_AT_ONCE = 1000


class LastDecision:
    """Stands in for `decide` for the snapshots of one cluster; keeps the last one, the catalogues and a digest of
    all else that it looked at.

    Decisions with commands are never kept: the next decision confirms them, and both are recorded. `until`, in epoch
    seconds, is when time alone may change the one that is kept; 0 without one.
    """

    def __init__(self) -> None:
        self._seen = b""
        self._catalogs: tuple[NodeClassCatalog, ...] = ()
        self._made_at = self.until = 0.0
        self._decision = Decision()

    def __call__(self, snapshot: DisruptionSnapshot) -> Decision:
        """As `decide`; what the reasons of blocked nodes say of the time may be as old as the decision."""
        now, catalogs, seen = snapshot.scheduling.now, snapshot.scheduling.catalogs, _digest(snapshot)
        if self._made_at <= now < self.until and seen == self._seen and catalogs == self._catalogs:
            return self._decision
        self._seen, self.until = b"", 0.0
        clock = DecisionClock(now)
        decision = decide(snapshot, clock)
        if not decision.commands:
            self._seen, self._catalogs, self._decision = seen, catalogs, decision
            self._made_at, self.until = now, unchanged_until(snapshot, clock)
        return decision


def unchanged_until(snapshot: DisruptionSnapshot, clock: DecisionClock) -> float:
    """Epoch seconds before which time alone does not change the decision that was made with this clock."""
    clock.note(plan_moments(snapshot))
    return min(clock.changes_at, clock.now + LONGEST_S) - _ROUNDING_S


def plan_moments(snapshot: DisruptionSnapshot) -> Iterator[float]:
    """Yield the moments at which time alone may change a plan or the protection of a pod, and many that have passed."""
    scheduling = snapshot.scheduling
    for claim in scheduling.claims:
        if claim.state in (ClaimState.LAUNCHED, ClaimState.REGISTERED):
            yield claim.changed_at + SHOWN_AFTER_S
    known = {claim.node_name for claim in scheduling.claims if claim.created_at}
    demanded = any(driver.spec.prevent_pod_scheduling_if_missing for driver in scheduling.view.csi_drivers)
    for node in scheduling.view.nodes:
        ready = all(condition.status == "True" for condition in node.status.conditions if condition.type == "Ready")
        if node.metadata.creation_timestamp and (demanded or not ready or node.metadata.name not in known):
            yield epoch(node.metadata.creation_timestamp) + STARTING_S
    for pod in scheduling.view.of_pods(_annotated):
        yield protected_until(pod)
    for event in scheduling.view.events:
        said_at = event.last_timestamp or event.event_time or event.metadata.creation_timestamp
        if said_at:
            yield epoch(said_at) + scheduling.settings.autoscaler_hold_s


def _annotated(view: ClusterView) -> list[Pod]:
    """Pods that may have the annotation do-not-disrupt."""
    return [pod for pod in view.pods if pod.metadata.annotations]


def _digest(snapshot: DisruptionSnapshot) -> bytes:
    """Digest of the snapshot without the time, the epoch and the versions of nodes, which change on an idle cluster,
    and without the catalogues, which are kept: they are most of a snapshot, and mostly the same objects.

    Pods and claims count by their version where they have one: it changes whenever they do.
    """
    scheduling = snapshot.scheduling
    claims = [(claim.name, claim.version) if claim.version else claim for claim in scheduling.claims]
    rest = replace(
        snapshot, scheduling=replace(scheduling, now=0.0, epoch=0, claims=(), catalogs=(), view=ClusterView())
    )
    digest = hashlib.blake2b(msgspec.msgpack.encode((rest, claims), order="deterministic"), digest_size=16)
    digest.update(scheduling.view.once(_view_digest))
    return digest.digest()


def _view_digest(view: ClusterView) -> bytes:
    nodes = tuple(_unversioned(node) for node in view.nodes)
    rest = replace(view, nodes=nodes, pods=(), version="")
    digest = hashlib.blake2b(msgspec.msgpack.encode(rest, order="deterministic"), digest_size=16)
    digest.update(view.of_pods(_pods_digest))
    return digest.digest()


def _pods_digest(view: ClusterView) -> bytes:
    """Pods are encoded in batches, so that a large cluster is not in memory twice."""
    digest, pods = hashlib.blake2b(digest_size=16), view.pods
    for start in range(0, len(pods), _PODS_AT_ONCE):
        some = [_identity(pod) for pod in pods[start : start + _PODS_AT_ONCE]]
        digest.update(msgspec.msgpack.encode(some))
    return digest.digest()


def _identity(pod: Pod) -> Pod | tuple[str, str]:
    """A pod's uid and version where it has both, else the pod itself."""
    meta = pod.metadata
    return (meta.uid, meta.resource_version) if meta.resource_version and meta.uid else pod


def _unversioned(node: Node) -> Node:
    return replace(node, metadata=replace(node.metadata, resource_version=""))
