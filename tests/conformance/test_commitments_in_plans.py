"""Plans that use Savings Plans and Reserved Instances: what they change, and where they end."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shiplap.kubernetes import labels
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.shiplap_annotations import MICROS
from shiplap.policies.commitments import commitment_passes
from shiplap.policies.commitments.account_commitments import InstanceUse, SavingsPlan, merged
from shiplap.policies.commitments.commitment_input import CommitmentsInUse
from shiplap.policies.commitments.commitment_ledger import CommitmentLedger, CommitmentRoom, RegionalRoom, ZonalRoom
from shiplap.policies.commitments.commitment_use import UsedCommitments
from shiplap.records.scheduling_record import SchedulingRecord, decode, encode
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.planner import plan
from tests.builders.pods import pod, pods
from tests.builders.pods import pod_on as running
from tests.builders.pools import pool, rule
from tests.builders.pools import pool as quick_pool
from tests.conformance.catalogues import Z1, Z2, fake_type
from tests.conformance.commitments_savings import TYPES, savings, snapshot_of, typed
from tests.conformance.disruptions import disrupted, large, small
from tests.conformance.given import NOW
from tests.conformance.priced_pools import priced
from tests.conformance.sold_reservations import APART
from tests.thoroughness import draws

WINDOWS = "windows"


def decided(
    *waiting: Any, room: CommitmentRoom | None, pools: tuple[NodePool, ...] = (), types: Any = TYPES, **fields: Any
) -> Plan:
    snapshot = snapshot_of(*waiting, room=room, pools=pools, types=types, **fields)
    return plan(snapshot)


def launched(made: Plan) -> list[str]:
    return sorted(f"{claim.launch.instance_type} {claim.launch.capacity_type}" for claim in made.node_claims)


def test_without_room_the_plan_is_as_ever_to_the_byte() -> None:
    waiting = pods(9, cpu="1")
    without = decided(*waiting, room=None)
    assert msgspec.json.encode(decided(*waiting, room=CommitmentRoom())) == msgspec.json.encode(without)
    assert b"covered" not in msgspec.json.encode(without)


@pytest.mark.parametrize("units", [4, 16])
def test_no_pod_loses_its_place_to_a_family_that_is_paid_for(units: int) -> None:
    """Nodes of that family take twice as much of the limit; it is paid for one of them, or for all."""
    types = [
        fake_type(name, price=1.0, cpu="4", memory=memory) for name, memory in (("c.large", "8Gi"), ("m.large", "16Gi"))
    ]
    room = CommitmentRoom(regional=(RegionalRoom("m", units),))
    for limit, families in (("64Gi", "m"), ("32Gi", "c")):
        limited = (quick_pool(limits={"memory": limit}, capacity_types=("on-demand",)),)
        made = decided(*pods(4, cpu="3"), room=room, pools=limited, types=types)
        assert made.unschedulable == ()
        assert families in {claim.launch.instance_type[0] for claim in made.node_claims}


def test_a_family_that_is_paid_for_is_taken_before_one_that_is_cheaper() -> None:
    assert launched(decided(pod(cpu="3"), room=None)) == ["c.large spot"]
    made = decided(pod(cpu="3"), room=CommitmentRoom(regional=(RegionalRoom("m", 16),)))
    (claim,) = made.node_claims
    assert launched(made) == ["m.large on-demand"]
    assert claim.covered == 1.0
    assert claim.launch.price == made.hourly == 1.0, "what is recorded is the list price"
    assert claim.reasons[-1] == "commitments pay $1.0000 of $1.0000 an hour"


def test_a_claim_on_commitments_may_become_nothing_else() -> None:
    made = decided(pod(cpu="3"), room=CommitmentRoom(regional=(RegionalRoom("m", 16),)))
    (claim,) = made.node_claims
    wanted = {line.key: line.values for line in claim.requirements}
    assert wanted[labels.CAPACITY_TYPE] == ("on-demand",)
    assert wanted[labels.INSTANCE_TYPE] == claim.instance_types == ("m.large",)
    assert claim.labels[labels.CAPACITY_TYPE] == "on-demand"


def test_a_plan_of_any_family_leaves_the_types_that_take_about_as_little_of_it() -> None:
    (claim,) = decided(pod(cpu="3"), room=savings(10)).node_claims
    assert claim.instance_types == ("c.large",), "m.large takes 11 % more"
    near = (*TYPES, typed("d.large", 0.95))
    assert decided(pod(cpu="3"), room=savings(10), types=near).node_claims[0].instance_types == ("c.large", "d.large")


def test_zonal_reserved_instances_pin_the_zone() -> None:
    room = CommitmentRoom(zonal=(ZonalRoom("m.large", Z2, 1),))
    (claim,) = decided(pod(cpu="3"), room=room).node_claims
    assert (claim.launch.instance_type, claim.launch.zone) == ("m.large", Z2)
    assert {line.key: line.values for line in claim.requirements}[labels.ZONE] == (Z2,)


def test_no_more_nodes_are_planned_on_commitments_than_these_pay_for() -> None:
    made = decided(*pods(5, cpu="3", **APART), room=CommitmentRoom(regional=(RegionalRoom("m", 32),)))
    assert launched(made) == ["c.large spot"] * 3 + ["m.large on-demand"] * 2
    assert [claim.covered for claim in made.node_claims if claim.covered is not msgspec.UNSET] == [1.0, 1.0]
    assert not made.existing_nodes
    assert {pod.name for claim in made.node_claims for pod in claim.pods} == {f"pod-{number}" for number in range(5)}


def test_what_runs_on_demand_anyway_is_paid_for_without_another_plan() -> None:
    pools = (pool("default", rule(labels.CAPACITY_TYPE, "In", "on-demand"), limits={}),)
    made = decided(*pods(4, cpu="3", **APART), room=savings(0.63 * 3), pools=pools)
    assert launched(made) == ["c.large on-demand"] * 4
    assert sum(claim.covered for claim in made.node_claims if claim.covered is not msgspec.UNSET) == pytest.approx(2.7)


def test_pods_that_spot_is_no_choice_for_get_the_commitments() -> None:
    pools = (
        pool("steady", rule(labels.CAPACITY_TYPE, "In", "on-demand"), limits={}, taints=[STEADY]),
        pool("any", limits={}),
    )
    steady = pods(3, "steady", cpu="3", **APART, tolerations=[TOLERATES], selector={labels.NODE_POOL: "steady"})
    made = decided(*steady, *pods(3, "any", cpu="3", **APART), room=savings(0.63 * 3), pools=pools)
    assert launched(made) == ["c.large on-demand"] * 3 + ["c.large spot"] * 3
    on_demand = [claim for claim in made.node_claims if claim.launch.capacity_type == "on-demand"]
    assert {claim.node_pool for claim in on_demand} == {"steady"}


STEADY = {"key": "steady", "value": "true", "effect": "NoSchedule"}
TOLERATES = {"key": "steady", "operator": "Exists"}


def test_commitments_for_linux_do_not_count_for_windows() -> None:
    types = [typed("m.large", 1.0, os=(WINDOWS,))]
    made = decided(pod(cpu="3"), room=savings(10), types=types)
    assert launched(made) == ["m.large spot"]


def test_a_limit_in_dollars_is_charged_with_list_prices() -> None:
    made = decided(*pods(3, cpu="3", **APART), room=savings(10), pools=(priced(max_hourly_price="2"),))
    assert len(made.node_claims) == 2
    assert len(made.unschedulable) == 1


def test_a_recorded_plan_on_commitments_replays() -> None:
    snapshot = snapshot_of(*pods(5, cpu="3", **APART), room=savings(2.0))
    record = decode(encode(SchedulingRecord(snapshot, plan(snapshot))))
    assert record.snapshot == snapshot
    assert plan(record.snapshot) == record.plan


_SIZES = st.lists(st.tuples(st.sampled_from(("0.5", "1", "2", "3")), st.booleans()), min_size=1, max_size=12)
"""Pods, and whether each runs on demand only: those are paid for by what is left of commitments, also in list plans."""


@settings(max_examples=draws(25))
@given(_SIZES, st.floats(0.05, 6), st.sampled_from(("", "m", "c")), st.integers(0, 64))
def test_every_pod_has_one_place_and_nothing_is_covered_twice(
    sizes: list[tuple[str, bool]], dollars: float, family: str, quarters: int
) -> None:
    room = msgspec.structs.replace(
        savings(dollars, family), regional=(RegionalRoom("m", quarters),) if quarters else ()
    )
    steady = {"selector": {labels.NODE_POOL: "a-steady"}}
    waiting = [pod(f"pod-{place}", cpu=size, **(steady if on else {})) for place, (size, on) in enumerate(sizes)]
    pools = (pool("a-steady", capacity_types=("on-demand",), limits={}), pool("default", limits={}, weight=10))
    made, plain = (decided(*waiting, room=known, pools=pools) for known in (room, None))
    assert sorted(each.name for claim in made.node_claims for each in claim.pods) == sorted(
        each.metadata.name for each in waiting
    )
    assert _bill(made, room) <= _bill(plain, room) + 1e-6
    covered = sum(claim.covered for claim in made.node_claims if claim.covered is not msgspec.UNSET)
    assert covered <= dollars / 0.7 + quarters / 16 + 1e-6


def _bill(made: Plan, room: CommitmentRoom) -> float:
    uses = [
        InstanceUse(claim.launch.instance_type, claim.launch.zone, 1)
        for claim in made.node_claims
        if claim.launch.capacity_type == "on-demand"
    ]
    listed = {kind.name: round(kind.offerings[0].price * MICROS) for kind in TYPES}
    spot = sum(claim.launch.price for claim in made.node_claims if claim.launch.capacity_type == "spot")
    return spot + CommitmentLedger(room).settle(merged(uses), listed) / MICROS


SPOT_IS_CHEAP = [
    typed("small", 1.0, offerings=(("on-demand", Z1),)),
    typed("large", 4.0, "16", offerings=(("on-demand", Z1),)),
    typed("cheap", 0.3, offerings=(("spot", Z1),)),
]


def used(units: int, **running_types: int) -> UsedCommitments:
    """Units of one type or family that are counted on, and what all clusters run."""
    room = CommitmentRoom(regional=(RegionalRoom("large", units),) if units else ())
    uses = tuple(InstanceUse(name, Z1, count) for name, count in sorted(running_types.items()))
    return UsedCommitments(room, uses, {"small": MICROS, "large": 4 * MICROS})


@pytest.mark.parametrize(("units", "running_now", "replaced"), [(0, 1, True), (1, 1, False), (1, 2, True)])
def test_a_covered_node_is_not_replaced_by_one_that_is_to_be_paid_beside_an_idle_commitment(
    units: int, running_now: int, *, replaced: bool
) -> None:
    """The types of these cases have no sizes: a unit is an instance."""
    verdict = disrupted(
        large("a"),
        pods=[running("one", "a", cpu="2")],
        pools=[quick_pool()],
        types=SPOT_IS_CHEAP,
        in_use=(CommitmentsInUse(used(units, large=running_now)),),
    )
    assert verdict.removed == ({"a"} if replaced else set())
    if not replaced:
        assert "would save" in verdict.blocked("a")


def test_an_empty_node_goes_although_commitments_pay_for_it() -> None:
    verdict = disrupted(
        large("a"), pools=[quick_pool()], types=SPOT_IS_CHEAP, in_use=(CommitmentsInUse(used(1, large=1)),)
    )
    assert verdict.removed == {"a"}


def test_pods_move_off_a_node_that_is_paid_for_rather_than_off_a_covered_one() -> None:
    verdict = disrupted(
        large("covered"),
        small("paid"),
        pods=[running("one", "covered", cpu="1"), running("two", "paid", cpu="1")],
        pools=[quick_pool()],
        types=SPOT_IS_CHEAP,
        in_use=(CommitmentsInUse(used(1, large=1, small=1)),),
    )
    assert verdict.removed == {"paid"}


NEVER_SPOT = pool(
    "steady", rule(labels.CAPACITY_TYPE, "In", "on-demand"), taints=[{"key": "steady", "effect": "NoSchedule"}]
)


def paid(made: Plan) -> float:
    """Return the amount that a plan adds to the bill, USD per hour."""
    return sum(
        claim.launch.price - (claim.covered if claim.covered is not msgspec.UNSET else 0.0)
        for claim in made.node_claims
    )


def decided_for_two_pools(steady: int, other: int, room: CommitmentRoom) -> Plan:
    """Pods that may not be on spot, and others; each has a node of its own or half of one."""
    tolerated = {"tolerations": [{"key": "steady", "operator": "Exists"}], "selector": {labels.NODE_POOL: "steady"}}
    waiting = [pod(f"steady-{number}", cpu="3", **tolerated) for number in range(steady)]
    waiting += [pod(f"other-{number}", cpu="3") for number in range(other)]
    return decided(*waiting, room=room, pools=(pool("any", limits={}), NEVER_SPOT))


def test_commitments_that_cover_all_nodes_together_cover_all() -> None:
    """Weighed one by one, what the family's plan could pay for takes of the other one, and $1.27 is left to pay."""
    plans = (
        SavingsPlan("own", 4 * MICROS, NOW * 2, "m", rate_ppm=600_000),
        SavingsPlan("sp", MICROS, NOW * 2, rate_ppm=700_000),
    )
    made = decided_for_two_pools(4, 5, CommitmentRoom(regional=(RegionalRoom("c", 16),), savings_plans=plans))
    assert paid(made) == 0.0


def test_few_nodes_are_also_planned_with_commitments_weighed_one_by_one() -> None:
    """Weighed together, whole nodes that take a little more than is left are missed, and $1.33 is left to pay."""
    plans = (
        SavingsPlan("own", MICROS, NOW * 2, "m", rate_ppm=600_000),
        SavingsPlan("sp", 6 * MICROS, NOW * 2, rate_ppm=700_000),
    )
    assert paid(decided_for_two_pools(6, 6, CommitmentRoom(savings_plans=plans))) == pytest.approx(0.7619, abs=1e-4)


def test_where_the_first_way_is_close_to_the_best_no_other_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def unexpected(*_: object) -> None:
        raise AssertionError("weighed one by one, too")

    monkeypatch.setattr(commitment_passes, "_weights", unexpected)
    made = decided_for_two_pools(8, 0, savings(2.52, discount=0.3))
    assert paid(made) == pytest.approx(4 * 0.9)


@pytest.mark.parametrize("cpu", range(24, 49, 4))
def test_a_claim_kept_on_commitments_counts_against_limits_as_the_largest_type_that_it_may_become(cpu: int) -> None:
    several = rule(labels.INSTANCE_TYPE, "Exists", min_values=3)
    types = (*TYPES, typed("d.huge", 1.5, cpu="16"))
    pools = (pool("default", several, limits={"cpu": str(cpu)}),)
    made = decided(*pods(3, cpu="3", **APART), room=savings(1), pools=pools, types=types)
    cores = {item.name: item.capacity["cpu"] // 1000 for item in types}
    assert sum(max(map(cores.__getitem__, claim.instance_types)) for claim in made.node_claims) <= cpu
    assert len(made.node_claims) == 3
    assert any(claim.covered is not msgspec.UNSET for claim in made.node_claims)
