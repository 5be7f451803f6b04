"""The nodes that may be disrupted, with their price and the cost of disrupting their pods.

Consolidation leaves nodes alone because of their pool's policy, their own state, or pods that have just changed. Drift
and expiration do not check this: they do not depend on cost.

A command that has begun is checked again once its nodes are tainted: until then pods may still come, and people may
protect pods and nodes at any time. Draining cannot be undone, and a protected pod would hold a cordoned node for ever.

Pods are protected, and thereby their nodes, by the annotation do-not-disrupt and by PodDisruptionBudgets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from shiplap.disruption.commands import EVENTUAL, Reason
from shiplap.disruption.current_prices import PoolMarket
from shiplap.disruption.decision_clock import DecisionClock
from shiplap.disruption.disruption_snapshot import DisruptionSnapshot, NodeHistory
from shiplap.disruption.repair.reboots import in_words
from shiplap.kubernetes import labels
from shiplap.kubernetes.names import label_value_of
from shiplap.kubernetes.objects import TERMINAL_PHASES, Node, Pod
from shiplap.kubernetes.timestamps import epoch
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import LEAVING, ClaimState, NodeClaim
from shiplap.manifests.times import seconds_or_never
from shiplap.scheduling.model.planned_pods import do_not_disrupt, is_recreated, pair, why_it_stays
from shiplap.scheduling.model.protected_pods import PdbLimits, first_protection
from shiplap.scheduling.model.snapshot import ClusterView


class Candidate(msgspec.Struct, frozen=True, eq=False):
    """A node that may be disrupted.

    `pods` are those that have to be placed elsewhere, `price` USD per hour, `cost` what disrupting it costs (1 for the
    node itself plus what each pod's eviction does). `protected` says which pod forbids an eviction now, if any: only a
    reason that has a deadline may pass over it. Times are epoch seconds.
    """

    node: Node
    claim: NodeClaim
    pool: NodePool
    history: NodeHistory
    pods: tuple[Pod, ...]
    price: float
    cost: float
    protected: str = ""

    @property
    def name(self) -> str:
        """The Node's."""
        return self.node.metadata.name

    @property
    def empty(self) -> bool:
        """True if no pod has to move whose eviction costs anything."""
        return self.cost <= 1

    @property
    def savings_ratio(self) -> float:
        """Price per disruption cost: the higher, the more a disruption is worth, whatever the node's room is worth."""
        return self.price / self.cost

    @property
    def grace(self) -> str | None:
        """The claim's terminationGracePeriod: with one, protected pods have a deadline."""
        return self.claim.plan.grace(self.pool)

    @property
    def expire_after(self) -> str:
        """The age that the claim may reach: a duration, or Never."""
        return self.claim.plan.age_limit(self.pool)

    @property
    def born_at(self) -> float:
        """The time at which the claim was created, in epoch seconds."""
        return self.claim.created_at or epoch(self.node.metadata.creation_timestamp or "1970-01-01T00:00:00Z")


class CandidateNodes(msgspec.Struct, frozen=True, eq=False):
    """Candidates by name, and for every other node of the pools why it is none.

    `leaving` are the nodes that are being disrupted or deleted already, `ending` those whose instance is being
    terminated or that have no claim, as when the instance is gone and its Node still exists, `rebooting` those that
    will come back.
    """

    candidates: tuple[Candidate, ...]
    excluded: Mapping[str, str]
    leaving: frozenset[str] = frozenset()
    ending: frozenset[str] = frozenset()
    rebooting: frozenset[str] = frozenset()


def find_candidates(
    snapshot: DisruptionSnapshot, market: PoolMarket, pdb_limits: PdbLimits, nominated: frozenset[str]
) -> CandidateNodes:
    """Find the candidates among the cluster's nodes.

    Args:
        snapshot: of the decision.
        market: prices of its pools.
        pdb_limits: its PodDisruptionBudgets.
        nominated: names of nodes that pending pods are on their way to.
    """
    view = snapshot.scheduling.view
    paired, waiting = pair(view.nodes, snapshot.scheduling.claims)
    moving_from, costs = view.of_pods(reschedulable_pods), view.of_pods(_costs)
    unguarded = not pdb_limits.by_pod and not pdb_limits.kept
    pools = {label_value_of(pool.metadata.name): pool for pool in snapshot.scheduling.manifests.node_pools}
    histories = {history.node: history for history in snapshot.histories}
    now = snapshot.scheduling.now
    candidates = []
    excluded = {claim.name: "has no Node yet" for claim in waiting if claim.state is not ClaimState.PLANNED}
    for node in sorted(view.nodes, key=lambda item: item.metadata.name):
        name = node.metadata.name
        claim = paired.get(name)
        if claim is None and labels.NODE_POOL not in node.metadata.labels:
            continue  # not ours: no word about it either
        pool = pools.get(node.metadata.labels.get(labels.NODE_POOL, ""))
        reason = why_it_stays(node, claim, pool, busy=name in snapshot.busy, nominated=name in nominated)
        if reason or claim is None or pool is None:
            excluded[name] = in_words(claim) if claim is not None and claim.is_rebooting else reason
            continue
        pods = view.by_node.get(name, ())
        candidates.append(
            Candidate(
                node,
                claim,
                pool,
                histories.get(name, NodeHistory(name)),
                moving_from.get(name, ()),
                market.price_of(pool.metadata.name, node),
                costs.get(name, 1.0),
                first_protection(_annotated(pods) if unguarded else pods, pdb_limits, now),
            )
        )
    going = frozenset(
        node.metadata.name
        for node in view.nodes
        if node.metadata.deletion_timestamp
        or ((claim := paired.get(node.metadata.name)) is not None and claim.state in LEAVING)
    )
    ending = frozenset(
        node.metadata.name
        for node in view.nodes
        if (claim := paired.get(node.metadata.name)) is None or claim.state is ClaimState.TERMINATING
    )
    rebooting = frozenset(name for name, claim in paired.items() if claim.is_rebooting)
    return CandidateNodes(tuple(candidates), excluded, going, ending, rebooting)


def is_reschedulable(pod: Pod) -> bool:
    """True if a pod would need room elsewhere if its node went."""
    return pod.status.phase not in TERMINAL_PHASES and is_recreated(pod)


def reschedulable_pods(view: ClusterView) -> Mapping[str, tuple[Pod, ...]]:
    """The pods that would need room elsewhere, by the name of their node; each node's by namespace and name.

    For `ClusterView.of_pods`.
    """
    by_node = {}
    for node, on_node in view.by_node.items():
        if pods := [pod for pod in on_node if is_reschedulable(pod)]:
            by_node[node] = tuple(sorted(pods, key=_key))
    return by_node


def _costs(view: ClusterView) -> Mapping[str, float]:
    return {node: disruption_cost(pods) for node, pods in view.of_pods(reschedulable_pods).items()}


def _key(pod: Pod) -> str:
    return pod.key


def _annotated(pods: Iterable[Pod]) -> list[Pod]:
    """Pods that may have the annotation do-not-disrupt."""
    return [pod for pod in pods if pod.metadata.annotations]


def disruption_cost(moving: Iterable[Pod]) -> float:
    """The cost of disrupting a node with these pods: 1 for itself, plus the cost of each eviction."""
    return 1.0 + sum(max(0.0, eviction_cost(pod)) for pod in moving)


_INTEGER = re.compile(r"[-+]?[0-9]{1,10}", re.ASCII)


def eviction_cost(pod: Pod) -> float:
    """Karpenter's: 1, more for pods whose cost or priority is high, within [-10, 10].

    The cost is that of Karpenter's annotation; without it the deletion cost. One that is no int32 is none, and so is
    one that Shiplap wrote: it follows from decisions.
    """
    annotations = pod.metadata.annotations
    deletion_cost = annotations.get(labels.DELETION_COST, "0")
    if annotations.get(labels.WRITTEN_COST) == deletion_cost:
        deletion_cost = "0"
    written = annotations.get(labels.DISRUPTION_COST, deletion_cost)
    cost = int(written) if _INTEGER.fullmatch(written) else 0
    cost = cost if -(2**31) <= cost < 2**31 else 0
    return min(max(1.0 + cost / 2**27 + pod.spec.priority / 2**25, -10.0), 10.0)


UNSTARTED_S = 900.0
"""How long pods that have not started keep their node from being consolidated, in seconds since its pods changed."""


def unconsolidatable(item: Candidate, market: PoolMarket, clock: DecisionClock, settle_s: float) -> str:  # noqa: PLR0911 - a list of reasons
    """Return why a node cannot be removed for money, or ""."""
    disruption, marks, pool = item.pool.spec.disruption, item.node.metadata.labels, item.pool.metadata.name
    if item.pool.spec.replicas is not None:
        return f"NodePool {pool} is static"
    after_s = seconds_or_never(disruption.consolidate_after)
    if after_s is None:
        return f"NodePool {pool} has consolidation disabled"
    if item.history.said_to_stay:
        return "its NodeClaim says that it is not consolidatable"
    since = quiet_since(item.history)
    if not clock.has_reached(since + after_s):
        return f"its pods changed {clock.now - since:.0f} s ago, consolidateAfter is {disruption.consolidate_after}"
    if item.empty:
        return ""
    if disruption.consolidation_policy == "WhenEmpty":
        return f"NodePool {pool} has policy WhenEmpty but the node is not empty"
    for key in (labels.INSTANCE_TYPE, labels.CAPACITY_TYPE, labels.ZONE):
        if key not in marks:
            return f"the node lacks the label {key}"
    if market.type_of(pool, marks[labels.INSTANCE_TYPE]) is None:
        return f"instance type {marks[labels.INSTANCE_TYPE]} not found in the catalogue of NodePool {pool}"
    moved_at = item.history.moved_in_at
    if settle_s and not clock.has_reached(moved_at + settle_s):
        return f"its pods were moved here {clock.now - moved_at:.0f} s ago and stay for {settle_s:.0f} s"
    if starting := next((pod for pod in item.pods if _is_starting(pod, item.history, clock)), None):
        return f"pod {starting.key} has not started on it yet"
    return ""


def _is_starting(pod: Pod, history: NodeHistory, clock: DecisionClock) -> bool:
    """True if a pod has not run yet and still may. A pod that cannot start at all must not keep its node."""
    if pod.status.phase != "Pending":
        return False
    since = quiet_since(history) or (epoch(pod.status.start_time) if pod.status.start_time else 0.0)
    return not since or not clock.has_reached(since + UNSTARTED_S)


def quiet_since(history: NodeHistory) -> float:
    """Epoch seconds since when a node has been initialised and its pods have not changed; 0 where nothing is known."""
    return max(history.initialized_at, history.last_pod_event_at)


def objection(reason: Reason, node: Node, pods: Sequence[Pod], now: float, *, has_deadline: bool) -> str:
    """Return why a node of a command must not be removed, or "".

    PodDisruptionBudgets are no objection: they come and go with the pods they count, and evictions wait for them.

    Args:
        reason: the reason of the command.
        node: the node as it is now.
        pods: the pods on it now.
        now: epoch seconds.
        has_deadline: whether the node has a terminationGracePeriod, so that protected pods are waited for in vain.
    """
    name = node.metadata.name
    if reason is Reason.SCALED_DOWN:
        return ""
    if node.metadata.annotations.get(labels.DO_NOT_DISRUPT) == "true":
        return f"node {name} has the annotation {labels.DO_NOT_DISRUPT}=true"
    for pod in sorted(pods, key=lambda item: item.key):
        if pod.status.phase in TERMINAL_PHASES or pod.metadata.deletion_timestamp:
            continue
        if do_not_disrupt(pod, now) and not (has_deadline and reason in EVENTUAL):
            return f"pod {pod.key} on node {name} has the annotation {labels.DO_NOT_DISRUPT}"
        if reason is Reason.EMPTY and is_reschedulable(pod) and eviction_cost(pod) > 0:
            return f"pod {pod.key} has come to node {name}"
    return ""
