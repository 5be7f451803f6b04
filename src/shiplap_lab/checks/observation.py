"""The state of a played Region as seen from outside."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

import msgspec

from shiplap.disruption.progress import DisruptionCommand
from shiplap.instances.catalog.type_catalog import LearnedCapacity
from shiplap.kubernetes.objects import Event, Node, Pod
from shiplap.manifests.custom_resources import Manifests
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.ports import Instance
from shiplap_lab.judge.raw_json import Json

ENDED = ("shutting-down", "terminated")
"""States of instances that have ended, or can do nothing else any more."""


class PodDeletion(msgspec.Struct, frozen=True):
    """A pod that a function deleted, as it was before; `forced`: without regard to its PodDisruptionBudgets."""

    pod: Pod
    forced: bool


class ClusterObservation(msgspec.Struct, frozen=True):
    """One cluster and what was launched for it. `instances` holds the ended ones, `deletions` all there have been.

    Instances are read first, then claims and commands, then the cluster: an instance whose claim was not read was
    launched without one, and a pod that is still on a node was there when the node's instance ended. `stored` are pods
    and nodes as the API server has them, by plural, for the judge.
    """

    name: str
    pods: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    events: tuple[Event, ...] = ()
    claims: tuple[NodeClaim, ...] = ()
    instances: tuple[Instance, ...] = ()
    commands: tuple[DisruptionCommand, ...] = ()
    deletions: tuple[PodDeletion, ...] = ()
    stored: Mapping[str, Sequence[Json]] = MappingProxyType({})

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


class ListedState(Protocol):
    """The part of table `state` that an observation reads."""

    def claims(self, cluster: str) -> Iterable[NodeClaim]: ...

    def claim(self, cluster: str, name: str) -> NodeClaim | None: ...


class SeenClaims:
    """All claims of a cluster that were ever seen: the table's list leaves out those that are Gone."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._known: dict[str, NodeClaim] = {}

    def look(self, state: ListedState) -> tuple[NodeClaim, ...]:
        """As they are now, by name."""
        known = self._known
        listed = {claim.name: claim for claim in state.claims(self._cluster)}
        for name in known.keys() - listed.keys():
            if known[name].state is not ClaimState.GONE and (claim := state.claim(self._cluster, name)) is not None:
                known[name] = claim
        known.update(listed)
        return tuple(known[name] for name in sorted(known))


def pool_specs(manifests: Mapping[str, Manifests]) -> dict[tuple[str, str], Json]:
    """The spec of each NodePool as it is written, by cluster and name."""
    pools = ((cluster, pool) for cluster, each in manifests.items() for pool in each.node_pools)
    return {(cluster, pool.metadata.name): msgspec.to_builtins(pool.spec) for cluster, pool in pools}


class RegionObservation(msgspec.Struct, frozen=True):
    """All clusters, the account's learned capacity, and messages that ended in dead-letter queues."""

    clusters: tuple[ClusterObservation, ...] = ()
    learned: tuple[LearnedCapacity, ...] = ()
    dead_letters: int = 0

    def pending(self, may_wait: Collection[str]) -> list[Pod]:
        """Pods without a node, except those that may wait (`cluster/namespace/name`)."""
        return [
            pod
            for cluster in self.clusters
            for pod in cluster.workload
            if not pod.spec.node_name and f"{cluster.name}/{pod.key}" not in may_wait
        ]

    def cluster(self, name: str) -> ClusterObservation:
        """The cluster of this name; an empty one if it was not observed yet."""
        return next((cluster for cluster in self.clusters if cluster.name == name), ClusterObservation(name))
