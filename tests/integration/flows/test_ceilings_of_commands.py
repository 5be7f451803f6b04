"""Ceilings in disruption: what a decision knows of them, and the most that replacements may cost."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shiplap.flows.policies.ceilings_policy import CeilingPolicy
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.policies.ceilings.ceiling_input import CeilingInput
from shiplap.policies.ceilings.ceilings import Ceiling, CeilingMode, SpendingView
from shiplap.policies.ceilings.ceilings_settings import CeilingSettings
from shiplap.policies.policy_settings import chosen
from shiplap.settings import ClusterSettings
from tests.integration.flows.disrupted import Disrupted, decided_on, oversized


def below(stage: Disrupted, *ceilings: Ceiling) -> ClusterSettings:
    return replace(stage.settings, policies=chosen(CeilingSettings(ceilings)))


@pytest.mark.parametrize(("mode", "knows"), [(CeilingMode.STOP, True), (CeilingMode.CHEAPEST, False)])
def test_dollars_are_given_to_a_decision_only_if_they_may_refuse_its_replacements(
    mode: CeilingMode, knows: bool
) -> None:
    stage = oversized()
    stage.settings = below(stage, Ceiling(hourly=5.0, mode=mode))
    assert (decided_on(stage).scheduling.policy(CeilingInput) is not None) == knows
    stage.disrupt()
    stage.clock.advance(60)
    assert len(stage.disrupt().begun) == 1
    new = next(claim for claim in stage.claims() if claim.state is ClaimState.PLANNED)
    assert new.most_hourly >= new.hourly


@pytest.mark.parametrize(
    ("modes", "looks"),
    [
        ((), False),
        ((CeilingMode.STOP,), True),
        ((CeilingMode.CHEAPEST,), False),
        ((CeilingMode.CHEAPEST, CeilingMode.STOP), True),
    ],
)
def test_disruption_looks_at_dollars_only_where_a_ceiling_may_refuse_replacements(
    modes: tuple[CeilingMode, ...], looks: bool
) -> None:
    stage = oversized()
    stage.settings = below(stage, *(Ceiling(hourly=1.0, mode=mode) for mode in modes))
    known = CeilingInput(SpendingView())
    policy = CeilingPolicy(stage.settings, stage.context)
    assert policy.disruption_policies((known,)) == ((known,) if looks else ())
