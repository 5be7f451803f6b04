"""Savings Plans and Reserved Instances of the simulated account: what a seed has of them, and what they pay for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import NamedTuple, cast

from shiplap.flows.policies.commitments_inputs import listed_prices
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.manifests.shiplap_annotations import MICROS
from shiplap.policies.commitments.account_commitments import AccountCommitments, ReservedInstances, SavingsPlan
from shiplap_lab.judge.dollar_rules import DollarJudge
from shiplap_lab.policies.commitments_fakes import FakeCommitments
from shiplap_lab.policies.policy_plays import AccountPlay
from shiplap_lab.scenarios.scenario import Scenario, ScenarioSavingsPlan

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
        return AccountCommitments(sold.region, at, tuple(plans), tuple(reserved))

    def paid(self, list_price: Callable[[str], float]) -> dict[str, float]:
        """Return what commitments pay, USD per hour at list prices, by family; for any family under an empty name."""
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


def begin(play: AccountPlay, dollars: DollarJudge) -> None:
    """AWS shows the Reserved Instances and Savings Plans of the seed, if any; the judge knows what they pay."""
    owned = owned_commitments(play.scenario, play.seed)
    if not any(owned):
        return
    known = owned.shown(play.now, play.sold)
    for ports in play.ports:
        fake = cast("FakeCommitments", ports["commitments"]["commitments"])
        fake.shown = known
        fake.save(known)
    dollars.commitments = owned.paid(play.list_price)
