"""Finishes what an invocation that died has begun.

A claim that is Planned or Launching belongs to the invocation that wrote it until its lease is over. After that anybody
resumes it, together with the others of its token: their instances are looked for by tag, and only then launched, with
the token they always had.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from shiplap.errors import ConditionFailed
from shiplap.flows.assign_instances import Attempt, assign_instances, fail_claims
from shiplap.flows.claim_updates import GRACE_S, facts
from shiplap.flows.context import FlowContext
from shiplap.flows.planning.decision_inputs import NodeClassSupply
from shiplap.flows.planning.offering_market import OfferingMarket
from shiplap.flows.schedule.launch import LaunchOutcome, launch
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim

_LOG = logging.getLogger(__name__)

LAUNCH_TIMEOUT_S = 300.0
"""How long a claim may take to get an instance, in seconds; upstream's launch timeout."""

FROZEN = "launches are frozen"
"""Why nothing is launched after `shiplap install uninstall`, until the install has ended or `--cancel` is given."""

_ALIVE = ("pending", "running")
_WAITING = (ClaimState.PLANNED, ClaimState.LAUNCHING)


def orphans(claims: Iterable[NodeClaim], owner: str, now: float) -> list[tuple[NodeClaim, ...]]:
    """Planned and Launching claims that are this owner's, or whose owner cannot be alive any more, by launch."""
    launches: dict[str, list[NodeClaim]] = {}
    for claim in sorted(claims, key=lambda claim: claim.name):
        if claim.state in _WAITING:
            launches.setdefault(claim.launch.token or claim.name, []).append(claim)
    return [
        tuple(members)
        for members in launches.values()
        if all((claim.launch.owner == owner or claim.deadline_at <= now) and not claim.newer for claim in members)
    ]


def resume(
    claims: Sequence[NodeClaim],
    supply: NodeClassSupply | None,
    types: Mapping[str, InstanceType],
    attempt: Attempt,
    market: OfferingMarket,
    context: FlowContext,
) -> LaunchOutcome:
    """Bring orphans of one launch to their end: adopt the instances there are, launch the others.

    Raises:
        StoreError: the state cannot be read or written.
        AwsError: instances cannot be described.
    """
    context.meter.count("ClaimsResumed", len(claims))
    try:
        # A launch moves all its claims at once: while one is Planned, nothing was ever asked of EC2 for any.
        if claims[0].state is ClaimState.PLANNED:
            return _launch(claims, supply, types, attempt, market, context, held=())
        return _resume(claims, supply, types, attempt, market, context)
    except ConditionFailed as error:
        _LOG.info("claims were taken over: %s", error, extra=facts(claims[0]))
        return LaunchOutcome()


def _resume(
    claims: Sequence[NodeClaim],
    supply: NodeClassSupply | None,
    types: Mapping[str, InstanceType],
    attempt: Attempt,
    market: OfferingMarket,
    context: FlowContext,
) -> LaunchOutcome:
    cluster, token = claims[0].cluster, claims[0].launch.token
    instances = context.compute.launched(cluster, token)
    # After describing: a claim that has an instance by now must not have it given to another.
    known = [claim for claim in context.state.claims(cluster) if claim.launch.token == token]
    _check_unchanged(claims, known)
    held = {claim.instance_id for claim in known if claim.instance_id}
    free = [instance for instance in instances if instance.id not in held]
    alive = [instance for instance in free if instance.state in _ALIVE]
    launched: tuple[NodeClaim, ...] = ()
    if alive:
        launched, claims = assign_instances(claims, alive, types, attempt, context)
        held |= {claim.instance_id for claim in launched}
    if not claims:
        return LaunchOutcome(launched=launched)
    ending = [instance for instance in free if instance.state not in _ALIVE]
    if len(ending) >= len(claims):
        reason = f"its instance {ending[0].id} is {ending[0].state}"
        return LaunchOutcome(launched=launched, failed=fail_claims(claims, reason, types, context))
    if answered_at := claims[0].launch.answered_at:
        if context.clock.now() < answered_at + GRACE_S:
            return LaunchOutcome(launched=launched, pending=tuple(claims))
        reason = f"an earlier answer to its launch gave it no instance that was to be seen for {GRACE_S:g} s"
        return LaunchOutcome(launched=launched, failed=fail_claims(claims, reason, types, context))
    outcome = _launch(claims, supply, types, attempt, market, context, held=held)
    return msgspec.structs.replace(outcome, launched=(*launched, *outcome.launched))


def _check_unchanged(claims: Sequence[NodeClaim], known: Sequence[NodeClaim]) -> None:
    versions = {claim.name: claim.version for claim in known}
    changed = [claim.name for claim in claims if versions.get(claim.name) != claim.version]
    if changed:
        raise ConditionFailed(f"claim {changed[0]} has been changed meanwhile")


def _launch(
    claims: Sequence[NodeClaim],
    supply: NodeClassSupply | None,
    types: Mapping[str, InstanceType],
    attempt: Attempt,
    market: OfferingMarket,
    context: FlowContext,
    *,
    held: Collection[str],
) -> LaunchOutcome:
    """Launch, unless it is too late for that, or launches are frozen."""
    now = context.clock.now()
    overdue = now > claims[0].created_at + LAUNCH_TIMEOUT_S
    tried = any(claim.state is ClaimState.LAUNCHING and now < claim.changed_at + GRACE_S for claim in claims)
    if (overdue or attempt.frozen) and tried:
        return LaunchOutcome(pending=tuple(claims))  # the last attempt's instances may not be described yet
    if attempt.frozen:
        return LaunchOutcome(failed=fail_claims(claims, FROZEN, types, context))
    if overdue or supply is None:
        reason = f"not launched within {LAUNCH_TIMEOUT_S:g} s" if overdue else "its node class is gone"
        return LaunchOutcome(failed=fail_claims(claims, reason, types, context))
    return launch(claims, supply, types, attempt, market, context, held=held)
