"""Empties the node of a Draining claim, one round at a time: cordon, evict, and end the instance once nothing is left.

Its replacement comes first. Planning treats the pods of such a node as pending, so a node for them is on its way; each
pod stays where it is until that node is ready, or until it can stay no longer and still end in order. No round waits
for anything: the next one is a timer's or the sweep's.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from math import inf

from shiplap.api.nodeclaim import IN_FLIGHT, NodeClaim
from shiplap.errors import ClusterError
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, Pod, Taint
from shiplap.kubernetes.taints import untolerated
from shiplap.kubernetes.timestamps import epoch
from shiplap.provisioning.claims import DRAIN, facts
from shiplap.provisioning.endings import give_up, has_vanished
from shiplap.provisioning.register import change, is_ready
from shiplap.provisioning.world import World
from shiplap.scheduling.pods import owner_kind

_LOG = logging.getLogger(__name__)

HEAD_START_S = 10.0
"""How long pods of a leaving node are left alone at first, so that a decision about them is made, in seconds."""

ROUND_S = 5.0
"""Time between two rounds while the clock runs, in seconds; without a clock the sweep's minute does."""

MARGIN_S = 10.0
"""How long before the deadline the last pod should have ended, in seconds: rounds and evictions take time."""

_SHORT_S = 180.0
_STUCK_S = 60.0
"""A pod that outlives its deletion by this many seconds is not going to end; upstream does not wait for it either."""

_DISRUPTED = Taint(key=labels.DISRUPTED_TAINT, effect="NoSchedule")
_RELEASED = {labels.EXCLUDE_BALANCERS: "shiplap"}
_STAY = ("DaemonSet", "Node")
_CRITICAL = ("system-cluster-critical", "system-node-critical")
_GRACE_S = 30
_FORBIDDEN = (429, 500)
"""A PodDisruptionBudget forbids an eviction now; several of them cover the pod, so that none ever will."""
_MOVED_ON = (404, 409)


def drain(claim: NodeClaim, node: Node | None, world: World, *, again: bool) -> NodeClaim | None:
    """One round for a Draining claim.

    Args:
        claim: Draining; since `changed_at`, until `deadline_at`, which is 0 when nothing presses.
        node: the claim's Node, freshly read, if there is one.
        world: the ports.
        again: whether to set the timer of the next round.

    Returns:
        The claim as Gone once its instance is ended, or None while pods are left.

    Raises:
        ConditionFailed: somebody else advanced the claim.
        ClusterError, StoreError, AwsError: every step may be repeated.
    """
    now = world.clock.now()
    if node is None or (not is_ready(node) and has_vanished(claim, world)):
        return give_up(claim, claim.failure, world)
    release_from_balancers(node, world)
    left = [pod for pod in world.cluster.pods_on(node.metadata.name) if must_leave(pod, now)]
    if not left or (claim.deadline_at and now >= claim.deadline_at):
        return give_up(claim, claim.failure, world)
    promised = _promised(claim, world) if now >= claim.changed_at + HEAD_START_S else frozenset()
    for pod in may_leave(left, promised, now, started_at=claim.changed_at, deadline_at=claim.deadline_at):
        _evict(pod, claim, now, world)
    if again:
        _set_timer(claim, now, world)
    return None


def _set_timer(claim: NodeClaim, now: float, world: World) -> None:
    if claim.deadline_at and claim.deadline_at - now < _SHORT_S:
        world.remind(claim.cluster, claim.name, DRAIN, max(1.0, min(ROUND_S, claim.deadline_at - now)))
    elif now < claim.changed_at + HEAD_START_S:
        world.remind(claim.cluster, claim.name, DRAIN, HEAD_START_S)


def must_leave(pod: Pod, now: float) -> bool:
    """Whether a node is not empty while it holds this pod: it would be missed, and it will end."""
    if owner_kind(pod) in _STAY or untolerated((_DISRUPTED,), pod.spec.tolerations) is None:
        return False
    deleted = pod.metadata.deletion_timestamp
    return not deleted or now < epoch(deleted) + _STUCK_S


def may_leave(
    pods: Sequence[Pod], promised: Collection[str], now: float, *, started_at: float, deadline_at: float
) -> list[Pod]:
    """The pods to evict in this round, in order.

    A pod leaves once it has had a head start for a decision and no node is being launched for it; critical ones leave
    last; one marked as not to be disrupted does not leave by itself. All of that ends at the last moment from which the
    pod's grace period still fits before the deadline.

    Args:
        pods: those that must leave.
        promised: uids of pods for which a node is on its way.
        now: epoch seconds, as are `started_at` and `deadline_at`; without a deadline (0) there is no last moment.
    """
    ordinary_left = any(pod.spec.priority_class_name not in _CRITICAL for pod in pods)

    def leaves(pod: Pod) -> bool:
        if pod.metadata.deletion_timestamp:
            return False
        if now >= (deadline_at or inf) - _grace_s(pod) - MARGIN_S:
            return True
        if pod.metadata.annotations.get(labels.DO_NOT_DISRUPT) == "true":
            return False
        if ordinary_left and pod.spec.priority_class_name in _CRITICAL:
            return False
        return now >= started_at + HEAD_START_S and pod.metadata.uid not in promised

    return _ordinary_first(pod for pod in pods if leaves(pod))


def _ordinary_first(pods: Iterable[Pod]) -> list[Pod]:
    return sorted(pods, key=lambda pod: (pod.spec.priority_class_name in _CRITICAL, pod.key))


def _grace_s(pod: Pod) -> int:
    given = pod.spec.termination_grace_period_seconds
    return _GRACE_S if given is None else given


def _promised(claim: NodeClaim, world: World) -> frozenset[str]:
    """Uids of all pods for which some node is on its way. Raises StoreError."""
    claims = world.state.read(claim.cluster, world.clock.now()).claims
    return frozenset(pod.uid for other in claims if other.state in IN_FLIGHT for pod in other.pods if pod.uid)


def is_cordoned(node: Node) -> bool:
    """Whether the node carries the taint that keeps new pods off it."""
    return any((taint.key, taint.effect) == (_DISRUPTED.key, _DISRUPTED.effect) for taint in node.spec.taints)


def cordon(node: Node, world: World) -> None:
    """Keep new pods off the node; once. Raises ClusterError."""
    if not is_cordoned(node):
        change(node, {}, {}, _with_disrupted, world)


def release_from_balancers(node: Node, world: World) -> None:
    """Keep new pods off the node and have load balancers let go of it; once. Raises ClusterError."""
    if not is_cordoned(node) or labels.EXCLUDE_BALANCERS not in node.metadata.labels:
        change(node, _RELEASED, {}, _with_disrupted, world)


def _with_disrupted(node: Node) -> list[Taint]:
    others = [taint for taint in node.spec.taints if (taint.key, taint.effect) != (_DISRUPTED.key, _DISRUPTED.effect)]
    return [*others, _DISRUPTED]


def _evict(pod: Pod, claim: NodeClaim, now: float, world: World) -> None:
    """Ask for the pod's eviction; what a PodDisruptionBudget forbids is tried again in the next round."""
    shortened = None
    if claim.deadline_at and _grace_s(pod) > claim.deadline_at - now:
        shortened = max(1, int(claim.deadline_at - now))
    try:
        world.cluster.evict(pod, shortened)
    except ClusterError as error:
        if error.status in _FORBIDDEN:
            world.meter.count("EvictionsForbidden")
            _LOG.info("not evicted: %s", error, extra={**facts(claim), "pod": pod.key})
        elif error.status not in _MOVED_ON:
            raise
    else:
        world.meter.count("PodsEvicted")
