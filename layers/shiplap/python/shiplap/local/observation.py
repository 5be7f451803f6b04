"""What can be seen of a played world from outside, gathered once and judged by pure functions."""

from __future__ import annotations

import msgspec

from shiplap.api.nodeclaim import NodeClaim
from shiplap.instances.types import LearnedCapacity
from shiplap.kubernetes.objects import Event, Node, Pod
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


class Observation(msgspec.Struct, frozen=True):
    """All clusters, the account's learned capacity, and messages that ended in dead-letter queues."""

    clusters: tuple[ClusterObservation, ...] = ()
    learned: tuple[LearnedCapacity, ...] = ()
    dead_letters: int = 0

    def cluster(self, name: str) -> ClusterObservation:
        """The cluster of this name; an empty one when nothing was seen of it yet."""
        return next((cluster for cluster in self.clusters if cluster.name == name), ClusterObservation(name))
