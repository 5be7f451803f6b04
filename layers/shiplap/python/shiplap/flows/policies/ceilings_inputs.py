"""Reads a cluster's dollars for decisions, and counts their launches for the account, where there are ceilings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.manifests.shiplap_annotations import MICROS, price_rules
from shiplap.policies.ceilings.ceiling_use import (
    ClusterSpending,
    change_of_account,
    cluster_spending,
    hourly_ceilings,
    spending_view,
)
from shiplap.policies.ceilings.ceilings import CeilingUse, SpendingView, WantedLaunch, admit
from shiplap.policies.ceilings.ceilings_settings import NO_CEILINGS, CeilingSettings
from shiplap.ports import DecisionState, StateStore
from shiplap.settings import ClusterSettings
from shiplap.spending.account_counters import CountChange


def read_spending(settings: ClusterSettings, state: DecisionState, store: StateStore, now: float) -> ClusterSpending:
    """Return the spending of the cluster, with the ledger of a state that was read before. Raises StoreError."""
    return cluster_spending(store.ledger_claims(settings.name), state.ledger, now)


def view_of_spending(settings: ClusterSettings, state: DecisionState, spending: ClusterSpending) -> SpendingView:
    """Return the view of spending that goes into the snapshot of a decision."""
    wanted = settings.policy(CeilingSettings) or NO_CEILINGS
    return spending_view(
        wanted.of_cluster,
        wanted.of_account,
        settings.name,
        spending,
        state.counted,
        state.account_spending,
    )


def ceilings_in_use(settings: ClusterSettings, state: DecisionState, spending: ClusterSpending) -> list[CeilingUse]:
    """All ceilings, for reports: those of shiplap.yaml, then the hourly ones of NodePools, as far as these are known.

    A NodePool that may cost nothing is closed, rather than at its ceiling.
    """
    limits = {pool.metadata.name: price_rules(pool).max_hourly_micros for pool in settings.manifests.node_pools}
    bounded = {pool: limit for pool, limit in limits.items() if limit}
    return [*view_of_spending(settings, state, spending).ceilings, *hourly_ceilings(bounded, spending)]


def with_most_prices(records: Iterable[NodeClaim], launches: Iterable[WantedLaunch]) -> list[NodeClaim]:
    """The claims with the most that each may cost, which bounds what it is launched as."""
    most = {launch.name: max(launch.prices.values(), default=0) / MICROS for launch in launches}
    return [replace(claim, most_hourly=most.get(claim.name, 0.0)) for claim in records]


def counted_with(
    state: DecisionState, spending: ClusterSpending, view: SpendingView, launches: Sequence[WantedLaunch], now: float
) -> CountChange:
    """Return the change to write with the claims of these launches, all of which are admitted."""
    verdicts = admit(view, launches)
    pools = {launch.name: launch.node_pool for launch in launches}
    launched: dict[str, int] = {}
    for admitted in verdicts.admitted:
        launched[pools[admitted.name]] = launched.get(pools[admitted.name], 0) + admitted.most_micros
    return change_of_account(state.counted, spending, view, launched, verdicts.slack, state.account_spending, now)
