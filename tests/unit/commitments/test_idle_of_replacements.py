"""What a removal does not save, because it only leaves commitments unused: it goes by who is billed as on-demand."""

from __future__ import annotations

import pytest

from shiplap.disruption.disruption_snapshot import PaidNode
from shiplap.kubernetes import labels
from shiplap.policies.commitments.account_commitments import InstanceUse, SavingsPlan
from shiplap.policies.commitments.commitment_input import CommitmentsInUse
from shiplap.policies.commitments.commitment_ledger import CommitmentRoom, ZonalRoom
from shiplap.policies.commitments.commitment_use import UsedCommitments
from shiplap.scheduling.model.scheduling_plan import LaunchChoice

PLAN = SavingsPlan("sp", 60_000, 2e9, rate_ppm=600_000)
PAYS_ONE = CommitmentRoom(savings_plans=(PLAN,))
"""The commitment of one m5.large: its hour costs 60 % of the list price."""
ZONAL = CommitmentRoom(zonal=(ZonalRoom("m5.large", "z1", 1),))
LARGE = InstanceUse("m5.large", "z1", 1)


def in_use(counted: CommitmentRoom, *uses: InstanceUse) -> CommitmentsInUse:
    return CommitmentsInUse(UsedCommitments(counted, uses, {"m5.large": 100_000, "c5.large": 80_000}))


def paid_node(name: str = "m5.large", zone: str = "z1", kind: str = labels.ON_DEMAND, hourly: float = 0.1) -> PaidNode:
    marks = {labels.INSTANCE_TYPE: name, labels.ZONE: zone, labels.CAPACITY_TYPE: kind}
    return PaidNode(marks, hourly)


@pytest.mark.parametrize("counted", [PAYS_ONE, ZONAL])
@pytest.mark.parametrize("name", ["m5.large", "c5.large"])
def test_a_spot_replacement_uses_no_commitment(counted: CommitmentRoom, name: str) -> None:
    """Whatever its type: the removed node's commitment is idle, as if nothing took the node's place."""
    used = in_use(counted, LARGE)
    spot = LaunchChoice(name, "z1", labels.SPOT, 0.03)

    assert used.idle_hourly([paid_node()], [spot]) == used.idle_hourly([paid_node()], []) == pytest.approx(0.1)


def test_an_on_demand_replacement_takes_over_the_commitment() -> None:
    """A c5.large takes 48,000 of the 60,000 micro-dollars: a fifth of the commitment, at list price, is idle."""
    used = in_use(PAYS_ONE, LARGE)
    other = LaunchChoice("c5.large", "z1", labels.ON_DEMAND, 0.08)

    assert used.idle_hourly([paid_node()], [other]) == pytest.approx(0.02)
    assert used.idle_hourly([paid_node()], [LaunchChoice("m5.large", "z2", labels.ON_DEMAND, 0.1)]) == 0.0


def test_in_another_zone_a_zonal_reserved_instance_is_idle() -> None:
    used = in_use(ZONAL, LARGE)

    assert used.idle_hourly([paid_node()], [LaunchChoice("m5.large", "z2", labels.ON_DEMAND, 0.1)]) == pytest.approx(
        0.1
    )
    assert used.idle_hourly([paid_node()], [LaunchChoice("m5.large", "z1", labels.ON_DEMAND, 0.1)]) == 0.0


def test_the_removal_of_a_spot_node_leaves_nothing_idle() -> None:
    used = in_use(PAYS_ONE, LARGE)

    assert used.idle_hourly([paid_node(kind=labels.SPOT, hourly=0.03)], []) == 0.0
    assert used.idle_hourly([paid_node(), paid_node(kind=labels.SPOT, hourly=0.03)], []) == pytest.approx(0.1)
