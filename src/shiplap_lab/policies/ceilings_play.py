"""Ceilings in simulations: the settings of a scenario, and planted defects."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from shiplap.flows.policies import ceilings_inputs, ceilings_ledger
from shiplap.policies.ceilings import ceiling_input
from shiplap.policies.ceilings.ceiling_use import cluster_spending, spending_view
from shiplap.policies.ceilings.ceilings import CeilingUse, SpendingView
from shiplap.policies.ceilings.ceilings_settings import CeilingSettings
from shiplap.policies.ceilings.launch_costs import LaunchCosts
from shiplap.policies.policy_settings import PolicySettings
from shiplap.spending.account_counters import AccountSpending, CountedSpending
from shiplap.spending.ledger import SpendingLedger, posted
from shiplap_lab.policies.ceilings_scenario import ceilings_of
from shiplap_lab.scenarios.scenario import Scenario

Patches = list[tuple[Any, str, Any]]


def settings(scenario: Scenario) -> PolicySettings | None:
    """Return the ceilings of the only cluster of a scenario and of the account; None without any."""
    (cluster,) = scenario.clusters
    found = CeilingSettings(ceilings_of(cluster.ceilings), ceilings_of(scenario.ceilings))
    return found if found.is_on else None


def _passes_ceilings() -> Patches:
    """Every planned launch happens, whatever the ceilings are."""
    return [(ceiling_input, "within_ceilings", lambda snapshot, view, decided, again: decided)]  # noqa: ARG005


def _reserves_nothing() -> Patches:
    """Running nodes reserve nothing for the rest of the month."""
    return [(ceilings_inputs, "cluster_spending", lambda *given: replace(cluster_spending(*given), reserved={}))]


def _loses_the_ledger() -> Patches:
    """Each posting is written with the month's sums as they were before."""

    def act(ledger: SpendingLedger, *given: Any) -> SpendingLedger:
        return replace(posted(ledger, *given), this_month=ledger.this_month)

    return [(ceilings_ledger, "posted", act)]


def _keeps_nothing_for_recovery() -> Patches:
    """Any launch may use the whole of a ceiling."""
    return [(CeilingUse, "line", property(lambda ceiling: ceiling.limit))]


def _takes_any_for_the_cheapest() -> Patches:
    """Above a ceiling of mode cheapest, whatever is planned counts as the cheapest offering."""
    return [(LaunchCosts, "_cheaper", lambda *_: "")]


def _spends_alone() -> Patches:
    """A cluster takes its account for its own."""

    def act(ceilings: Any, of_account: Any, cluster: str, spending: Any, *_: Any) -> SpendingView:
        return spending_view(ceilings, of_account, cluster, spending, CountedSpending(), AccountSpending())

    return [(ceilings_inputs, "spending_view", act), (AccountSpending, "allows", lambda *_: True)]


MUTANTS = {
    "passes ceilings": (_passes_ceilings, ("ceilings",)),
    "reserves nothing": (_reserves_nothing, ("ceilings-monthly",)),
    "loses the ledger": (_loses_the_ledger, ("ceilings-monthly",)),
    "keeps nothing for recovery": (_keeps_nothing_for_recovery, ("ceilings-monthly",)),
    "takes any for the cheapest": (_takes_any_for_the_cheapest, ("ceilings-monthly",)),
    "spends alone": (_spends_alone, ("ceilings-monthly",)),
}
"""Planted defects by name: the patches, and the scenarios that find them."""
