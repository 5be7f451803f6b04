"""Sick nodes are replaced, but never in droves; nothing is launched in zones that are shifted away from."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shiplap.disruption.disruption_snapshot import DisruptionSettings
from shiplap.disruption.repair.repair_policies import RepairPolicy, sick_condition
from shiplap.errors import AwsError
from shiplap.flows.interrupt.notices import NoticeKind
from shiplap.flows.sweep.repair import MOST_AT_ONCE, RepairBounds, SickNode, choose_repairs, full_pools, sick_among
from shiplap.kubernetes.objects import Node
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.custom_resources import Disruption
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.manifests.shiplap_annotations import TERMINATE_FIRST
from shiplap.ports import InstanceProblem
from shiplap.settings import ClusterSettings
from tests.builders.claims import node_claim
from tests.builders.pools import pool
from tests.integration.flows.leaving import claim_now, evicted, first, play_out, serving
from tests.integration.flows.stage import Stage

POOL = Stage().settings.manifests.node_pools[0]


def ail(stage: Stage, instance_id: str, kind: str = "instance", *, for_s: float = 120) -> None:
    since = 0.0 if kind == "event" else stage.clock.now() - for_s
    stage.health.ailments.add(InstanceProblem(instance_id, kind, since))


def condition(stage: Stage, node: str, kind: str, status: str) -> None:
    """A condition that changes now."""
    item = {"type": kind, "status": status, "lastTransitionTime": rfc3339(stage.clock.now())}
    stage.server.patch("nodes", node, {"status": {"conditions": [item]}}, subresource="status")


@pytest.mark.parametrize("kind", ["instance", "system"])
def test_an_instance_whose_checks_fail_is_replaced_first_and_then_ended(kind: str) -> None:
    stage = serving()
    claim, instance = first(stage)
    ail(stage, instance.id, kind)
    report = stage.sweep()
    known = claim_now(stage, claim)
    assert (known.state, known.failure) == (ClaimState.DRAINING, "InstanceImpaired")
    assert known.deadline_at == stage.clock.now() + 120
    assert stage.state.read(stage.name, stage.clock.now()).unavailable == ()  # the type is not to blame
    assert report.launched == ()
    assert len(stage.schedule().launched) == 1
    assert evicted(stage) == []
    play_out(stage)
    assert claim_now(stage, claim).state is ClaimState.GONE
    assert len(stage.compute.launches) == 2


def test_a_check_that_has_just_failed_is_waited_out() -> None:
    stage = serving()
    claim, instance = first(stage)
    ail(stage, instance.id, for_s=119)
    stage.sweep()
    assert claim_now(stage, claim) == claim
    stage.clock.advance(1)
    stage.sweep()
    assert claim_now(stage, claim).state is ClaimState.DRAINING


def test_a_scheduled_event_empties_the_node_without_a_clock() -> None:
    stage = serving()
    claim, instance = first(stage)
    ail(stage, instance.id, "event")
    for _ in range(3):  # EC2 goes on telling
        stage.sweep()
    known = claim_now(stage, claim)
    assert (known.state, known.failure, known.deadline_at) == (ClaimState.DRAINING, "ScheduledChange", 0.0)
    assert stage.meter.counts["NodesInterrupted"] == 1


def test_instances_of_others_are_none_of_our_business() -> None:
    stage = serving()
    before = stage.claims()
    ail(stage, "i-0123456789abcdef0")
    ail(stage, "i-0123456789abcdef0", "event")
    stage.sweep()
    assert stage.claims() == before


def test_checks_that_cannot_be_read_are_counted_and_nodes_still_looked_at() -> None:
    stage = serving()
    claim, _ = first(stage)
    condition(stage, claim.node_name, "Ready", "False")
    stage.clock.advance(1800)
    stage.faults.on("before", "health.ailing", AwsError("denied", code="UnauthorizedOperation"))
    stage.sweep()
    assert stage.meter.counts["StatusChecksNotRead"] == 1
    assert claim_now(stage, claim).failure == "NodeUnhealthy"


def test_repair_can_be_switched_off_and_scheduled_events_still_count() -> None:
    stage = serving(2)
    stage.settings = msgspec.structs.replace(stage.settings, node_repair=False)
    sick, due = stage.claims()
    ail(stage, sick.instance_id)
    ail(stage, due.instance_id, "event")
    stage.sweep()
    assert [claim_now(stage, claim).state for claim in (sick, due)] == [ClaimState.INITIALIZED, ClaimState.DRAINING]


@pytest.mark.parametrize(
    ("kind", "status", "seconds"),
    [("Ready", "False", 1800), ("Ready", "Unknown", 1800), ("AcceleratedHardwareReady", "False", 1800)],
)
def test_a_bad_condition_is_tolerated_for_a_while(kind: str, status: str, seconds: float) -> None:
    stage = serving()
    claim, _ = first(stage)
    condition(stage, claim.node_name, kind, status)
    stage.clock.advance(seconds - 1)
    stage.sweep()
    assert claim_now(stage, claim).state is ClaimState.INITIALIZED
    stage.clock.advance(1)
    stage.sweep()
    assert claim_now(stage, claim).state is ClaimState.DRAINING
    assert stage.meter.counts["NodesRepaired"] == 1


def test_a_condition_that_nobody_fears_is_ignored() -> None:
    stage = serving()
    claim, _ = first(stage)
    condition(stage, claim.node_name, "MemoryPressure", "True")
    stage.clock.advance(7200)
    stage.sweep()
    assert claim_now(stage, claim).state is ClaimState.INITIALIZED


def test_too_many_sick_nodes_of_a_pool_are_left_alone_and_told() -> None:
    stage = serving(10)
    for claim in stage.claims()[:3]:
        ail(stage, claim.instance_id)
    stage.sweep()
    assert {claim.state for claim in stage.claims()} == {ClaimState.INITIALIZED}
    assert stage.meter.counts["RepairsBlocked"] == 3
    stage.health.ailments.pop()
    stage.sweep()
    assert [claim.state for claim in stage.claims()].count(ClaimState.DRAINING) == 2


def claims_of(pool: str, count: int, **fields: object) -> list[NodeClaim]:
    known = {"cluster": "demo", "node_pool": pool, "node_class": "default", "state": ClaimState.INITIALIZED}
    return [node_claim(**{**known, "name": f"{pool}-{n:03d}", **fields}) for n in range(count)]


def sick(claims: list[NodeClaim]) -> list[SickNode]:
    return [SickNode(claim, NoticeKind.UNHEALTHY, "bad") for claim in claims]


@pytest.mark.parametrize(("nodes", "unwell", "repaired"), [(1, 1, 1), (5, 1, 1), (5, 2, 0), (10, 2, 2), (11, 3, 3)])
def test_a_fifth_of_a_pool_rounded_up_may_be_sick(nodes: int, unwell: int, repaired: int) -> None:
    claims = claims_of("any", nodes)
    verdict = choose_repairs(claims, sick(claims[:unwell]))
    assert (len(verdict.repaired), len(verdict.blocked)) == (repaired, unwell - repaired)


def test_nodes_in_repair_count_as_sick() -> None:
    leaving = claims_of("old", 1, state=ClaimState.DRAINING, failure="NodeUnhealthy", node_pool="any")
    claims = [*leaving, *claims_of("any", 4)]
    assert choose_repairs(claims, sick(claims[1:2])).repaired == ()


def test_a_cluster_repairs_only_so_many_at_once() -> None:
    claims = claims_of("any", 100)
    verdict = choose_repairs(claims, sick(claims[:20]))
    assert [item.claim.name for item in verdict.repaired] == [claim.name for claim in claims[:MOST_AT_ONCE]]
    assert len(verdict.blocked) == 10


@pytest.mark.parametrize(
    ("budgets", "replaced"),
    [
        ([{"nodes": "1"}], 1),
        ([{"nodes": "1", "reasons": ["Unhealthy", "Empty"]}], 1),
        ([{"nodes": "0"}], 0),
        ([{"nodes": "10%"}], 1),
        ([{"nodes": "2", "reasons": ["Unhealthy"]}, {"nodes": "1"}], 1),
        ([{"nodes": "0", "reasons": ["Drifted", "Empty", "Underutilized"]}], 2),
        ([{"nodes": "0", "schedule": "0 0 1 1 *", "duration": "1m"}], 2),
    ],
)
def test_budgets_bound_repairs_for_conditions(budgets: list[dict[str, Any]], replaced: int) -> None:
    stage = serving(10)
    stage.settings = with_budgets(stage, budgets)
    for claim in stage.claims()[:2]:
        condition(stage, claim.node_name, "StorageReady", "False")
    stage.clock.advance(1800)
    for _ in range(2):  # nodes in repair use the budget up
        stage.sweep()
        assert [claim.failure for claim in stage.claims()].count("NodeUnhealthy") == replaced
    assert stage.meter.counts.get("RepairsBlocked", 0) == 2 * (2 - replaced)
    stage.settings = with_budgets(stage, [{"nodes": "100%"}])
    stage.sweep()
    assert [claim.failure for claim in stage.claims()].count("NodeUnhealthy") == 2


def test_a_failed_status_check_waits_for_no_budget() -> None:
    """As with Karpenter, which takes it as an interruption."""
    stage = serving(10)
    stage.settings = with_budgets(stage, [{"nodes": "0"}])
    ail(stage, stage.claims()[0].instance_id)
    stage.sweep()
    assert stage.claims()[0].failure == "InstanceImpaired"


@pytest.mark.parametrize("state", [ClaimState.REGISTERED, ClaimState.DISRUPTING])
def test_nodes_that_run_no_pods_or_leave_already_use_no_budget(state: ClaimState) -> None:
    claims = [*claims_of("any", 9), *claims_of("other", 1, state=state, node_pool="any")]
    bounds = RepairBounds({"any": 1})
    verdict = choose_repairs(claims, sick([claims[9], claims[0]]), bounds)
    assert len(verdict.repaired) == 2
    assert choose_repairs(claims, sick([claims[9]]), RepairBounds({"any": 0})).blocked == ()


def with_budgets(stage: Stage, budgets: list[dict[str, Any]]) -> ClusterSettings:
    manifests = stage.settings.manifests
    changed = msgspec.convert({"budgets": budgets}, Disruption)
    spec = msgspec.structs.replace(POOL.spec, disruption=changed)
    pools = (msgspec.structs.replace(manifests.node_pools[0], spec=spec),)
    return msgspec.structs.replace(stage.settings, manifests=msgspec.structs.replace(manifests, node_pools=pools))


def test_one_pool_does_not_block_another() -> None:
    zone, lone = claims_of("zone", 10), claims_of("lone", 1)
    verdict = choose_repairs([*zone, *lone], sick([*lone, *zone[:5]]))
    assert [item.claim.plan.node_pool for item in verdict.repaired] == ["lone"]


def shifting(*zones: str) -> Stage:
    stage = Stage()
    stage.settings = msgspec.structs.replace(stage.settings, zonal_shift=True)
    stage.health.shifted.update(zones)
    return stage


def test_nothing_is_launched_in_a_shifted_zone_while_the_shift_lasts() -> None:
    stage = shifting("eu-west-1a", "eu-west-1c")
    stage.add_pods(1)
    stage.schedule()
    assert [instance.zone for instance in stage.compute.launches] == ["eu-west-1b"]
    stage.health.shifted.clear()
    stage.add_pods(1, memory="15Gi", prefix="big")
    stage.schedule()
    assert stage.compute.launches[-1].zone == "eu-west-1a"


def test_pods_that_only_a_shifted_zone_could_take_wait() -> None:
    stage = shifting("eu-west-1a", "eu-west-1b", "eu-west-1c")
    stage.add_pods(1)
    report = stage.schedule()
    assert (report.launched, report.unschedulable) == ((), 1)


def test_shifts_that_cannot_be_read_or_are_not_asked_for_keep_no_pod_waiting() -> None:
    stage = shifting("eu-west-1a", "eu-west-1b", "eu-west-1c")
    stage.faults.on("before", "health.shifted_zones", AwsError("denied", code="AccessDeniedException"))
    stage.add_pods(1)
    assert len(stage.schedule().launched) == 1
    assert stage.meter.counts["ZonalShiftsNotRead"] == 1
    other = shifting("eu-west-1a", "eu-west-1b", "eu-west-1c")
    other.settings = msgspec.structs.replace(other.settings, zonal_shift=False)
    other.add_pods(1)
    assert len(other.schedule().launched) == 1


@pytest.mark.parametrize(
    ("kind", "status", "tolerated_s"),
    [
        ("Ready", "False", 1800.0),
        ("Ready", "Unknown", 1800.0),
        ("AcceleratedHardwareReady", "False", 1800.0),
        ("ContainerRuntimeReady", "False", 1800.0),
        ("KernelReady", "False", 1800.0),
        ("NetworkingReady", "False", 1800.0),
        ("StorageReady", "False", 1800.0),
    ],
)
def test_a_bad_condition_is_waited_out_as_long_as_karpenter_does(kind: str, status: str, tolerated_s: float) -> None:
    since = 1_700_000_000.0
    condition = {"type": kind, "status": status, "lastTransitionTime": rfc3339(since)}
    node = msgspec.convert({"metadata": {"name": "n"}, "status": {"conditions": [condition]}}, Node)
    assert sick_condition(node, (), since + tolerated_s - 1) is None
    found = sick_condition(node, (), since + tolerated_s)
    assert found is not None
    assert found.words.startswith(f"its condition {kind} has been {status} for ")
    fine = {"True": "False"}.get(status, "True")
    healthy = msgspec.convert(
        {"metadata": {"name": "n"}, "status": {"conditions": [condition | {"status": fine}]}}, Node
    )
    assert sick_condition(healthy, (), since + 10 * tolerated_s) is None


@pytest.mark.parametrize(
    ("fields", "usual_s", "is_full"),
    [
        ({"replicas": 10, "annotations": {TERMINATE_FIRST: "10m"}}, 0.0, True),
        ({"replicas": 10}, 600.0, True),
        ({"replicas": 10, "annotations": {TERMINATE_FIRST: "Never"}}, 600.0, False),
        ({"replicas": 10, "annotations": {TERMINATE_FIRST: "soon"}}, 600.0, False),
        ({"replicas": 9}, 600.0, False),
        ({}, 600.0, False),
        ({"replicas": 10}, 0.0, False),
    ],
)
def test_sick_nodes_of_full_static_pools_are_replaced_one_at_a_time(
    fields: dict[str, Any], usual_s: float, *, is_full: bool
) -> None:
    made = pool("fixed", **fields)
    full = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, limits={"nodes": "10"}))
    settings = msgspec.structs.replace(
        Stage((full, pool("other"))).settings, disruption=DisruptionSettings(terminate_first_s=usual_s)
    )
    assert full_pools(settings) == ({"fixed"} if is_full else set())


def break_down(stage: Stage, claim: NodeClaim, reason: str = "") -> None:
    """The node's Ready is False for longer than anybody waits."""
    since = rfc3339(stage.clock.now() - 3600)
    item = {"type": "Ready", "status": "False", "lastTransitionTime": since, "reason": reason}
    stage.server.patch("nodes", claim.node_name, {"status": {"conditions": [item]}}, subresource="status")


def told(stage: Stage) -> list[str]:
    events = stage.server.list("events").items
    return [event["message"] for event in events if event["reason"] == "NodeRepairBlocked"]


@pytest.mark.parametrize("ill", [True, False])
def test_a_node_with_do_not_repair_stays_and_says_so(*, ill: bool) -> None:
    stage = serving(2)
    kept, other = stage.claims()
    mark = {"karpenter.sh/do-not-repair": "true"}
    stage.server.patch("nodes", kept.node_name, {"metadata": {"annotations": mark}})
    if ill:
        break_down(stage, kept)
    else:
        ail(stage, kept.instance_id)
    stage.sweep()
    assert [claim.state for claim in stage.claims()] == [ClaimState.INITIALIZED] * 2
    assert told(stage) == [f"node {kept.node_name} has the annotation karpenter.sh/do-not-repair=true"]
    assert stage.meter.counts["RepairsKept"] == 1
    stage.sweep()
    assert len(told(stage)) == 1
    stage.server.patch("nodes", kept.node_name, {"metadata": {"annotations": {"karpenter.sh/do-not-repair": "false"}}})
    stage.sweep()
    assert claim_now(stage, kept).state is ClaimState.DRAINING
    assert claim_now(stage, other).state is ClaimState.INITIALIZED


def test_do_not_disrupt_keeps_no_sick_node_and_do_not_repair_no_drifted_one() -> None:
    stage = serving()
    claim, _ = first(stage)
    stage.server.patch("nodes", claim.node_name, {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}})
    break_down(stage, claim)
    stage.sweep()
    assert claim_now(stage, claim).state is ClaimState.DRAINING


def test_three_sick_nodes_of_one_ami_within_an_hour_stop_its_repairs() -> None:
    stage = serving(20)
    for number, claim in enumerate(stage.claims()[:3]):
        break_down(stage, claim)
        stage.sweep()
        play_out(stage)
        stage.clock.advance(900)
        expected = ClaimState.GONE if number < 2 else ClaimState.INITIALIZED
        assert claim_now(stage, claim).state is expected, "the first two are gone, their notes are not"
    assert stage.meter.counts["RepairsStopped"] > 0
    assert stage.meter.counts["NodesRepaired"] == 2
    assert told(stage)[0].startswith("3 nodes of ami-")
    stage.clock.advance(3600)
    stage.sweep()
    assert claim_now(stage, stage.claims()[0]).state is not ClaimState.FAILED
    assert stage.meter.counts["NodesRepaired"] == 3, "an hour later it is the only one"


def test_the_notes_of_one_cluster_stop_no_repairs_of_another() -> None:
    stage = serving(20)
    other = Stage(stage.settings.manifests.node_pools, spot=True, beside=stage)
    other.add_pods(20, cpu="1200m", memory="2Gi")
    other.play_on()
    for place in (stage, stage, other):
        claim = next(item for item in place.claims() if item.state is ClaimState.INITIALIZED)
        break_down(place, claim)
        place.sweep()
        assert claim_now(place, claim).state is ClaimState.DRAINING


def test_checks_of_instances_say_nothing_of_an_ami() -> None:
    stage = serving(20)
    for claim in stage.claims()[:3]:
        ail(stage, claim.instance_id, "system")
    stage.sweep()
    assert stage.meter.counts["NodesRepaired"] == 3


def test_the_note_is_written_before_the_node_is_replaced() -> None:
    stage = serving(20)
    claim = stage.claims()[0]
    break_down(stage, claim)
    stage.faults.clear()
    stage.sweep()
    effects = [point.partition(" ")[2] for point in stage.faults.points]
    assert effects.index("state.mark_sick") < effects.index("state.advance")


def test_policies_of_the_cluster_come_first_and_by_priority() -> None:
    stage = serving(6)
    stage.settings = with_budgets(stage, [{"nodes": "100%"}])
    benign, urgent, usual = stage.claims()[:3]
    policies = (RepairPolicy("Ready", "False", ".*Benign", "Never"), RepairPolicy("Ready", "False", "Gpu.*", "1m", 5))
    stage.settings = msgspec.structs.replace(stage.settings, repair_policies=policies)
    for claim, reason in ((benign, "ItIsBenign"), (urgent, "GpuLost"), (usual, "KubeletNotReady")):
        break_down(stage, claim, reason)
    one = sick_among([benign, urgent, usual], {}, [], stage.clock.now(), policies)
    assert one == []
    stage.sweep()
    assert claim_now(stage, benign).state is ClaimState.INITIALIZED
    assert {claim_now(stage, claim).state for claim in (urgent, usual)} == {ClaimState.DRAINING}


def test_the_most_urgent_node_is_replaced_first() -> None:
    claims = claims_of("any", 20)
    ill = [SickNode(claims[number], NoticeKind.UNHEALTHY, "bad", number) for number in range(3)]
    assert choose_repairs(claims, ill, RepairBounds({"any": 1})).repaired == (ill[2],)
    assert choose_repairs(claims, ill, RepairBounds({"any": 1}), kept={claims[2].name: "kept"}).repaired == (ill[1],)
    stopped = [msgspec.structs.replace(item, ami="ami-1") for item in ill]
    verdict = choose_repairs(claims, stopped, stopped_amis={"ami-1"})
    assert (verdict.repaired, verdict.blocked, len(verdict.stopped)) == ((), (), 3)
    assert choose_repairs(claims, ill, stopped_amis={"ami-1"}).repaired == (ill[2], ill[1], ill[0])
