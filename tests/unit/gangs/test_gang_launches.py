"""Which claims of gangs are launched together, and which are of no use when others wait."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from shiplap.flows.planning.planned_launches import launches
from shiplap.kubernetes.objects import Pod
from shiplap.policies.gangs.gang import GangMembers, KnownGangs
from shiplap.policies.gangs.gang_launches import incomplete_gangs, launched_together, most_at_risk
from shiplap.policies.gangs.waiting_gangs import waiting_gangs
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import ClusterView
from tests.builders.pods import pods
from tests.conformance.given import NOW, in_flight
from tests.unit.gangs.gang_cases import gang, planned


def made(*waiting: Pod) -> tuple[Plan, Sequence[GangMembers], list[str]]:
    """The plan, its gangs, and the names of its claims by the names of their pods."""
    plan = planned(*waiting)
    names = [claim.name for claim in sorted(plan.node_claims, key=lambda claim: claim.pods[0].name)]
    return plan, waiting_gangs(ClusterView(tuple(waiting)), KnownGangs(), NOW), names


def test_all_claims_of_a_gang_are_launched_together() -> None:
    plan, gangs, names = made(*gang(), *pods(1, "web", cpu="1", ports=[80]))
    assert launched_together(plan.node_claims, gangs) == dict.fromkeys(names[:4], "default/train")


def test_only_as_many_as_are_needed_are_launched_together() -> None:
    plan, gangs, _ = made(*gang(size=5, minimum=3))
    together = launched_together(plan.node_claims, gangs)
    assert len(together) == 3
    assert set(together) == {claim.name for claim in sorted(plan.node_claims, key=lambda claim: claim.name)[:3]}


def test_one_node_for_all_needs_no_other() -> None:
    plan, gangs, _ = made(*gang(size=2, cpu="100m", ports=[]))
    assert launched_together(plan.node_claims, gangs) == {}


def test_without_one_node_the_others_are_of_no_use() -> None:
    plan, gangs, names = made(*gang(), *gang("other", 2))
    useless = incomplete_gangs(plan, gangs, {names[2]}, ())
    assert set(useless) == set(names[3:])
    assert set(useless.values()) == {"gang default/train: 1 of its 4 nodes may not be launched now, so none is"}


def test_with_members_to_spare_nothing_is_of_no_use() -> None:
    plan, gangs, names = made(*gang(size=5, minimum=3))
    assert incomplete_gangs(plan, gangs, set(names[:2]), ()) == {}
    assert len(incomplete_gangs(plan, gangs, set(names[:3]), ())) == 2


def test_a_pilot_goes_where_only_a_proof_is_missing() -> None:
    plan, gangs, names = made(*gang())
    assert len(incomplete_gangs(plan, gangs, {names[3]}, {names[3]})) == 2
    assert len(incomplete_gangs(plan, gangs, {names[3]}, ())) == 3
    assert len(incomplete_gangs(plan, gangs, set(names[2:]), {names[3]})) == 2


def test_equal_claims_are_one_request_without_risk() -> None:
    plan, (members,), _ = made(*gang())
    assert most_at_risk(plan.node_claims, members, 99) == 0.0


def test_all_requests_but_the_cheapest_are_at_risk() -> None:
    plan, (members,), _ = made(*gang())
    assert most_at_risk(plan.node_claims, members, 3) == 3.0
    assert most_at_risk(plan.node_claims, members, 1) == 3.0
    dear = [replace(claim, tier=9, launch=replace(claim.launch, price=5.0)) for claim in plan.node_claims[:1]]
    assert most_at_risk([*dear, *plan.node_claims[1:]], members, 99) == 5.0


def test_claims_of_other_pods_are_at_no_risk() -> None:
    plan, (members,), _ = made(*gang(size=2), *pods(3, "web", cpu="1", ports=[80]))
    assert most_at_risk(plan.node_claims, members, 1) == 1.0


def test_requests_are_told_apart_as_launches_are() -> None:
    plan, gangs, _ = made(*gang(), *pods(1, "web", cpu="1", ports=[80]))
    records = [
        replace(
            claim, launch=replace(claim.launch, atomic=launched_together(plan.node_claims, gangs).get(claim.name, ""))
        )
        for claim in map(in_flight, plan.node_claims)
    ]
    of_gang = [group for group in launches(records) if group[0].launch.atomic]
    assert [len(group) for group in of_gang] == [4]
