"""Reuses the last decision while nothing has changed.

In most minutes most clusters do not change, and a decision is expensive. A decision is a pure function of its snapshot:
if nothing else has changed, only time can change it, at moments that are known beforehand.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from shiplap.disruption.budgets import is_active
from shiplap.disruption.candidates import UNSTARTED_S, quiet_since
from shiplap.disruption.commands import Decision
from shiplap.disruption.decide import decide
from shiplap.disruption.disruption_snapshot import DisruptionSnapshot
from shiplap.disruption.drift import YOUNG_S
from shiplap.disruption.move_costs import steps_to_come
from shiplap.disruption.node_history import backoff_until
from shiplap.disruption.removing_policy import RemovesNodes
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, Pod
from shiplap.kubernetes.timestamps import epoch
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.manifests.shiplap_annotations import DISRUPTION_TIME_ZONE
from shiplap.manifests.times import go_seconds, seconds_or_never
from shiplap.scheduling.model.snapshot import ClusterView, NodeClassCatalog
from shiplap.scheduling.supply.existing_nodes import STARTING_S
from shiplap.scheduling.supply.reservations import SHOWN_AFTER_S

LONGEST_S = 900.0
"""The longest reuse of a decision, in seconds: it bounds the cost of a mistake in `unchanged_until`."""

_MINUTE_S = 60
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
        decision = decide(snapshot)
        if not decision.commands:
            self._seen, self._catalogs, self._decision = seen, catalogs, decision
            self._made_at, self.until = now, unchanged_until(snapshot)
        return decision


def unchanged_until(snapshot: DisruptionSnapshot) -> float:
    """Epoch seconds before which time alone does not change the decision; at the earliest the snapshot's own.

    It includes every moment at which a condition on the time may change, also those that decide nothing.
    """
    now, pools = snapshot.scheduling.now, snapshot.scheduling.manifests.node_pools
    if any(pool.spec.replicas is not None for pool in pools):
        return now  # the removal order of a static pool changes with every second of its nodes' age
    return min((moment for moment in _moments(snapshot) if moment >= now), default=now + LONGEST_S) - _ROUNDING_S


def _moments(snapshot: DisruptionSnapshot) -> Iterator[float]:
    """The moments to come, and many that have passed."""
    now, pools = snapshot.scheduling.now, snapshot.scheduling.manifests.node_pools
    yield now + LONGEST_S
    for pool in pools:
        yield from _budget_moments(pool, now)
    patience = {seconds_or_never(pool.spec.disruption.consolidate_after) or 0 for pool in pools}
    starting = snapshot.scheduling.view.of_pods(_starting_on)
    for history in snapshot.histories:
        for quiet_s in patience | {UNSTARTED_S} if history.node in starting else patience:
            yield quiet_since(history) + quiet_s
        yield history.moved_in_at + snapshot.settings.settle_s
        yield backoff_until(history)
    expirations = {pool.spec.template.spec.expire_after for pool in pools}
    expirations |= {claim.plan.expire_after for claim in snapshot.scheduling.claims if claim.plan.expire_after}
    ages = {seconds_or_never(expire_after) or 0 for expire_after in expirations}
    yield from _node_moments(snapshot, ages | {YOUNG_S, snapshot.settings.climb_back_s})
    yield from _pod_moments(snapshot)
    for policy in snapshot.scheduling.policies:
        if isinstance(policy, RemovesNodes):
            yield from policy.moments()
    yield from steps_to_come(snapshot.scheduling.claims, now)


def _budget_moments(pool: NodePool, now: float) -> Iterator[float]:
    """The next whole minutes at which a budget's window opens or closes; one that cannot be read never does."""
    zone = pool.metadata.annotations.get(DISRUPTION_TIME_ZONE, "UTC")
    for budget in pool.spec.disruption.budgets:
        if budget.schedule is None:
            continue
        try:
            active = is_active(budget, now, zone)
            first = (int(now) // _MINUTE_S + 1) * _MINUTE_S
            minutes = range(first, int(now + LONGEST_S), _MINUTE_S)
            yield from (minute for minute in minutes if is_active(budget, minute, zone) is not active)
        except ValueError:
            continue


def _node_moments(snapshot: DisruptionSnapshot, ages: set[float]) -> Iterator[float]:
    """Nodes that reach an age, have had time to start, or were launched long enough ago to be counted by EC2."""
    for claim in snapshot.scheduling.claims:
        yield from (claim.created_at + age for age in ages)
        if claim.state in (ClaimState.LAUNCHED, ClaimState.REGISTERED):
            yield claim.changed_at + SHOWN_AFTER_S
    known = {claim.node_name for claim in snapshot.scheduling.claims if claim.created_at}
    for node in snapshot.scheduling.view.nodes:
        ready = all(condition.status == "True" for condition in node.status.conditions if condition.type == "Ready")
        if not node.metadata.creation_timestamp or (ready and node.metadata.name in known):
            continue
        born = epoch(node.metadata.creation_timestamp)
        yield from (born + age for age in ages)
        yield born + STARTING_S


def _pod_moments(snapshot: DisruptionSnapshot) -> Iterator[float]:
    """Pods that should have started, whose protection ends, or that Cluster Autoscaler has launched for lately."""
    for pod in snapshot.scheduling.view.of_pods(_timed):
        if pod.status.phase == "Pending":
            yield epoch(pod.status.start_time) + UNSTARTED_S
        value = pod.metadata.annotations.get(labels.DO_NOT_DISRUPT)
        if value is None:
            continue
        try:
            yield epoch(pod.status.start_time) + go_seconds(value)
        except ValueError:
            continue  # it protects for ever, or nothing, now and later
    for event in snapshot.scheduling.view.events:
        said_at = event.last_timestamp or event.event_time or event.metadata.creation_timestamp
        if said_at:
            yield epoch(said_at) + snapshot.scheduling.settings.autoscaler_hold_s


def _starting_on(view: ClusterView) -> frozenset[str]:
    """Nodes with a pod that has not started."""
    return frozenset(pod.spec.node_name for pod in view.pods if pod.status.phase == "Pending")


def _timed(view: ClusterView) -> list[Pod]:
    """Pods that have started, and whose state may change with time: few do."""
    return [
        pod
        for pod in view.pods
        if pod.status.start_time and (pod.status.phase == "Pending" or pod.metadata.annotations)
    ]


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
