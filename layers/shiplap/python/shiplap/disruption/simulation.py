"""What would become of the pods if nodes went: the scheduler's own answer on a world without them.

Pods that wait for room of their own accord are settled first, by the plan that will be made for them anyway, so that a
disruption is judged by the pods it moves and nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec
from msgspec.structs import replace

from shiplap.api.nodeclaim import IN_FLIGHT, PodReference
from shiplap.disruption.candidates import moves
from shiplap.kubernetes.objects import Node, Pod
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.scheduling.plan import PlannedClaim
from shiplap.scheduling.planner import plan
from shiplap.scheduling.snapshot import Snapshot


class Relocation(msgspec.Struct, frozen=True, eq=False):
    """Where the pods of removed nodes would go.

    `claims` would be launched for them; `serves` names, for each, the removed nodes its pods come from. `housed` maps a
    removed node to what nodes that stay take of it: node name to pods. `stuck` maps a removed node to why one of its
    pods has no place.
    """

    claims: tuple[PlannedClaim, ...]
    serves: tuple[frozenset[str], ...]
    housed: dict[str, dict[str, list[PodReference]]]
    stuck: dict[str, str]


class Simulator:
    """Answers for one snapshot. `nominated` are the nodes that pods which wait now will use."""

    def __init__(self, snapshot: Snapshot, protected: Collection[str]) -> None:
        """`protected` names nodes that must not take moved pods.

        Raises InvalidInput as `planner.plan`.
        """
        first = plan(snapshot)
        homes = {(pod.namespace, pod.name): place.name for place in first.existing_nodes for pod in place.pods}
        names = {node.metadata.name for node in snapshot.view.nodes}
        self.nominated = frozenset(place.name for place in first.existing_nodes if place.name in names) | frozenset(
            pod.status.nominated_node_name for pod in snapshot.view.pods if not pod.spec.node_name
        )
        # Without their node the room that CapacityBuffers keep would only be launched anew.
        self.nominated |= names.intersection(name for buffer in first.buffers for name in buffer.nodes)
        self._settled = replace(
            snapshot,
            view=replace(
                snapshot.view,
                pods=tuple(_settled(snapshot.view.pods, homes, names)),
                nodes=tuple(_shut(node) if node.metadata.name in protected else node for node in snapshot.view.nodes),
            ),
            claims=tuple(claim for claim in snapshot.claims if claim.node_name or claim.state not in IN_FLIGHT),
            manifests=replace(
                # What static pools and buffers lack is launched whether or not a node is removed.
                snapshot.manifests,
                node_pools=tuple(pool for pool in snapshot.manifests.node_pools if pool.spec.replicas is None),
                capacity_buffers=(),
            ),
            # A replacement need not wait for a reservation that another one takes.
            settings=replace(snapshot.settings, reserved_policy="Fallback"),
        )
        self._gone_at = rfc3339(snapshot.now)

    def without(self, removed: Collection[str]) -> Relocation:
        """Plan for the pods of these nodes as if the nodes were being deleted."""
        view = self._settled.view
        nodes = tuple(self._deleted(node) if node.metadata.name in removed else node for node in view.nodes)
        decided = plan(replace(self._settled, view=replace(view, nodes=nodes)))
        came_from = {
            (pod.metadata.namespace or "default", pod.metadata.name): pod.spec.node_name
            for pod in view.pods
            if pod.spec.node_name in removed and moves(pod)
        }
        stuck: dict[str, str] = {}
        for entry in (*decided.unschedulable, *decided.ignored):
            node = came_from.get((entry.pod.namespace or "default", entry.pod.name))
            if node is not None:
                stuck.setdefault(node, f"pod {entry.pod.namespace}/{entry.pod.name}: {entry.message}")
        serves = tuple(
            frozenset(
                came_from[key] for pod in claim.pods if (key := (pod.namespace or "default", pod.name)) in came_from
            )
            for claim in decided.node_claims
        )
        housed: dict[str, dict[str, list[PodReference]]] = {}
        for place in decided.existing_nodes:
            for pod in place.pods:
                left = came_from[pod.namespace or "default", pod.name]
                housed.setdefault(left, {}).setdefault(place.name, []).append(pod)
        return Relocation(decided.node_claims, serves, housed, stuck)

    def _deleted(self, node: Node) -> Node:
        return replace(node, metadata=replace(node.metadata, deletion_timestamp=self._gone_at))


def _settled(pods: Iterable[Pod], homes: dict[tuple[str, str], str], names: Collection[str]) -> Iterable[Pod]:
    """Pods with the plan for those that wait carried out; those it finds no existing node for are left out."""
    for pod in pods:
        if pod.spec.node_name:
            yield pod
            continue
        home = homes.get((pod.metadata.namespace or "default", pod.metadata.name), "")
        home = home or pod.status.nominated_node_name
        if home in names:
            yield replace(pod, spec=replace(pod.spec, node_name=home))


def _shut(node: Node) -> Node:
    return replace(node, spec=replace(node.spec, unschedulable=True))
