"""The state of a played Region as seen from outside, and the invariants that one such observation can check."""

from __future__ import annotations

from collections import Counter

import msgspec

from shiplap.instances.catalog.type_catalog import LearnedCapacity
from shiplap.kubernetes.objects import Event, Node, Pod
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.quantity import add_resources, parse_resources
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.ports import Instance

ENDED = ("shutting-down", "terminated")
"""States of instances that have ended, or can do nothing else any more."""


class ClusterObservation(msgspec.Struct, frozen=True):
    """One cluster and what was launched for it. `instances` holds the ended ones too."""

    name: str
    pods: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    events: tuple[Event, ...] = ()
    claims: tuple[NodeClaim, ...] = ()
    instances: tuple[Instance, ...] = ()

    @property
    def workload(self) -> tuple[Pod, ...]:
        """Pods that a scenario put there: all but those of DaemonSets."""
        return tuple(
            pod for pod in self.pods if not any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references)
        )

    @property
    def launched(self) -> tuple[NodeClaim, ...]:
        """Claims for which EC2 gave an instance."""
        return tuple(claim for claim in self.claims if claim.instance_id)

    def pods_on(self, node: str) -> tuple[Pod, ...]:
        """Workload pods bound to a node."""
        return tuple(pod for pod in self.workload if pod.spec.node_name == node)


class RegionObservation(msgspec.Struct, frozen=True):
    """All clusters, the account's learned capacity, and messages that ended in dead-letter queues."""

    clusters: tuple[ClusterObservation, ...] = ()
    learned: tuple[LearnedCapacity, ...] = ()
    dead_letters: int = 0

    def cluster(self, name: str) -> ClusterObservation:
        """The cluster of this name; an empty one if it was not observed yet."""
        return next((cluster for cluster in self.clusters if cluster.name == name), ClusterObservation(name))


def check_invariants(world: RegionObservation, *, may_wait: frozenset[str]) -> dict[str, bool]:
    """Whether each invariant holds, by name. `may_wait`: pods (`cluster/namespace/name`) that may stay pending."""
    clusters = world.clusters
    return {
        "no pod is stranded": all(_nobody_stranded(cluster, may_wait) for cluster in clusters),
        "a nodeclaim never misses twice": _no_second_miss(world),
        "no instance leaks, none is launched twice": all(_accounted_for(cluster) for cluster in clusters),
        "a claim is written before its instance exists": all(
            claim.created_at <= instance.launched_at
            for cluster in clusters
            for instance in cluster.instances
            for claim in cluster.claims
            if claim.instance_id == instance.id and instance.launched_at
        ),
        "no node holds more than it has": all(_fits(cluster) for cluster in clusters),
        "no message was given up": world.dead_letters == 0,
    }


def _nobody_stranded(cluster: ClusterObservation, may_wait: frozenset[str]) -> bool:
    return all(pod.spec.node_name or f"{cluster.name}/{pod.key}" in may_wait for pod in cluster.workload)


def _no_second_miss(world: RegionObservation) -> bool:
    """At most one miss per (AMI, instance type, kubelet settings), and at most one per pod."""
    missed = [claim for cluster in world.clusters for claim in cluster.claims if claim.missed]
    keys = Counter(
        (claim.known_instance.ami, claim.known_instance.type, claim.known_instance.kubelet_hash) for claim in missed
    )
    pods = Counter((claim.cluster, pod) for claim in missed for pod in claim.plan.pods)
    return max([*keys.values(), *pods.values()], default=0) <= 1


def _accounted_for(cluster: ClusterObservation) -> bool:
    """Each living instance belongs to exactly one claim that knows it, and no claim ever got two."""
    claims = {claim.instance_id: claim for claim in cluster.launched}
    per_claim = Counter(instance.claim for instance in cluster.instances if instance.claim)
    known = all(
        instance.id in claims and claims[instance.id].state not in (ClaimState.GONE, ClaimState.FAILED)
        for instance in cluster.instances
        if instance.state not in ENDED
    )
    return known and max(per_claim.values(), default=0) <= 1


def _fits(cluster: ClusterObservation) -> bool:
    """The requests of the pods bound to a node are within what its kubelet reported."""
    for node in cluster.nodes:
        allocatable = parse_resources(node.status.allocatable)
        bound = [pod_requests(pod) for pod in cluster.pods if pod.spec.node_name == node.metadata.name]
        if any(amount > allocatable.get(resource, 0) for resource, amount in add_resources(*bound).items()):
            return False
    return True
