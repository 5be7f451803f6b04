"""The state of a played Region as seen from outside."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from shiplap.disruption.progress import DisruptionCommand
from shiplap.instances.catalog.type_catalog import LearnedCapacity
from shiplap.kubernetes.objects import Event, Node, Pod
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.ports import Instance

ENDED = ("shutting-down", "terminated")
"""States of instances that have ended, or can do nothing else any more."""


class PodDeletion(msgspec.Struct, frozen=True):
    """A pod that a function deleted, as it was before; `forced`: without regard to its PodDisruptionBudgets."""

    pod: Pod
    forced: bool


class ClusterObservation(msgspec.Struct, frozen=True):
    """One cluster and what was launched for it. `instances` holds the ended ones, `deletions` all there have been.

    Instances are read first, then claims and commands, then the cluster: an instance whose claim was not read was
    launched without one, and a pod that is still on a node was there when the node's instance ended.
    """

    name: str
    pods: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    events: tuple[Event, ...] = ()
    claims: tuple[NodeClaim, ...] = ()
    instances: tuple[Instance, ...] = ()
    commands: tuple[DisruptionCommand, ...] = ()
    deletions: tuple[PodDeletion, ...] = ()

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
