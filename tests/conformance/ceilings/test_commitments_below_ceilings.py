"""Plans on commitments below a ceiling in dollars, which has the planner look for smaller nodes."""

from __future__ import annotations

from shiplap.manifests.shiplap_annotations import MICROS
from shiplap.policies.ceilings.ceiling_input import CeilingInput
from shiplap.policies.ceilings.ceilings import HOURLY_PERIOD, CeilingMode, CeilingScope, CeilingUse, SpendingView
from shiplap.policies.commitments.account_commitments import SavingsPlan
from shiplap.policies.commitments.commitment_input import CommitmentInput
from shiplap.policies.commitments.commitment_ledger import CommitmentRoom
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.planner import plan
from tests.builders.pods import pods
from tests.conformance.catalogues import Z1, fake_type
from tests.conformance.given import snapshot_of

TYPES = tuple(
    fake_type(name, price=price, cpu=cpu, memory="16Gi", offerings=(("on-demand", Z1),))
    for name, price, cpu in (("small", 1.0, "4"), ("big", 3.0, "16"))
)
"""Four pods of 3 CPUs are cheaper on one big node than on four small ones."""


def decided(number: int, *, below: float, plan_dollars: float) -> Plan:
    """Plan equal pods below a ceiling and with a Savings Plan, both in dollars an hour."""
    use = CeilingUse(
        CeilingScope.CLUSTER, HOURLY_PERIOD, int(below * MICROS), 0, "test", CeilingMode.STOP, recovery_percent=0
    )
    ceiling = CeilingInput(SpendingView((use,)))
    held = SavingsPlan("plan", int(plan_dollars * MICROS), 2e9, rate_ppm=MICROS // 2)
    room = CommitmentInput(CommitmentRoom(savings_plans=(held,)))
    return plan(snapshot_of(pods(number, cpu="3"), types=TYPES, policies=(ceiling, room)))


def test_smaller_nodes_count_on_what_others_leave_of_commitments() -> None:
    made = decided(4, below=2.5, plan_dollars=0.5)
    assert [claim.launch.instance_type for claim in made.node_claims] == ["small"] * 2
    assert sum(claim.covered or 0.0 for claim in made.node_claims) == 1.0


def test_smaller_nodes_beside_admitted_ones_count_on_what_these_leave_of_commitments() -> None:
    """The admitted nodes use up all of it, so that none of the smaller ones is paid for by it once more."""
    made = decided(12, below=8.5, plan_dollars=1.5)
    assert {claim.launch.instance_type for claim in made.node_claims} == {"small", "big"}
    assert sum(claim.covered or 0.0 for claim in made.node_claims) <= 3.0
