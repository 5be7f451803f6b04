"""The promises of the design, as far as one look at a played world can tell whether they are kept."""

from __future__ import annotations

from collections import Counter

from shiplap.api.nodeclaim import ClaimState
from shiplap.kubernetes.quantity import add_resources, parse_resources
from shiplap.kubernetes.requests import pod_requests
from shiplap.local.observation import ENDED, ClusterObservation, Observation


def judge(world: Observation, *, may_wait: frozenset[str]) -> dict[str, bool]:
    """Each promise by name, and whether it holds. `may_wait` holds `cluster/namespace/pod` allowed to stay pending."""
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


def _no_second_miss(world: Observation) -> bool:
    """At most one miss per (AMI, instance type, kubelet settings), and at most one per pod."""
    missed = [claim for cluster in world.clusters for claim in cluster.claims if claim.missed]
    keys = Counter((claim.ami, claim.instance_type, claim.kubelet_hash) for claim in missed)
    pods = Counter((claim.cluster, pod) for claim in missed for pod in claim.pods)
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
