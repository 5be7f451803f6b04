"""Posts a cluster's ledger once an hour, and keeps the account's counters true.

Each write holds only if nobody wrote since it was read, and none of them has to happen: the next sweep finds what this
one left undone, however much later.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from shiplap.flows.context import FlowContext, TypesFor
from shiplap.flows.policies.ceilings_inputs import ceilings_in_use
from shiplap.flows.policies.policy import SweptFacts
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.instances.offerings.instance_rates import Rate, micros_of, rate_of
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.quantity import CPU, MEMORY
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.policies.ceilings.ceiling_use import ClusterSpending, recount
from shiplap.policies.ceilings.ceilings import dollars
from shiplap.policies.ceilings.ceilings_settings import CeilingSettings
from shiplap.ports import DecisionState
from shiplap.settings import ClusterSettings
from shiplap.spending.ledger import HOUR_S, SpendingLedger, begin, is_due, posted

_LOG = logging.getLogger(__name__)

MOST_CLOSED = 200
"""Ended claims that one sweep closes: each is a request."""


def keep_ledger(
    settings: ClusterSettings, facts: SweptFacts, spending: ClusterSpending | None, context: FlowContext
) -> None:
    """Post the full hours that are over, close claims that ended in them, and correct the account's counters.

    Raises StoreError: what is left is done by a later sweep.
    """
    now, state = context.clock.now(), facts.state
    claims = context.state.ledger_claims(settings.name)
    ledger = state.ledger
    if ledger is None or is_due(ledger, now):
        ledger = _post(settings, ledger, claims, now, facts, context)
    if ledger is not None:
        _close(claims, ledger, context)
    if spending is None:
        return
    _measure(settings, state, spending, context)
    wanted = settings.policy(CeilingSettings)
    if wanted is not None and wanted.of_account:
        change = recount(state.counted, spending, now)
        if change is not None:
            context.state.count_spending(settings.name, change)


def _post(
    settings: ClusterSettings,
    known: SpendingLedger | None,
    claims: Sequence[NodeClaim],
    now: float,
    facts: SweptFacts,
    context: FlowContext,
) -> SpendingLedger | None:
    """The ledger as it is stored then: as it was read if another sweep wrote it meanwhile.

    `now` is before the claims were read. An hour that ended since would be posted without the last claims of it.
    """
    shares = _SharesOfNamespaces(facts.view.by_node)
    before = known or begin(now)
    after = posted(before, claims, now, lambda claim: _rate(claim, facts.types_for), shares.of)
    if not context.state.post_ledger(settings.name, after):
        _LOG.info("ledger was posted by another sweep", extra={"cluster": settings.name})
        return known  # where there was none, the other one may begin an hour earlier
    _LOG.info("ledger posted", extra=_facts(settings.name, before, after))
    return after


def _facts(cluster: str, before: SpendingLedger, after: SpendingLedger) -> dict[str, str | int]:
    """Return the log fields of a posting."""
    hours = (after.posted_until - before.posted_until) // HOUR_S
    return {"cluster": cluster, "hours": hours, "spent_micros": sum(after.hours[-hours:]) if hours else 0}


def _rate(claim: NodeClaim, types_for: TypesFor | None) -> Rate:
    """Return the present rate of a claim's instance.

    Spot is at its price of today, an instance without a price at an estimate.
    """
    is_spot = claim.known_instance.capacity_type == labels.SPOT
    if types_for is None or (claim.hourly > 0 and not is_spot):
        return rate_of(claim, claim.most_hourly)
    known = types_for(claim).get(claim.known_instance.type)
    price = _price(known, claim.known_instance.zone, claim.known_instance.capacity_type)
    if is_spot and price > 0:
        return Rate(micros_of(price))
    return rate_of(claim, price or _price(known, "", labels.ON_DEMAND) or claim.most_hourly)


def _price(instance_type: InstanceType | None, zone: str, capacity_type: str) -> float:
    """USD per hour of an offering, available or not, in the dearest zone if none is given; 0 if it is not known."""
    offerings = instance_type.offerings if instance_type is not None else ()
    prices = [
        offering.price
        for offering in offerings
        if offering.capacity_type == capacity_type and (not zone or offering.zone == zone)
    ]
    return max(prices, default=0.0)


class _SharesOfNamespaces:
    """The part of each node that pods of a namespace request. One vCPU counts as much as 4 GiB."""

    def __init__(self, by_node: Mapping[str, Sequence[Pod]]) -> None:
        self._by_node = by_node

    def of(self, claim: NodeClaim) -> dict[str, float]:
        """By namespace; at most 1 together."""
        whole = _units(claim.plan.allocatable)
        if whole <= 0:
            return {}
        asked: dict[str, float] = {}
        for pod in self._by_node.get(claim.node_name, ()):
            namespace = pod.metadata.namespace or "default"
            asked[namespace] = asked.get(namespace, 0.0) + _units(pod_requests(pod))
        most = max(sum(asked.values()), whole)
        return {namespace: amount / most for namespace, amount in sorted(asked.items())}


def _units(amounts: Mapping[str, int]) -> float:
    return amounts.get(CPU, 0) / 1000 + amounts.get(MEMORY, 0) / 4 / 1024**3


def _close(claims: Iterable[NodeClaim], ledger: SpendingLedger, context: FlowContext) -> None:
    ended = [claim for claim in claims if claim.state is ClaimState.GONE and claim.changed_at <= ledger.posted_until]
    if ended:
        context.state.close_claims(ended[:MOST_CLOSED])


def _measure(settings: ClusterSettings, state: DecisionState, spending: ClusterSpending, context: FlowContext) -> None:
    """Measure what is used of each ceiling; count and log those that are reached."""
    for ceiling in ceilings_in_use(settings, state, spending):
        context.meter.count("CeilingUse", round(100 * ceiling.share, 2), "Percent")
        if ceiling.is_reached:
            context.meter.count("CeilingsReached")
            about = {"cluster": settings.name, "mode": str(ceiling.mode)}
            _LOG.warning("ceiling reached: %s, %s in use", ceiling.title, dollars(ceiling.used), extra=about)
