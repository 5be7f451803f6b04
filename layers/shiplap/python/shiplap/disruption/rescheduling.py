"""Simulates where pods would go if nodes were removed: the planner's answer on a snapshot without these nodes.

Pending pods are placed first, by the plan that will be made for them anyway, so that a disruption is judged only by the
pods that it moves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property

import msgspec
from msgspec.structs import replace

from shiplap.disruption.candidates import is_reschedulable, quiet_since, reschedulable_pods
from shiplap.disruption.decision_clock import DecisionClock
from shiplap.disruption.disruption_snapshot import DisruptionSnapshot
from shiplap.errors import InvalidInput
from shiplap.kubernetes import labels
from shiplap.kubernetes.names import label_value_of
from shiplap.kubernetes.objects import Node, Pod
from shiplap.kubernetes.taints import is_disrupted
from shiplap.manifests.nodeclaim import IN_FLIGHT, PodReference
from shiplap.manifests.times import seconds_or_never
from shiplap.scheduling.model.planned_pods import is_initialized, leaving, pair
from shiplap.scheduling.model.scheduling_plan import Plan, PlannedClaim
from shiplap.scheduling.model.snapshot import PlanStage, Snapshot
from shiplap.scheduling.packing.pack import Packing
from shiplap.scheduling.planner import plan
from shiplap.scheduling.removal import NodeToWeigh, RemovalPart, Removals


class Relocation(msgspec.Struct, frozen=True, eq=False):
    """The places where the pods of removed nodes would go.

    `claims` would be launched for them; `serves` names, for each claim, the removed nodes its pods come from.
    `received` maps a removed node to the pods that nodes which stay take from it: node name to pods. `stuck` maps a
    removed node to why one of its pods has no place. A simulation that follows this one starts from `packing`.
    `pools_that_join` names the NodePools of which parts of it must come true together, for their limits.
    """

    claims: tuple[PlannedClaim, ...]
    serves: tuple[frozenset[str], ...]
    received: dict[str, dict[str, list[PodReference]]]
    stuck: dict[str, str]
    packing: Packing
    pools_that_join: Callable[[Sequence[RemovalPart]], frozenset[str]]


class Simulator:
    """Answers for one snapshot.

    `nominated` are the nodes that pods which wait now will use. `buffered` are those with room that CapacityBuffers
    keep: it would be launched again. `homeless` are waiting pods that the plan has no place for. `lacking` are static
    NodePools with fewer nodes than replicas. `receiving` are nodes that take pods by relocations that were followed.
    `follows` is false once a relocation could not be followed: later answers would not know of it.
    """

    def __init__(self, snapshot: Snapshot, protected: Collection[str]) -> None:
        """`protected` names nodes that must not take moved pods.

        Raises InvalidInput as `planner.plan`.
        """
        view = snapshot.view
        paired, _ = pair(view.nodes, snapshot.claims)
        gone = leaving(view.nodes, paired)
        first = Plan() if _nothing_to_plan(snapshot, gone) else plan(snapshot)
        homes = {(pod.namespace, pod.name): place.name for place in first.existing_nodes for pod in place.pods}
        names = {node.metadata.name for node in view.nodes}
        self.nominated = frozenset(place.name for place in first.existing_nodes if place.name in names) | frozenset(
            pod.status.nominated_node_name for pod in view.unbound
        )
        self.buffered = names.intersection(name for buffer in first.buffers for name in buffer.nodes)
        self.homeless = tuple(entry.pod for entry in first.unschedulable)
        self.lacking = frozenset(pool.node_pool for pool in first.static_pools if pool.present < pool.replicas)
        self._snapshot = snapshot
        kept = kept_by_buffers(snapshot, first, names)
        if gone or view.unbound or kept:
            view = replace(view, pods=(*with_plan_applied(view.pods, homes, names, gone), *kept))
        self._moving = view.of_pods(reschedulable_pods)
        self._view, self._protected, self._staying = view, frozenset(protected), names - gone
        self._joined = {claim.name for claim in paired.values()}
        self._cordoned: frozenset[str] = frozenset()
        self._static_claims: defaultdict[str, set[str]] = defaultdict(set)
        self.receiving: set[str] = set()
        self.follows = True

    @cached_property
    def _removals(self) -> Removals:
        """Compiled for the first question: where budgets let nothing go, none is asked. Raises InvalidInput."""
        view, snapshot = self._view, self._snapshot
        coming = [claim for claim in snapshot.claims if claim.state in IN_FLIGHT and not claim.node_name]
        settled = replace(
            snapshot,
            view=view.beside(
                nodes=tuple(_cordoned(node) if node.metadata.name in self._protected else node for node in view.nodes)
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
        try:
            removals = Removals(settled, self._staying, [claim for claim in coming if claim.name not in self._joined])
        except ValueError as error:
            raise InvalidInput("snapshot", str(error)) from error
        removals.cordon(self._cordoned)
        return removals

    def without(
        self, removed: Collection[str], moving: Collection[str] | None = None, *, improve_s: float = 0.0
    ) -> Relocation:
        """Plan for the pods of these nodes as if the nodes were being deleted.

        Args:
            removed: names of the nodes that take no pods.
            moving: those among them whose pods are planned for; all if not given.
            improve_s: the effort of the cost search, in seconds.
        """
        moving = removed if moving is None else moving
        decided, packing = self._removals.plan_without(removed, moving, improve_s=improve_s)
        came_from = {
            (pod.metadata.namespace or "default", pod.metadata.name): name
            for name in moving
            for pod in self._moving.get(name, ())
        }
        stuck: dict[str, str] = {}
        for entry in (*decided.unschedulable, *decided.ignored):
            node = came_from.get((entry.pod.namespace or "default", entry.pod.name))
            if node is not None:
                stuck.setdefault(node, f"pod {entry.pod.key}: {entry.message}")
        serves = tuple(
            frozenset(came_from[pod.namespace or "default", pod.name] for pod in claim.pods)
            for claim in decided.node_claims
        )
        housed: dict[str, dict[str, list[PodReference]]] = {}
        for place in decided.existing_nodes:
            for pod in place.pods:
                left = came_from[pod.namespace or "default", pod.name]
                housed.setdefault(left, {}).setdefault(place.name, []).append(pod)
        return Relocation(decided.node_claims, serves, housed, stuck, packing, self._removals.pools_that_join)

    def false_start(self, moving: Sequence[Pod], relocation: Relocation) -> str:
        """Return why kube-scheduler may bind the pods of removed nodes so that some pods have no place, or ""."""
        if not any(pod.spec.affinity is not None and pod.spec.affinity.pod_affinity is not None for pod in moving):
            return ""
        from shiplap.scheduling.topology.moving_series import false_start  # noqa: PLC0415 - few pods require each other

        stay = {existing.name for existing in relocation.packing.nodes.all}
        staying = (pod for pod in self._view.pods if pod.spec.node_name in stay)
        return false_start(moving, staying, relocation.packing.nodes)

    def least_hourly(self, removed: Collection[str]) -> float:
        """USD per hour that replacements cost at least if just these nodes were removed."""
        return self._removals.least_hourly(removed)

    def static_claims(self, pool: str, number: int) -> tuple[PlannedClaim, ...]:
        """At most so many further claims of a static pool, to take the place of its nodes; none while it lacks nodes.

        Claims taken before count with them: limits hold for all. Raises InvalidInput as `planner.plan`.
        """
        if pool in self.lacking:
            return ()
        snapshot, taken = self._snapshot, self._static_claims[pool]
        pools = tuple(
            replace(item, spec=replace(item.spec, replicas=(item.spec.replicas or 0) + len(taken) + number))
            for item in snapshot.manifests.node_pools
            if item.metadata.name == pool
        )
        bound = tuple(pod for pod in snapshot.view.pods if pod.spec.node_name)
        more = plan(
            replace(
                snapshot.without_stage(
                    PlanStage.ADMISSION
                ),  # what replaces a node is admitted once the command is known
                view=replace(snapshot.view, pods=bound),
                manifests=replace(snapshot.manifests, node_pools=pools, capacity_buffers=()),
            )
        )
        return tuple(claim for claim in more.node_claims if not claim.pods and claim.name not in taken)

    def take_static_claim(self, claim: PlannedClaim) -> None:
        """Let a claim of `static_claims` be launched by a command."""
        self._static_claims[claim.node_pool].add(claim.name)

    def room_values(self, nodes: Sequence[NodeToWeigh]) -> dict[str, float]:
        """USD per hour, by name, that the room of nodes which may go is worth to the pods of the others."""
        return self._removals.room_values(nodes)

    def cordon(self, nodes: Collection[str]) -> None:
        """Let nodes of a command take no pods of later commands."""
        self._cordoned |= frozenset(nodes)
        if "_removals" in self.__dict__:
            self._removals.cordon(nodes)

    def follow(self, relocation: Relocation) -> bool:
        """Let later simulations follow this relocation; returns false where that cannot be computed."""
        self.receiving.update(name for places in relocation.received.values() for name in places)
        # Only one claim may rely on an unverified estimate.
        explores = any(claim.relies_on_estimate for claim in relocation.claims)
        self.follows = not explores and self._removals.can_follow(relocation.packing)
        if self.follows:
            self._removals.follow(relocation.packing)
        return self.follows


def unsettled_nodes(snapshot: DisruptionSnapshot, clock: DecisionClock) -> frozenset[str]:
    """Nodes that must not take moved pods: cordoned, not initialised, or with pods that have just changed.

    Hardly a pod tolerates the taint of a cordoned node, and one that does would have to move again. So room there is no
    room: counted, it would let replacements seem cheaper than they can be.
    """
    pools = {label_value_of(pool.metadata.name): pool for pool in snapshot.scheduling.manifests.node_pools}
    histories = {history.node: history for history in snapshot.histories}
    fresh = set()
    for node in snapshot.scheduling.view.nodes:
        pool = pools.get(node.metadata.labels.get(labels.NODE_POOL, ""))
        history = histories.get(node.metadata.name)
        after_s = seconds_or_never(pool.spec.disruption.consolidate_after) if pool is not None else None
        just_changed = after_s and history is not None and not clock.has_reached(quiet_since(history) + after_s)
        if just_changed or is_disrupted(node.spec.taints) or (pool is not None and not is_initialized(node)):
            fresh.add(node.metadata.name)
    return frozenset(fresh)


def _nothing_to_plan(snapshot: Snapshot, gone: Collection[str]) -> bool:
    """True if a plan would do nothing: no pod waits, no node leaves, and no pool or buffer wants anything by itself."""
    manifests = snapshot.manifests
    if gone or manifests.capacity_buffers or any(pool.spec.replicas is not None for pool in manifests.node_pools):
        return False
    return not snapshot.view.unbound


def kept_by_buffers(snapshot: Snapshot, plan: Plan, names: Collection[str]) -> tuple[Pod, ...]:
    """The virtual pods on Nodes: a pod that was moved into their room would have a node launched for them."""
    if not plan.buffers:
        return ()
    from shiplap.scheduling.packing.buffers import pods_in_place  # noqa: PLC0415 - few installs have buffers

    return tuple(pod for pod in pods_in_place(snapshot, plan.buffers) if pod.spec.node_name in names)


def with_plan_applied(
    pods: Iterable[Pod], homes: dict[tuple[str, str], str], names: Collection[str], gone: Collection[str]
) -> Iterable[Pod]:
    """Pods with the plan for those that wait, or whose node is leaving, carried out.

    Those it finds no existing node for are left out: they get a new one whatever is decided here.
    """
    for pod in pods:
        node = pod.spec.node_name
        if node and not (node in gone and is_reschedulable(pod)):
            yield pod
            continue
        home = homes.get((pod.metadata.namespace or "default", pod.metadata.name), "")
        home = home or (pod.status.nominated_node_name if not node else "")
        if home in names:
            yield replace(pod, spec=replace(pod.spec, node_name=home))


def _cordoned(node: Node) -> Node:
    return replace(node, spec=replace(node.spec, unschedulable=True))
