"""Capacity blocks that are about to end: their nodes are replaced and emptied before EC2 ends the instances.

Nobody sends word of it in time to every cluster, but EC2 says of each block when it ends. An ordinary reservation that
ends leaves its instances running, so only blocks are looked at.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from shiplap.errors import AwsError
from shiplap.flows.context import FlowContext
from shiplap.flows.interrupt.interrupt import handle_notice
from shiplap.flows.interrupt.notices import Notice, NoticeKind
from shiplap.flows.optional.optional_calls import CAPACITY_BLOCKS
from shiplap.instances.catalog.drain_times import drain_time_s
from shiplap.instances.catalog.resolved_nodeclass import CapacityReservation
from shiplap.kubernetes import labels
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)

_IN_USE = frozenset({ClaimState.LAUNCHED, ClaimState.REGISTERED, ClaimState.INITIALIZED, ClaimState.DISRUPTING})


def replace_in_ending_blocks(settings: ClusterSettings, claims: Iterable[NodeClaim], context: FlowContext) -> None:
    """Have nodes in blocks that are about to end replaced; each by the same conditional write as an interruption.

    EC2 is asked only while some claim is in a capacity block.

    Args:
        settings: the cluster.
        claims: all of the cluster.
        context: EC2 is asked, state is written.

    Raises:
        StoreError: tried again with the next sweep.
    """
    in_blocks = [claim for claim in claims if claim.state in _IN_USE and _is_in_block(claim)]
    if not in_blocks:
        return
    now = context.clock.now()
    ending = {
        (node_class, held.id): held
        for node_class, held in _reservations(settings, {c.plan.node_class for c in in_blocks}, context)
        if held.is_expiring(now, drain_time_s(settings.manifests, node_class))
    }
    for claim in sorted(in_blocks, key=lambda claim: claim.name):
        held = ending.get((claim.plan.node_class, claim.plan.labels.get(labels.RESERVATION_ID, "")))
        if held is not None:
            context.meter.count("CapacityBlocksLeft")
            handle_notice(
                claim.name,
                Notice(NoticeKind.BLOCK_ENDING, (claim.instance_id,), held.instances_end_at),
                settings,
                context,
            )


def _is_in_block(claim: NodeClaim) -> bool:
    return (
        claim.known_instance.capacity_type == labels.RESERVED
        and claim.plan.labels.get(labels.RESERVATION_TYPE) == "capacity-block"
    )


def _reservations(
    settings: ClusterSettings, names: Iterable[str], context: FlowContext
) -> list[tuple[str, CapacityReservation]]:
    """The reservations of these EC2NodeClasses, by name; the next sweep looks at those that cannot be read now."""
    wanted = set(names)
    reservations: list[tuple[str, CapacityReservation]] = []
    compute = context.within(CAPACITY_BLOCKS, context.compute)
    for node_class in settings.manifests.node_classes:
        if node_class.metadata.name in wanted:
            try:
                held = compute.resolve(node_class).capacity_reservations
                reservations += ((node_class.metadata.name, each) for each in held)
            except AwsError as error:
                context.meter.count("CapacityBlocksNotRead")
                _LOG.warning("capacity blocks not read: %s", error, extra={"cluster": settings.name})
    return reservations
