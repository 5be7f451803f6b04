"""Keeps claims true to the network their instances are in: subnet and security groups.

A launch knows what it asked for. People move interfaces between security groups later, and drift is judged by what is,
as EC2 tells each sweep anyway.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from shiplap.errors import ConditionFailed
from shiplap.flows.claim_updates import facts
from shiplap.flows.context import FlowContext
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.ports import Instance

_LOG = logging.getLogger(__name__)

MOST_WRITES = 50
"""Claims corrected by one sweep; a change of many instances is no hurry, and pods that wait are planned for later."""

_IN_SERVICE = frozenset({ClaimState.REGISTERED, ClaimState.INITIALIZED})


def correct_network(
    claims: Mapping[str, NodeClaim], instances: Iterable[Instance], context: FlowContext
) -> dict[str, NodeClaim]:
    """Write what instances in service are in to their claims, where those say otherwise; those claims, by name.

    Args:
        claims: all of the cluster, by name.
        instances: what EC2 says there is. One that does not say its subnet says nothing.
        context: state is written.

    Raises:
        StoreError: tried again with the next sweep.
    """
    by_instance = {claim.instance_id: claim for claim in claims.values() if claim.state in _IN_SERVICE}
    written: dict[str, NodeClaim] = {}
    for instance in sorted(instances, key=lambda item: item.id):
        claim = by_instance.get(instance.id)
        if claim is None or not instance.subnet or _agrees(claim, instance):
            continue
        if len(written) == MOST_WRITES:
            break
        try:
            known = replace(claim.known_instance, subnet=instance.subnet, security_groups=instance.security_groups)
            written[claim.name] = context.state.advance(claim, claim.state, instance=known)
        except ConditionFailed as error:  # somebody else is at it; the next sweep looks again
            context.meter.count("ClaimsLost")
            _LOG.info("claim was advanced meanwhile: %s", error, extra=facts(claim))
    if written:
        context.meter.count("ClaimsCorrected", len(written))
    return written


def _agrees(claim: NodeClaim, instance: Instance) -> bool:
    known = claim.known_instance
    return (known.subnet, known.security_groups) == (instance.subnet, instance.security_groups)
