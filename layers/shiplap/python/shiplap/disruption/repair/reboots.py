"""Reboots of sick nodes, step by step: pods leave, EC2 is asked once, the node comes back with another boot, or is
replaced.

Nothing shows whether EC2 has accepted a request, so the moment is written down first. If no answer is known, the node
is waited for as if there was one: no node is rebooted twice for one cause.
"""

from __future__ import annotations

from enum import StrEnum

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim, Reboots

MOST_A_DAY = 2
"""Reboots of a node within REMEMBERED_S; if it is sick again after them, it is replaced. Both are Karpenter's."""

REMEMBERED_S = 24 * 3600.0

LEAVE_S = 300.0
"""How long pods have to leave before the reboot, in seconds; those that are left then stay on the node. Karpenter's."""

SEND_S = 300.0
"""How long EC2 may refuse to reboot the instance, in seconds. Karpenter's."""

RETURN_S = 1200.0
"""How long a node may take to come back, in seconds. Karpenter's."""


class RebootStep(StrEnum):
    """The next step of a reboot."""

    FENCE = "Fence"
    """Keep new pods off, and no longer call the node initialized."""
    EMPTY = "Empty"
    """Ask pods to leave."""
    SEND = "Send"
    """Write down that EC2 is asked, and ask it."""
    OPEN = "Open"
    """Let pods come: another boot has begun."""
    WAIT = "Wait"
    """Look again later."""
    FINISH = "Finish"
    """The node is back."""
    REPLACE = "Replace"
    """The node is not coming back."""


def recent(reboots: Reboots, now: float) -> tuple[float, ...]:
    """Return when the reboots that are remembered were asked for."""
    return tuple(at for at in reboots.asked_at if at > now - REMEMBERED_S)


def may_reboot(claim: NodeClaim, node: Node | None, now: float) -> bool:
    """True if a reboot may heal a sick node: it was in service, shows its boot, and has not been rebooted too often."""
    shows_boot = node is not None and bool(node.status.node_info.boot_id)
    in_service = claim.state is ClaimState.INITIALIZED and not claim.is_rebooting
    return in_service and shows_boot and len(recent(claim.reboots, now)) < MOST_A_DAY


def asked(claim: NodeClaim, cause: str, now: float) -> Reboots:
    """The reboots of a claim with one more that begins now."""
    return Reboots((*recent(claim.reboots, now), now), cause)


def ended(reboots: Reboots, now: float) -> Reboots:
    """The reboots of a claim whose node is back."""
    return Reboots(reboots.asked_at, ended_at=now)


def next_step(claim: NodeClaim, node: Node, now: float, *, missing: str, must_leave: bool) -> RebootStep:
    """Return the next step of the reboot that is under way.

    Args:
        claim: one that is rebooting.
        node: its Node.
        now: epoch seconds.
        missing: what the node lacks to be initialized, if anything.
        must_leave: whether pods are on it that have to leave before.
    """
    reboots, asked_at = claim.reboots, claim.reboots.asked_at[-1]
    if not reboots.sent_at:
        if now >= asked_at + LEAVE_S + SEND_S or not node.status.node_info.boot_id:
            return RebootStep.REPLACE
        if not is_fenced(node) or labels.INITIALIZED in node.metadata.labels:
            return RebootStep.FENCE
        return RebootStep.EMPTY if must_leave and now < asked_at + LEAVE_S else RebootStep.SEND
    if node.status.node_info.boot_id not in ("", reboots.boot_id):
        if is_fenced(node):
            return RebootStep.OPEN
        if not missing:
            return RebootStep.FINISH
    return RebootStep.REPLACE if now >= reboots.sent_at + RETURN_S else RebootStep.WAIT


def is_fenced(node: Node) -> bool:
    """True if the node bears the taint of a reboot."""
    return any(taint.key == labels.REBOOTING_TAINT for taint in node.spec.taints)


def is_left_over(claim: NodeClaim, node: Node) -> bool:
    """True if a node in service looks as if it was rebooted, and is not: its reboot was forgotten half way."""
    marks = node.metadata.labels
    unmarked = marks.get(labels.REGISTERED) == "true" != marks.get(labels.INITIALIZED)
    return claim.state is ClaimState.INITIALIZED and not claim.is_rebooting and (unmarked or is_fenced(node))


def in_words(claim: NodeClaim) -> str:
    """Say which reboot is under way, why, and when the node is replaced instead."""
    reboots = claim.reboots
    number, asked_at = len(reboots.asked_at), reboots.asked_at[-1]
    until = reboots.sent_at + RETURN_S if reboots.sent_at else asked_at + LEAVE_S + SEND_S
    step = "is back" if reboots.sent_at else "is being rebooted"
    return (
        f"is rebooted since {rfc3339(asked_at)} (reboot {number} of {MOST_A_DAY} a day): {reboots.cause}; it is "
        f"replaced unless it {step} by {rfc3339(until)}"
    )
