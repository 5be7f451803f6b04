"""Empties the node of a Draining claim, one round at a time: cordon, evict, and end the instance once nothing is left.

Its replacement comes first. Planning treats the pods of such a node as pending, so a node for them is on its way; each
pod stays where it is until that node is ready, or until it can stay no longer and still end in order. No round waits
for anything: the next one is a timer's or the sweep's.

Which pods of a node that is being emptied leave now: order, protection and the clock, as pure functions.

The order is upstream's: ordinary pods before those of DaemonSets, both before critical ones, and critical ones of
DaemonSets last; each group waits until the one before it is gone. What protects a pod, and what it waits for, ends at
the last moment from which its grace period still fits before the node's deadline.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from math import ceil, inf

from shiplap.disruption.commands import OF_POLICIES, VOLUNTARY, Reason
from shiplap.errors import ClusterError, TooManyRequests
from shiplap.flows.claim_updates import DRAIN, facts
from shiplap.flows.context import FlowContext
from shiplap.flows.lifecycle.endings import give_up, has_vanished
from shiplap.flows.lifecycle.registration import update_node
from shiplap.flows.policies.active import ActivePolicies
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, Pod, Taint, is_ready
from shiplap.kubernetes.pod_disruption_budgets import is_unhealthy
from shiplap.kubernetes.related_objects import PersistentVolumeClaim, VolumeAttachment, attached_volumes, has_claims
from shiplap.kubernetes.taints import DISRUPTED, is_disrupted
from shiplap.kubernetes.timestamps import epoch
from shiplap.manifests.nodeclaim import IN_FLIGHT, ClaimState, NodeClaim
from shiplap.scheduling.model.planned_pods import (
    do_not_disrupt,
    ends_with_its_node,
    owner_kind,
    protected_until,
)
from shiplap.settings import ClusterSettings

HEAD_START_S = 10.0
"""How long pods of a leaving node are left alone at first, so that a decision about them is made, in seconds."""

MARGIN_S = 10.0
"""How long before the deadline the last pod should have ended, in seconds: rounds and evictions take time."""

_STUCK_S = 60.0
"""A pod that outlives its deletion by this many seconds is not going to end; upstream does not wait for it either."""

_CRITICAL = ("system-cluster-critical", "system-node-critical")
_GRACE_S = 30


def must_leave(pod: Pod, now: float) -> bool:
    """True if a node is not empty while it holds this pod: it can be evicted, would be missed, and will end."""
    if ends_with_its_node(pod):
        return False
    deleted = pod.metadata.deletion_timestamp
    return not deleted or now < epoch(deleted) + _STUCK_S


def group(pod: Pod) -> int:
    """The place of a pod in the order: 0 ordinary, 1 of a DaemonSet, 2 critical, 3 both."""
    return 2 * (pod.spec.priority_class_name in _CRITICAL) + (owner_kind(pod) == "DaemonSet")


def grace_s(pod: Pod) -> int:
    """The seconds a pod is given to end."""
    given = pod.spec.termination_grace_period_seconds
    return _GRACE_S if given is None else given


def last_moment(pod: Pod, deadline_at: float) -> float:
    """The epoch second at which a pod has to leave, whatever stands against it; never without a deadline (0)."""
    return (deadline_at or inf) - grace_s(pod) - MARGIN_S


def may_leave(
    pods: Sequence[Pod], promised: Collection[str], now: float, *, started_at: float, deadline_at: float
) -> list[Pod]:
    """The pods to evict in this round, in order.

    Args:
        pods: those that must leave.
        promised: uids of pods for which a node is on its way; they stay until it is ready.
        now: epoch seconds, as are `started_at` and `deadline_at`, which is 0 when nothing presses.
    """
    turn = min((group(pod) for pod in pods), default=0)

    def leaves(pod: Pod) -> bool:
        if pod.metadata.deletion_timestamp:
            return False
        if now >= last_moment(pod, deadline_at):
            return True
        if group(pod) != turn or do_not_disrupt(pod, now):
            return False
        return now >= started_at + HEAD_START_S and pod.metadata.uid not in promised

    return sorted((pod for pod in pods if leaves(pod)), key=lambda pod: (group(pod), pod.key))


def overstays(pod: Pod, deadline_at: float) -> bool:
    """True if a pod that is ending has more time than its node has."""
    deleted = pod.metadata.deletion_timestamp
    return bool(deadline_at and deleted and epoch(deleted) > deadline_at)


_LOG = logging.getLogger(__name__)

ROUND_S = 5.0
"""Time between two rounds while the clock runs, in seconds, and in the first minutes of a node that leaves for sleep;
otherwise the sweep's minute does."""

NODES_PER_ROUND = 50
"""Nodes emptied at once in rounds of that length; with more of them each has its rounds less often, so that the API
server sees no more requests for 500 nodes than for 50."""

MOST_EVICTIONS = 100
"""Evictions of one invocation for nodes that nothing presses; the rest have their turn in the next rounds."""

_SHORT_S = 180.0
_MINUTE_S = 60.0
_BY_SHIPLAP = "shiplap"
_SEVERAL_BUDGETS = 500
"""The status with which the eviction API refuses a pod that several PodDisruptionBudgets cover."""
_MOVED_ON = (404, 409)


class Drains:
    """The data that the rounds of one invocation share: all known claims, and how much may still be evicted."""

    def __init__(self, settings: ClusterSettings, context: FlowContext) -> None:
        self._settings, self._context = settings, context
        self._evictions_left = MOST_EVICTIONS
        self._refused: set[tuple[str, str, bool]] = set()

    @cached_property
    def _claims(self) -> tuple[NodeClaim, ...]:
        return self._context.state.read(self._settings.name, self._context.clock.now()).claims

    @cached_property
    def promised(self) -> frozenset[str]:
        """Uids of all pods for which some node is on its way. Raises StoreError."""
        return frozenset(pod.uid for claim in self._claims if claim.state in IN_FLIGHT for pod in claim.plan.pods)

    def attached_to(self, node: Node, staying: Sequence[Pod]) -> tuple[str, ...]:
        """Names of volumes attached to a node, sorted, without those that pods of `staying` use.

        What is attached is listed once for all nodes: a volume that is detached meanwhile costs its node a round.

        Raises:
            ClusterError: they cannot be listed.
        """
        claims = self._volume_claims if any(map(has_claims, staying)) else ()
        return attached_volumes(self._attachments, node.metadata.name, staying, claims)

    @cached_property
    def _attachments(self) -> tuple[VolumeAttachment, ...]:
        return self._context.cluster.volume_attachments()

    @cached_property
    def _volume_claims(self) -> tuple[PersistentVolumeClaim, ...]:
        return self._context.cluster.volume_claims()

    @property
    def round_s(self) -> float:
        """Seconds between two rounds of a node. Raises StoreError."""
        under_way = sum(claim.state is ClaimState.DRAINING for claim in self._claims)
        return ROUND_S * max(1, -(-under_way // NODES_PER_ROUND))

    def stays_after_all(self, claim: NodeClaim, node: Node) -> str:
        """Return why a node that leaves for a policy's reason stays after all, or nothing.

        Input that cannot be read keeps the node.
        """
        if claim.failure not in OF_POLICIES:
            return ""
        pods = self._context.cluster.pods_on(node.metadata.name)
        return self._policies.objection(Reason(claim.failure), claim, pods, has_begun=True)

    def moved_otherwise(
        self, claim: NodeClaim, node: Node, leaving: Sequence[Pod], pods: Sequence[Pod]
    ) -> frozenset[str]:
        """Uids of pods that are not evicted now because a policy moves them. Nothing waits for that under pressure."""
        now = self._context.clock.now()
        free = [pod for pod in leaving if now < last_moment(pod, claim.deadline_at)]
        if not free or claim.failure not in VOLUNTARY or not self._context.policies:
            return frozenset()
        return self._policies.moved_otherwise(claim, node, free, pods)

    @cached_property
    def _policies(self) -> ActivePolicies:
        return ActivePolicies.of(self._settings, self._context)

    def may_evict(self, claim: NodeClaim, pod: Pod) -> bool:
        """True if this invocation may ask for a pod's eviction: always under a deadline.

        Where a budget has refused a pod, it refuses those like it: asked for again and again, they would leave no
        eviction for the pods of other workloads.
        """
        if claim.deadline_at:
            return True
        if not self._evictions_left or _like(pod) in self._refused:
            return False
        self._evictions_left -= 1
        return True

    def refused(self, pod: Pod) -> None:
        """A PodDisruptionBudget has refused to let a pod go."""
        self._refused.add(_like(pod))


def _like(pod: Pod) -> tuple[str, str, bool]:
    """Equal for pods of one owner that are equally ready: the same budget covers them, as it goes by labels."""
    owner = next((owner.uid for owner in pod.metadata.owner_references if owner.controller), "")
    return pod.metadata.namespace, owner or pod.metadata.uid, is_unhealthy(pod)


def drain(
    claim: NodeClaim, node: Node | None, drains: Drains, context: FlowContext, *, again: bool
) -> NodeClaim | None:
    """One round for a Draining claim.

    Args:
        claim: Draining; since `changed_at`, until `deadline_at`, which is 0 when nothing presses.
        node: the claim's Node, freshly read, if there is one.
        drains: what the rounds of this invocation share.
        context: the ports.
        again: whether to set the timer of the next round.

    Returns:
        The claim as Terminating once its instance is to be ended, or None while pods are left, and for a node that
        stays because what slept is awake.

    Raises:
        ConditionFailed: somebody else advanced the claim.
        ClusterError, StoreError, AwsError: every step may be repeated.
    """
    now = context.clock.now()
    if node is None or (not is_ready(node.status) and has_vanished(claim, context)):
        return give_up(claim, claim.failure, context)
    if why := drains.stays_after_all(claim, node):
        _return_to_service(claim, node, why, context)
        return None
    was_cordoned = is_cordoned(node)
    release_from_balancers(node, context)
    pods = context.cluster.pods_on(node.metadata.name)
    left = [pod for pod in pods if must_leave(pod, now)]
    overdue = bool(claim.deadline_at) and now >= claim.deadline_at
    # A pod may have been bound before the taint was seen: a node cordoned just now is looked at once more.
    if overdue or (not left and not _holds_volumes(node, pods, claim, drains, context) and was_cordoned):
        return give_up(claim, claim.failure, context)
    # Nobody leaves in the first seconds but by the clock, which no promise stops: there is no need to read them.
    promised = drains.promised if now >= claim.changed_at + HEAD_START_S else frozenset()
    leaving = may_leave(left, promised, now, started_at=claim.changed_at, deadline_at=claim.deadline_at)
    moved = drains.moved_otherwise(claim, node, leaving, pods)
    _evict_within_limits((pod for pod in leaving if pod.metadata.uid not in moved), claim, drains, context)
    for pod in left:
        if overstays(pod, claim.deadline_at):
            delete_leaving_pod(pod, claim, now, context)
    if again:
        set_drain_timer(claim, left, drains, context, soon=not was_cordoned)
    return None


def let_pods_go(claim: NodeClaim, node: Node, drains: Drains, context: FlowContext) -> None:
    """Evict the pods of a node whose instance has ended by itself, so that their controllers replace them at once.

    Kubernetes collects them only when their Node has been gone for 40 seconds. Of an eviction, unlike a deletion, a Job
    can tell that its pod has not failed. Kubernetes collects what a budget or an annotation keeps, and what exceeds the
    evictions of one invocation.

    Raises:
        ClusterError: pods are left; nothing else is lost.
    """
    now = context.clock.now()

    def goes(pod: Pod) -> bool:
        if pod.metadata.deletion_timestamp or not must_leave(pod, now):
            return False
        return owner_kind(pod) != "DaemonSet" and not do_not_disrupt(pod, now)

    _evict_within_limits(filter(goes, context.cluster.pods_on(node.metadata.name)), claim, drains, context)


def _evict_within_limits(pods: Iterable[Pod], claim: NodeClaim, drains: Drains, context: FlowContext) -> None:
    """Ask for evictions as far as this invocation may, and remember what budgets refuse."""
    now = context.clock.now()
    for pod in pods:
        if drains.may_evict(claim, pod) and not evict_pod(pod, claim, now, context):
            drains.refused(pod)


def _holds_volumes(node: Node, staying: Sequence[Pod], claim: NodeClaim, drains: Drains, context: FlowContext) -> bool:
    """True if volumes of pods that have left are still attached; a kubelet that is silent detaches none."""
    if not is_ready(node.status):
        return False
    left = drains.attached_to(node, staying)
    if left:
        context.meter.count("VolumesAwaited", len(left))
        _LOG.info("waiting for volumes: %s", ", ".join(left[:5]), extra=facts(claim))
    return bool(left)


def set_drain_timer(claim: NodeClaim, left: Sequence[Pod], drains: Drains, context: FlowContext, *, soon: bool) -> None:
    """The next round comes in its turn, when the first pod can wait no longer, or is no longer protected.

    The sweep sends the others.
    """
    now = context.clock.now()
    staying = [pod for pod in left if not pod.metadata.deletion_timestamp]
    moments = [last_moment(pod, claim.deadline_at) - now for pod in staying]
    moments += [protected_until(pod) - now for pod in staying]
    urgent = [delay for delay in moments if 0 < delay < _MINUTE_S]
    if soon and not left:
        urgent.append(drains.round_s)
    if claim.deadline_at and claim.deadline_at - now < _SHORT_S:
        urgent += [claim.deadline_at - now, drains.round_s]
    elif now < claim.changed_at + HEAD_START_S:
        urgent.append(HEAD_START_S)
    elif claim.failure in OF_POLICIES and now < claim.changed_at + _SHORT_S:
        urgent.append(drains.round_s)  # they leave one after the other: the next ones wait for this one's end
    if urgent:
        context.set_timer(claim.cluster, claim.name, DRAIN, ceil(min(urgent)))


def is_cordoned(node: Node) -> bool:
    """True if the node carries the taint that keeps new pods off it."""
    return is_disrupted(node.spec.taints)


def cordon(node: Node, context: FlowContext) -> None:
    """Keep new pods off the node; once. Raises ClusterError."""
    if not is_cordoned(node):
        update_node(node, {}, {}, _with_disrupted, context)


def uncordon(node: Node, context: FlowContext) -> None:
    """Take back what keeps new pods and load balancers off the node; once. Raises ClusterError."""
    ours = node.metadata.labels.get(labels.EXCLUDE_BALANCERS) == _BY_SHIPLAP
    if ours or is_cordoned(node):
        removed = {labels.EXCLUDE_BALANCERS: None} if ours else {}
        update_node(node, removed, {}, _without_disrupted, context)


def release_from_balancers(node: Node, context: FlowContext) -> None:
    """Keep new pods off the node and have load balancers let go of it; once. Raises ClusterError.

    The label is left as it is where somebody else has set it: load balancers look at its presence only.
    """
    missing = {} if labels.EXCLUDE_BALANCERS in node.metadata.labels else {labels.EXCLUDE_BALANCERS: _BY_SHIPLAP}
    if missing or not is_cordoned(node):
        update_node(node, missing, {}, _with_disrupted, context)


def _return_to_service(claim: NodeClaim, node: Node, why: str, context: FlowContext) -> None:
    """Open a node again, and then write that it is in service: a function that dies in between does both once more."""
    uncordon(node, context)
    context.state.advance(claim, ClaimState.INITIALIZED, failure="", deadline_at=0.0, changed_at=context.clock.now())
    context.meter.count("NodesAwakeAgain")
    _LOG.info("node stays, it was leaving: %s", why, extra=facts(claim))


def _with_disrupted(node: Node) -> list[Taint]:
    return [*_without_disrupted(node), DISRUPTED]


def _without_disrupted(node: Node) -> list[Taint]:
    return [taint for taint in node.spec.taints if (taint.key, taint.effect) != (DISRUPTED.key, DISRUPTED.effect)]


def evict_pod(pod: Pod, claim: NodeClaim, now: float, context: FlowContext) -> bool:
    """Ask for the pod's eviction; returns false where a budget forbids it.

    It is tried again in the next round, until it can wait no more.
    """
    shortened = int(max(1, claim.deadline_at - now)) if claim.deadline_at else None
    if shortened is not None and shortened >= grace_s(pod):
        shortened = None
    try:
        context.cluster.evict(pod, shortened)
    except ClusterError as error:
        if isinstance(error, TooManyRequests) or error.status == _SEVERAL_BUDGETS:
            context.meter.count("EvictionsForbidden")
            _LOG.info("not evicted: %s", error, extra={**facts(claim), "pod": pod.key})
            if now >= last_moment(pod, claim.deadline_at):
                delete_leaving_pod(pod, claim, now, context)
            return False
        if error.status not in _MOVED_ON:
            raise
    else:
        context.meter.count("PodsEvicted")
    return True


def delete_leaving_pod(pod: Pod, claim: NodeClaim, now: float, context: FlowContext) -> None:
    """End a pod in the time that its node has left: without that it would end with the instance, and not in order."""
    given_s = int(max(1, min(grace_s(pod), claim.deadline_at - now)))
    try:
        context.cluster.delete_pod(pod, given_s)
    except ClusterError as error:
        if error.status not in _MOVED_ON:
            raise
    else:
        context.meter.count("PodsDeleted")
        _LOG.warning("deleted, its node's time is up", extra={**facts(claim), "pod": pod.key})
