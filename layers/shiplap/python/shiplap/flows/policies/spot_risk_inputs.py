"""Writes down evidence about spot where it arises, by one small write beside the writes that happen anyway.

Evidence is counted at most once: after the conditional write that only one function makes. If the function dies in
between, the evidence is lost, which only makes an estimate less certain. A store that refuses it stops nothing. Without
the port, `spotRisk` is off, and nothing is written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from shiplap.errors import StoreError
from shiplap.flows.context import FlowContext
from shiplap.flows.optional.optional_calls import OptionalPart
from shiplap.flows.optional.policy_port import PolicyPort
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes import labels
from shiplap.manifests.nodeclaim import FINAL, NodeClaim
from shiplap.policies.spot_risk.evidence_store import SpotEvidenceStore
from shiplap.policies.spot_risk.risk_evidence import DAY_S, EvidenceChange, OfferingEvidence, hours_by_part
from shiplap.ports import OfferingFailure

_LOG = logging.getLogger(__name__)

SPOT_EVIDENCE = PolicyPort[SpotEvidenceStore]("spot_evidence", OptionalPart("evidence about spot"))
"""The port to the evidence of the account."""


_COUNTING_S = 3600.0
"""How often a cluster looks for nodes whose day has not been counted yet, in seconds."""

_SWEEPS_S = 120.0
"""For how long after such a moment a sweep still looks: there is one each minute."""


def record_interruption(claim: NodeClaim, context: FlowContext) -> None:
    """Spot takes the instance of a claim back."""
    _add(claim, context, lambda now: _change(claim, now, interruptions=1))


def record_rebalance(claim: NodeClaim, context: FlowContext) -> None:
    """AWS says that spot may soon take the instance of a claim back."""
    _add(claim, context, lambda now: _change(claim, now, rebalances=1))


def record_end(claim: NodeClaim, context: FlowContext) -> None:
    """A node has ended: what it lived today. What it lived before was counted day by day."""

    def lived(now: float) -> EvidenceChange:
        return _change(claim, now, node_hours=hours_by_part(max(claim.created_at, now // DAY_S * DAY_S), now))

    _add(claim, context, lived)


def record_refusals(
    failures: Iterable[OfferingFailure], types: Mapping[str, InstanceType], context: FlowContext
) -> None:
    """EC2 had no spot capacity for these offerings."""
    if context.policy_port(SPOT_EVIDENCE) is None:
        return
    now = context.clock.now()
    refused = {
        (failure.zone, failure.instance_type)
        for failure in failures
        if failure.kind == "capacity" and failure.capacity_type == labels.SPOT
    }
    for zone, name in sorted(refused):
        offerings = types[name].offerings if name in types else ()
        zone_id = next((offering.zone_id for offering in offerings if offering.zone == zone), "")
        if zone_id:
            _write([EvidenceChange(zone_id=zone_id, instance_type=name, at=now, refusals=1)], context)


def count_day(claims: Iterable[NodeClaim], cluster: str, context: FlowContext) -> None:
    """Add the hours that running nodes lived yesterday, once for each cluster, day and offering."""
    now, store = context.clock.now(), context.policy_port(SPOT_EVIDENCE)
    if store is None or now % _COUNTING_S > _SWEEPS_S:
        return
    today = now // DAY_S * DAY_S
    changes: dict[tuple[str, str], list[EvidenceChange]] = {}
    for claim in claims:
        if _is_spot(claim) and claim.state not in FINAL and claim.created_at < today:
            hours = hours_by_part(max(claim.created_at, today - DAY_S), today)
            key = (claim.known_instance.zone_id, claim.known_instance.type)
            changes.setdefault(key, []).append(_change(claim, today, node_hours=hours))
    try:
        counted = store.counted_days(cluster) if changes else {}
    except StoreError as error:
        _report(error, context)
        return
    yesterday = int(today // DAY_S) - 1
    for offering in sorted(changes):
        if counted.get(offering, 0) < yesterday:
            _write(changes[offering], context, cluster, yesterday)


def read_evidence(context: FlowContext) -> tuple[OfferingEvidence, ...]:
    """All evidence of the account; none where it cannot be read: that must not keep pods waiting."""
    store = context.policy_port(SPOT_EVIDENCE)
    if store is None:
        return ()
    try:
        return store.read(context.clock.now())
    except StoreError as error:
        context.meter.count("SpotEvidenceNotRead")
        _LOG.warning("evidence about spot not read, all offerings have the prior risk: %s", error)
        return ()


def _is_spot(claim: NodeClaim) -> bool:
    return claim.known_instance.capacity_type == labels.SPOT and bool(claim.known_instance.zone_id)


def _change(
    claim: NodeClaim, at: float, *, node_hours: tuple[float, ...] = (), interruptions: int = 0, rebalances: int = 0
) -> EvidenceChange:
    return EvidenceChange(
        zone_id=claim.known_instance.zone_id,
        instance_type=claim.known_instance.type,
        at=at,
        node=f"{claim.cluster}/{claim.name}",
        node_hours=node_hours,
        interruptions=interruptions,
        rebalances=rebalances,
    )


def _add(claim: NodeClaim, context: FlowContext, change: Callable[[float], EvidenceChange]) -> None:
    if context.policy_port(SPOT_EVIDENCE) is not None and _is_spot(claim):
        _write([change(context.clock.now())], context)


def _write(changes: Sequence[EvidenceChange], context: FlowContext, cluster: str = "", day: int = 0) -> None:
    store = context.policy_port(SPOT_EVIDENCE)
    if store is None or not any(change.weighted() for change in changes):
        return
    try:
        store.add(changes, cluster, day)
    except StoreError as error:
        _report(error, context)


def _report(error: StoreError, context: FlowContext) -> None:
    context.meter.count("SpotEvidenceNotWritten")
    _LOG.warning("evidence about spot is lost: %s", error)
