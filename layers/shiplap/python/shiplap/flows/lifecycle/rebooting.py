"""Reboots the node of a claim in service, one step a visit; `disruption.repair.reboots` decides which.

A step is a write to the Node or to the claim, and may be repeated. The request to EC2 is the exception: the claim says
that it is sent before it is. Two functions cannot both write that.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from msgspec.structs import replace

from shiplap.disruption.repair import reboots
from shiplap.disruption.repair.reboots import RebootStep
from shiplap.errors import AwsError, AwsThrottled, AwsUnavailable
from shiplap.flows.claim_updates import REBOOT, facts
from shiplap.flows.context import FlowContext
from shiplap.flows.interrupt.interrupt import handle_notice
from shiplap.flows.interrupt.notices import Notice, NoticeKind
from shiplap.flows.lifecycle.drain import Drains, evict_pod, may_leave, must_leave
from shiplap.flows.lifecycle.registration import not_initialized, update_node
from shiplap.flows.pod_events import publish_on_node
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, Pod, Taint
from shiplap.kubernetes.taints import REBOOTING
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)

ROUND_S = 15
"""Time between two looks at a node in the first minute of its reboot, in seconds; later, the sweep's minute does, and
the event of a node that becomes Ready."""

_MINUTE_S = 60.0

_OUTCOME_UNKNOWN = ("", "ServiceUnavailable")
_STEPS_AT_ONCE = 3
"""A node without pods is fenced and rebooted in one visit."""


def reboot(
    claim: NodeClaim, node: Node, drains: Drains, settings: ClusterSettings, context: FlowContext, *, again: bool
) -> None:
    """Take the next steps of the reboot that is under way; with `again` a timer is set for those after them.

    Raises:
        ConditionFailed: somebody else advanced the claim.
        ClusterError, StoreError: every step may be repeated.
    """
    for _ in range(_STEPS_AT_ONCE):
        now = context.clock.now()
        pods: Sequence[Pod] = ()
        if not claim.reboots.sent_at:
            pods = [pod for pod in context.cluster.pods_on(node.metadata.name) if must_leave(pod, now)]
        missing = not_initialized(claim, node)
        step = reboots.next_step(claim, node, now, missing=missing, must_leave=bool(pods))
        if step is RebootStep.FENCE:
            node = update_node(node, {labels.INITIALIZED: None}, {}, _fenced, context)
        elif step is RebootStep.OPEN:
            node = update_node(node, {}, {}, _open, context)
        elif step is RebootStep.FINISH:
            _finish(claim, node, context)
            return
        elif step is RebootStep.REPLACE:
            _replace(claim, node, missing, settings, context)
            return
        else:
            if step is RebootStep.EMPTY:
                _empty(pods, claim, drains, context)
            elif step is RebootStep.SEND:
                _send(claim, node, settings, context)
            break
    if again and not claim.reboots.sent_at and context.clock.now() < claim.reboots.asked_at[-1] + _MINUTE_S:
        context.set_timer(claim.cluster, claim.name, REBOOT, ROUND_S)


def reopen(claim: NodeClaim, node: Node, context: FlowContext) -> None:
    """Return a node to service whose reboot was forgotten half way, once it is complete. Raises ClusterError."""
    opened = replace(node, spec=replace(node.spec, taints=tuple(_open(node))))
    if not not_initialized(claim, opened):
        update_node(node, {labels.INITIALIZED: "true"}, {}, _open, context)
        _LOG.warning("in service, its reboot was forgotten", extra=facts(claim))


def _fenced(node: Node) -> list[Taint]:
    return [*_open(node), REBOOTING]


def _open(node: Node) -> list[Taint]:
    return [taint for taint in node.spec.taints if taint.key != labels.REBOOTING_TAINT]


def _empty(pods: Sequence[Pod], claim: NodeClaim, drains: Drains, context: FlowContext) -> None:
    """Ask for evictions. No pod is deleted: those that a budget keeps stay, and start again after the reboot."""
    now = context.clock.now()
    for pod in may_leave(pods, (), now, started_at=0.0, deadline_at=0.0):
        if drains.may_evict(claim, pod) and not evict_pod(pod, claim, now, context):
            drains.refused(pod)


def _send(claim: NodeClaim, node: Node, settings: ClusterSettings, context: FlowContext) -> None:
    now, unsent = context.clock.now(), claim.reboots
    sent = replace(unsent, boot_id=node.status.node_info.boot_id, sent_at=now)
    claim = context.state.advance(claim, claim.state, reboots=sent)
    try:
        context.compute.reboot(claim.cluster, claim.instance_id)
    except (AwsThrottled, AwsUnavailable) as error:
        context.meter.count("RebootsRefused")
        _LOG.warning("not rebooted yet: %s", error, extra=facts(claim))
        context.state.advance(claim, claim.state, reboots=unsent)
        return
    except AwsError as error:
        if error.code not in _OUTCOME_UNKNOWN:
            context.meter.count("RebootsRefused")
            _replace(claim, node, str(error), settings, context)
            return
        _LOG.warning("it is waited for as if it was rebooted: %s", error, extra=facts(claim))
    context.meter.count("NodesRebooted")
    _LOG.warning("rebooted: %s", sent.cause, extra=facts(claim))
    publish_on_node(node, "RebootIssued", sent.cause, context)


def _finish(claim: NodeClaim, node: Node, context: FlowContext) -> None:
    now, began_at = context.clock.now(), claim.reboots.asked_at[-1]
    update_node(node, {labels.INITIALIZED: "true"}, {}, _open, context)
    context.state.advance(claim, claim.state, reboots=reboots.ended(claim.reboots, now))
    context.meter.count("RebootToReady", max(now - began_at, 0.0), "Seconds")
    _LOG.info("back after a reboot, %.0f s after it was asked for", now - began_at, extra=facts(claim))
    publish_on_node(node, "RebootSucceeded", f"back {now - began_at:.0f} s after the reboot was asked for", context)


def _replace(claim: NodeClaim, node: Node, why: str, settings: ClusterSettings, context: FlowContext) -> None:
    """Have the node replaced as any other sick one; its pods have waited for it long enough."""
    waited_s = context.clock.now() - claim.reboots.asked_at[-1]
    why = why or f"its boot is still {node.status.node_info.boot_id}"
    context.meter.count("RebootsFailed")
    _LOG.warning("replaced, %.0f s after its reboot was asked for: %s", waited_s, why, extra=facts(claim))
    publish_on_node(node, "RebootFailed", f"replaced {waited_s:.0f} s after the reboot was asked for: {why}", context)
    handle_notice(claim.name, Notice(NoticeKind.UNHEALTHY, (claim.instance_id,)), settings, context)
