"""Replaces or reboots sick nodes, few at a time, and replaces nodes whose instances AWS has scheduled a change for.

A node is sick when EC2's status checks fail, or a condition of the Node has been bad for longer than is tolerated. Many
sick nodes at once point to a zone, a network or an API server. Replacing them would not help, so none is replaced, and
the log says so.

AWS announces a maintenance for many instances at once, mostly weeks ahead. To drain all of them at once would launch
as many replacements and move as many pods. So they are replaced as the budgets of their NodePools allow, the
earliest change first, until a change is so near that waiting would let AWS do it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import ceil
from types import MappingProxyType

import msgspec

from shiplap.disruption.budgets import allowance
from shiplap.disruption.commands import Reason
from shiplap.disruption.repair import reboots
from shiplap.disruption.repair.kept_sick_nodes import SickNote, kept_by, most_of_an_ami, sick_amis
from shiplap.disruption.repair.repair_policies import RepairPolicy, sick_condition
from shiplap.errors import AwsError, ClusterError, ConditionFailed
from shiplap.flows.claim_updates import REBOOT, facts, pool_of
from shiplap.flows.context import FlowContext
from shiplap.flows.interrupt.interrupt import URGENT_S, WARNING_S, handle_notice
from shiplap.flows.interrupt.notices import Notice, NoticeKind
from shiplap.flows.optional.optional_calls import CLAIM_OBJECTS, SICK_INSTANCES
from shiplap.flows.pod_events import publish_on_node
from shiplap.kubernetes.objects import Node
from shiplap.kubernetes.quantity import parse_amount
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import LEAVING, ClaimState, NodeClaim
from shiplap.manifests.shiplap_annotations import terminate_first_s
from shiplap.ports import InstanceProblem
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)

_NOT_LEAVING = frozenset({ClaimState.LAUNCHED, ClaimState.REGISTERED, ClaimState.INITIALIZED, ClaimState.DISRUPTING})


def replace_before_changes(
    settings: ClusterSettings, claims: Sequence[NodeClaim], ailments: Iterable[InstanceProblem], context: FlowContext
) -> None:
    """Have nodes with a scheduled change replaced, each by the same conditional write as an interruption.

    Budgets count as for drift: like that, it can wait for a maintenance window. A change of an unknown time presses.

    Args:
        settings: the cluster.
        claims: all of the cluster.
        ailments: what EC2 tells of instances.
        context: state is written.

    Raises:
        StoreError: tried again with the next sweep.
    """
    noticed: dict[str, float] = {}
    for ailment in ailments:
        if ailment.kind == "event":
            noticed[ailment.instance_id] = min(noticed.get(ailment.instance_id, ailment.due_at), ailment.due_at)
    due = [
        (noticed.get(claim.instance_id, claim.change_at), claim)
        for claim in claims
        if claim.state in _NOT_LEAVING and (claim.instance_id in noticed or claim.change_at)
    ]
    now = context.clock.now()
    left: dict[str, int] = {}
    for due_at, claim in sorted(due, key=lambda item: (item[0], item[1].name)):
        pool = pool_of(claim, settings)
        if due_at > now + URGENT_S and pool is not None:
            if claim.plan.node_pool not in left:
                left[claim.plan.node_pool] = room_for_repairs(pool, claims, Reason.DRIFTED, now)
            if left[claim.plan.node_pool] < 1:
                context.meter.count("ScheduledChangesWaiting")
                _LOG.info("a scheduled change waits for the budgets of its pool", extra=facts(claim))
                continue
            left[claim.plan.node_pool] -= 1
        handle_notice(claim.name, Notice(NoticeKind.SCHEDULED_CHANGE, (claim.instance_id,)), settings, context)


def room_for_repairs(pool: NodePool, claims: Iterable[NodeClaim], reason: Reason, now: float) -> int:
    """Return how many more nodes of a NodePool its budgets allow to leave now."""
    own = [claim for claim in claims if claim.plan.node_pool == pool.metadata.name]
    gone = sum(claim.state in LEAVING for claim in own)
    total = gone + sum(claim.state is ClaimState.INITIALIZED for claim in own)
    leaving = gone + sum(claim.is_rebooting for claim in own)
    return allowance(pool, reason, total, leaving, now).nodes


IMPAIRED_S = 120.0
"""How long a status check must have failed, in seconds: it may be an instance that boots, or a blip."""

SICK_FRACTION = 0.2
"""A NodePool with a larger share of sick nodes, rounded up to whole nodes, is left alone."""

MOST_AT_ONCE = 10
"""Nodes of one cluster that are being repaired at the same time."""

_MOST_TOLD = 20
"""Nodes that are told in one sweep why they are not replaced."""

_IN_SERVICE = frozenset({ClaimState.REGISTERED, ClaimState.INITIALIZED, ClaimState.DISRUPTING})
_ALIVE = _IN_SERVICE | {ClaimState.LAUNCHED}
_REPAIRS = frozenset({NoticeKind.IMPAIRED, NoticeKind.UNHEALTHY})


class SickNode(msgspec.Struct, frozen=True):
    """A claim whose node should be replaced, and why. `ami` is empty where the AMI is not to blame.

    Nodes of higher `priority` are replaced first. With `reboots` a reboot may heal the node.
    """

    claim: NodeClaim
    kind: NoticeKind
    reason: str
    priority: int = 0
    ami: str = ""
    reboots: bool = False


class RepairBounds(msgspec.Struct, frozen=True):
    """Bounds of the repairs of single NodePools, by their names.

    `budgets` say how many more nodes in service may leave for bad conditions. Of each `full` pool one node is in repair
    at a time.
    """

    budgets: Mapping[str, int] = MappingProxyType({})
    full: Collection[str] = frozenset()


_NO_BOUNDS = RepairBounds()


class RepairDecision(msgspec.Struct, frozen=True):
    """Sick nodes by what is done about them, each by priority and the name of the claim.

    `kept` are those that an annotation keeps, by the reason, and `stopped` those of an AMI that makes nodes sick.
    """

    repaired: tuple[SickNode, ...] = ()
    blocked: tuple[SickNode, ...] = ()
    kept: tuple[tuple[SickNode, str], ...] = ()
    stopped: tuple[SickNode, ...] = ()


def repair_nodes(
    settings: ClusterSettings,
    claims: Sequence[NodeClaim],
    nodes: Mapping[str, Node],
    context: FlowContext,
    noted: Mapping[str, SickNote] = MappingProxyType({}),
) -> None:
    """Have sick nodes rebooted, or replaced by the same conditional write as an interruption.

    Args:
        settings: the cluster; without `node_repair` only scheduled events count.
        claims: all of the cluster.
        nodes: by instance id, freshly read.
        context: health is asked, where there is one; state is written.
        noted: what is remembered of sick nodes, by the name of the claim.

    Raises:
        StoreError: tried again with the next sweep.
    """
    if not any(claim.state in _ALIVE | LEAVING for claim in claims):
        return
    ailments = _ailments(settings.name, context)
    replace_before_changes(settings, claims, ailments, context)
    if not settings.node_repair:
        return
    now = context.clock.now()
    pools = {pool.metadata.name: pool for pool in settings.manifests.node_pools}
    budgets = {name: room_for_repairs(pool, claims, Reason.UNHEALTHY, now) for name, pool in pools.items()}
    bounds = RepairBounds(budgets, full_pools(settings))
    sick_nodes = sick_among(claims, nodes, ailments, now, settings.repair_policies)
    kept = {item.claim.name: why for item in sick_nodes if (why := _kept(item, nodes, settings, context))}
    amis = {item.claim.name: item.ami for item in sick_nodes if item.claim.name not in kept}
    if fresh := {name: SickNote(ami, now) for name, ami in amis.items() if ami and name not in noted}:
        context.state.mark_sick(settings.name, fresh)  # first: a node that is replaced cannot be noted any more
    of_ami = Counter(claim.known_instance.ami for claim in claims if claim.state in _IN_SERVICE)
    verdict = choose_repairs(claims, sick_nodes, bounds, kept, sick_amis(noted, amis, of_ami))
    for sick in verdict.repaired:
        node = nodes.get(sick.claim.instance_id)
        if sick.reboots and reboots.may_reboot(sick.claim, node, now):
            _reboot(sick, context)
            continue
        context.meter.count("NodesRepaired")
        _LOG.warning("replacing a sick node: %s", sick.reason, extra=facts(sick.claim))
        handle_notice(sick.claim.name, Notice(sick.kind, (sick.claim.instance_id,)), settings, context)
    for sick in verdict.blocked:
        context.meter.count("RepairsBlocked")
        why = "too many are, or a budget allows no more"
        _LOG.warning("sick node left alone, %s: %s", why, sick.reason, extra=facts(sick.claim))
    stopped = ((sick, f"{most_of_an_ami(of_ami[sick.ami])} nodes of {sick.ami} fell sick") for sick in verdict.stopped)
    told = [*verdict.kept, *stopped]
    if verdict.kept:
        context.meter.count("RepairsKept", len(verdict.kept))
    if verdict.stopped:
        context.meter.count("RepairsStopped", len(verdict.stopped))
    for sick, why in told[:_MOST_TOLD]:
        _LOG.warning("sick node is not replaced, %s: %s", why, sick.reason, extra=facts(sick.claim))
        if node := nodes.get(sick.claim.instance_id):
            publish_on_node(node, "NodeRepairBlocked", why, context)


def _reboot(sick: SickNode, context: FlowContext) -> None:
    """Have the lifecycle function reboot a node; whoever changes the claim first may have a better reason."""
    claim, now = sick.claim, context.clock.now()
    try:
        context.state.advance(claim, claim.state, reboots=reboots.asked(claim, sick.reason, now))
    except ConditionFailed as error:
        _LOG.info("not rebooted, the claim was advanced meanwhile: %s", error, extra=facts(claim))
        return
    context.meter.count("RebootsBegun")
    _LOG.warning("rebooting a sick node: %s", sick.reason, extra=facts(claim))
    context.set_timer(claim.cluster, claim.name, REBOOT, 0)


def _kept(sick: SickNode, nodes: Mapping[str, Node], settings: ClusterSettings, context: FlowContext) -> str:
    """Return what keeps a sick node. Where its NodeClaim cannot be read, it is kept until it can."""
    shown: Mapping[str, str] = {}
    if settings.live_manifests:
        try:
            found = context.within(CLAIM_OBJECTS, context.cluster).node_claim_object(sick.claim.name)
        except ClusterError as error:
            return f"NodeClaim {sick.claim.name} is not read: {error}"
        annotations = (found or {}).get("metadata", {}).get("annotations")
        shown = annotations if isinstance(annotations, dict) else {}
    return kept_by(sick.claim, nodes.get(sick.claim.instance_id), shown)


def _ailments(cluster: str, context: FlowContext) -> tuple[InstanceProblem, ...]:
    if context.health is None:
        return ()
    try:
        return context.within(SICK_INSTANCES, context.health).ailing()
    except AwsError as error:  # the nodes' own conditions still count
        context.meter.count("StatusChecksNotRead")
        _LOG.warning("status checks not read: %s", error, extra={"cluster": cluster, "code": error.code})
        return ()


def sick_among(
    claims: Iterable[NodeClaim],
    nodes: Mapping[str, Node],
    ailments: Iterable[InstanceProblem],
    now: float,
    policies: Sequence[RepairPolicy] = (),
) -> list[SickNode]:
    """Claims in service, or leaving at leisure, whose instance or Node has been bad for too long; by name.

    `nodes` by instance id, `now` in epoch seconds. `policies` are those of the cluster. A check of AWS's system says
    nothing of an AMI. Whether a node that is rebooted comes back is not judged here.
    """
    checks = {ailment.instance_id: ailment for ailment in sorted(ailments) if ailment.kind != "event"}
    sick = []
    for claim in sorted(claims, key=lambda item: item.name):
        at_leisure = not claim.deadline_at or claim.deadline_at > now + WARNING_S
        if claim.state not in _IN_SERVICE and not (claim.state is ClaimState.DRAINING and at_leisure):
            continue
        if claim.is_rebooting:
            continue
        node, check, healed_at = nodes.get(claim.instance_id), checks.get(claim.instance_id), claim.reboots.ended_at
        if check is not None and now >= max(check.since, healed_at) + IMPAIRED_S:
            words = f"its {check.kind} status check has failed for {now - check.since:.0f} s"
            sick.append(SickNode(claim, NoticeKind.IMPAIRED, words))
        elif node is not None and (bad := sick_condition(node, policies, now, healed_at)):
            ami = claim.known_instance.ami
            sick.append(SickNode(claim, NoticeKind.UNHEALTHY, bad.words, bad.priority, ami, bad.reboots))
    return sick


def full_pools(settings: ClusterSettings) -> frozenset[str]:
    """Return the static NodePools without room beside their replicas whose nodes go first, one at a time."""
    full = set()
    for pool in settings.manifests.node_pools:
        limit = pool.spec.limits.get("nodes")
        if pool.spec.replicas is None or limit is None:
            continue
        try:
            goes_first = terminate_first_s(pool, settings.disruption.terminate_first_s) > 0
            if goes_first and parse_amount("nodes", limit) <= pool.spec.replicas:
                full.add(pool.metadata.name)
        except ValueError as error:  # sick nodes are replaced all the same
            _LOG.warning("NodePool %s is not read: %s", pool.metadata.name, error)
    return frozenset(full)


def choose_repairs(
    claims: Iterable[NodeClaim],
    sick: Sequence[SickNode],
    bounds: RepairBounds = _NO_BOUNDS,
    kept: Mapping[str, str] = MappingProxyType({}),
    stopped_amis: Collection[str] = frozenset(),
) -> RepairDecision:
    """Choose the sick nodes to replace now.

    Of a NodePool none is replaced while more of its nodes are sick, nodes in repair included, than SICK_FRACTION of it.
    Of a cluster no more than MOST_AT_ONCE are in repair at the same time. As in Karpenter, budgets hold for nodes in
    service with bad conditions. A failed status check of EC2 does not wait; other nodes run no pods or leave already.
    `kept` says by the names of claims what keeps their nodes; of `stopped_amis` none is replaced. Both count as sick.
    """
    total: dict[str, int] = {}
    unwell: dict[str, int] = {}
    of_pool: Counter[str] = Counter()
    for claim in claims:
        in_repair = claim.is_rebooting or (claim.state in LEAVING and claim.failure in _REPAIRS)
        of_pool[claim.plan.node_pool] += in_repair
        if in_repair or claim.state in _IN_SERVICE or claim.state is ClaimState.DRAINING:
            total[claim.plan.node_pool] = total.get(claim.plan.node_pool, 0) + 1
            unwell[claim.plan.node_pool] = unwell.get(claim.plan.node_pool, 0) + in_repair
    for item in sick:
        unwell[item.claim.plan.node_pool] += 1
    of_budget: Counter[str] = Counter()
    repaired: list[SickNode] = []
    blocked: list[SickNode] = []
    free = [item for item in sick if item.claim.name not in kept and item.ami not in stopped_amis]
    for item in sorted(free, key=lambda item: -item.priority):
        pool = item.claim.plan.node_pool
        budgeted = item.kind is NoticeKind.UNHEALTHY and item.claim.state is ClaimState.INITIALIZED
        within_budget = not budgeted or of_budget[pool] < bounds.budgets.get(pool, MOST_AT_ONCE)
        within_bounds = of_pool.total() < MOST_AT_ONCE and not (pool in bounds.full and of_pool[pool])
        allowed = unwell[pool] <= ceil(SICK_FRACTION * total[pool]) and within_bounds and within_budget
        of_pool[pool] += allowed
        of_budget[pool] += allowed and budgeted
        (repaired if allowed else blocked).append(item)
    return RepairDecision(
        tuple(repaired),
        tuple(blocked),
        tuple((item, kept[item.claim.name]) for item in sick if item.claim.name in kept),
        tuple(item for item in sick if item.ami in stopped_amis and item.claim.name not in kept),
    )
