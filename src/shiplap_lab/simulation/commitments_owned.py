"""Savings Plans and Reserved Instances of the simulated account: what a seed has of them, and what they pay for."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from random import Random
from typing import NamedTuple

from shiplap.flows.policies.commitments_inputs import listed_prices
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.manifests.shiplap_annotations import MICROS
from shiplap.policies.commitments.account_commitments import AccountCommitments, ReservedInstances, SavingsPlan
from shiplap_lab.scenarios.scenario import Scenario, ScenarioSavingsPlan
from shiplap_lab.virtual_time.supply import REGION, price

_LASTS_S = 30 * 24 * 3600


class OwnedCommitments(NamedTuple):
    """Regional Reserved Instances by type, and Savings Plans."""

    reserved: dict[str, int]
    plans: tuple[ScenarioSavingsPlan, ...]

    def shown(self, at: float, sold: Catalog) -> AccountCommitments:
        """All of them as AWS shows them `at` a moment, epoch seconds, with the rates of what is sold."""
        ends_at, listed = at + _LASTS_S, listed_prices(sold)
        plans = []
        for number, plan in enumerate(self.plans):
            rates = {kind: round(micros * (1 - plan.discount_percent / 100)) for kind, micros in listed.items()}
            plans.append(
                SavingsPlan(f"sp-{number}", round(plan.dollars_per_hour * MICROS), ends_at, plan.family, rates)
            )
        reserved = (
            ReservedInstances(f"ri-{kind}", kind, count, ends_at) for kind, count in sorted(self.reserved.items())
        )
        return AccountCommitments(REGION, at, tuple(plans), tuple(reserved))

    def paid(self, sold: Catalog) -> dict[str, float]:
        """Return what commitments pay, USD per hour at list prices, by family; for any family under an empty name."""
        list_price = partial(price, sold, zone="", capacity_type="on-demand")
        usd: dict[str, float] = defaultdict(float)
        for kind, count in self.reserved.items():
            usd[kind.partition(".")[0]] += count * list_price(kind)
        for plan in self.plans:
            usd[plan.family] += plan.dollars_per_hour / (1 - plan.discount_percent / 100)
        return dict(usd)


def owned_commitments(scenario: Scenario, seed: int) -> OwnedCommitments:
    """Return the scenario's commitments of both kinds; if it has both, the seed draws either or both."""
    reserved, plans = scenario.reserved_instances, scenario.savings_plans
    if not (reserved and plans):
        return OwnedCommitments(reserved, plans)
    chance = Random(f"{seed}:commitments")  # noqa: S311 - repeatable chance
    return OwnedCommitments(*chance.choice(((reserved, plans), (reserved, ()), ({}, plans))))
