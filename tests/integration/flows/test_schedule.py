"""One invocation of the schedule flow: pods pending in, instances out."""

from __future__ import annotations

import gc
import zlib
from collections.abc import Collection
from typing import Any

import msgspec
import pytest

from shiplap.errors import AwsError, AwsThrottled, ClusterUnreachable, EpochMoved, NodeClassNotReady, StoreError
from shiplap.flows import claim_events
from shiplap.flows.disrupt.disruption_round import disrupt
from shiplap.flows.messages import MOST_PODS, UNSCHEDULABLE, PodsPending, Sweep
from shiplap.flows.planning.decision_snapshots import PricedSnapshot
from shiplap.flows.schedule import schedule as schedule_flow
from shiplap.flows.schedule.launch import LEASE_S
from shiplap.kubernetes import labels
from shiplap.kubernetes.reading import Unreadable
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import ClaimState, PodReference
from shiplap.manifests.template_hash import HASH_VERSION, NODE_CLASS_HASH_VERSION
from shiplap.records import scheduling_record as records
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import ClusterView
from shiplap_lab.fakes.faults import Crash
from shiplap_lab.fakes.stores import FakeMemory
from tests.builders.pools import family_pool
from tests.integration.flows.stage import CLUSTER, NODE_CLASS, ZONES, Stage, share


def heard(stage: Stage, *names: str, reason: str = UNSCHEDULABLE, uid: str | None = None) -> PodsPending:
    """A watch has told of these pods."""
    uids = {item["metadata"]["name"]: item["metadata"]["uid"] for item in stage.server.list("pods").items}
    pods = tuple(PodReference("default", name, uids[name] if uid is None else uid) for name in names)
    return PodsPending(CLUSTER, stage.clock.now(), "e", pods, reason)


def looks(stage: Stage, *hints: PodsPending | Sweep) -> bool:
    """True if an invocation with these hints looks at the cluster; it launches nothing more and leaves nothing."""
    stage.faults.clear()
    launches = len(stage.compute.launches)
    report = stage.schedule(*hints)
    assert len(stage.compute.launches) == launches
    has_looked = any("cluster.view" in point for point in stage.faults.points)
    assert (report.rounds, report.unfinished) == (int(has_looked), "")
    return has_looked


def test_hints_about_pods_whose_instances_run_cost_no_look_at_the_cluster() -> None:
    stage = Stage()
    stage.add_pods(3)
    stage.schedule(heard(stage, "web-000"))
    assert {claim.state for claim in stage.claims()} == {ClaimState.LAUNCHED}
    assert not looks(stage, heard(stage, "web-001"), heard(stage, "web-002", "web-000"))
    assert looks(stage, heard(stage, "web-001"), Sweep(CLUSTER))
    assert looks(stage, heard(stage, "web-001"), PodsPending(CLUSTER, stage.clock.now()))
    assert looks(stage, heard(stage, "web-001", reason="Disruption"))
    assert looks(stage, heard(stage, "web-001", uid=""))
    many = msgspec.structs.replace(heard(stage, "web-001"), pods=heard(stage, "web-001").pods * MOST_PODS)
    assert looks(stage, many)
    stage.add_pods(1, prefix="other", cpu="1500m")
    assert len(stage.schedule(heard(stage, "web-001"), heard(stage, "other-000")).launched) == 1


def test_hints_about_pods_that_nobody_serves_any_more_are_followed() -> None:
    stage = Stage()
    stage.add_pods(1)
    stage.faults.on("before", "compute.launch", AwsThrottled("slow down", code="RequestLimitExceeded"))
    stage.schedule(heard(stage, "web-000"))
    (claim,) = stage.claims()
    assert claim.state is ClaimState.LAUNCHING
    assert stage.schedule(heard(stage, "web-000")).launched == (claim.name,)
    stage.play_on()
    (claim,) = stage.claims()
    assert claim.state is ClaimState.INITIALIZED
    assert looks(stage, heard(stage, "web-000"))


def test_hints_about_pods_whose_node_is_too_small_are_followed() -> None:
    stage = Stage(true_memory=share(0.45))
    stage.add_pods(3, cpu="500m", memory="500Mi")
    stage.schedule(heard(stage, "web-000"))
    stage.join()
    stage.attend()
    assert any(claim.missed for claim in stage.claims())
    assert len(stage.schedule(heard(stage, "web-000", "web-001", "web-002")).launched) == 1


@pytest.mark.parametrize("tainted", [False, True])
def test_hints_about_pods_whose_registered_node_has_no_room_any_more_are_followed(tainted: bool) -> None:
    """kube-scheduler has given it to others as soon as it was open, or somebody's controller has tainted it."""
    stage = Stage()
    stage.add_pods(1)
    stage.schedule(heard(stage, "web-000"))
    stage.join(ready=False)
    stage.attend()
    (claim,) = stage.claims()
    assert claim.state is ClaimState.REGISTERED
    nothing = {"status": {"nominatedNodeName": None}}
    stage.server.patch("pods", "web-000", nothing, subresource="status")  # kube-scheduler could not follow it
    assert not stage.schedule(heard(stage, "web-000")).launched
    if tainted:
        taint = {"key": "example.com/stranger", "effect": "NoSchedule"}
        stage.server.patch("nodes", claim.node_name, {"spec": {"taints": [taint]}})
    else:
        stage.add_pods(1, prefix="other", cpu="1500m")
        stage.server.bind("other-000", claim.node_name)
    assert len(stage.schedule(heard(stage, "web-000")).launched) == 1


def test_pods_get_nodes_of_the_preferred_pool_and_are_in_service_in_the_end() -> None:
    stage = Stage()
    stage.add_pods(6)
    report = stage.schedule()
    assert report.unfinished == ""
    assert report.unschedulable == 0
    launched = stage.compute.alive()
    assert len(launched) == len(report.launched) > 0
    assert all(instance.instance_type.startswith("c7i-flex.") for instance in launched)
    claims = {claim.name: claim for claim in stage.claims()}
    for instance in launched:
        claim = claims[instance.claim]
        assert claim.state is ClaimState.LAUNCHED
        assert (claim.instance_id, claim.known_instance.zone, claim.known_instance.ami) == (
            instance.id,
            instance.zone,
            instance.ami,
        )
        assert claim.known_instance.type == instance.instance_type
        assert claim.hourly > 0
        assert claim.plan.annotations[NODE_CLASS_HASH_VERSION] == HASH_VERSION
        assert all(claim.plan.allocatable[resource] >= amount for resource, amount in claim.plan.requests.items())
    assert sorted(pod.name for claim in claims.values() for pod in claim.plan.pods) == [
        f"web-{n:03d}" for n in range(6)
    ]
    assert len(stage.bus.of_type(claim_events.LAUNCHED)) == len(launched)
    assert len(stage.timers.reminders) == len(launched)
    assert len(stage.recorder.records) == 1
    stage.play_on()
    assert stage.pending() == 0
    assert len(stage.compute.launches) == len(launched)
    assert {claim.state for claim in stage.claims()} == {ClaimState.INITIALIZED}
    assert "NodeClaimsMissed" not in stage.meter.counts


def test_recorded_decisions_hold_no_user_data() -> None:
    stage = Stage()
    change = msgspec.structs.replace
    manifests = stage.settings.manifests
    (node_class,) = manifests.node_classes
    secret = change(node_class, spec=change(node_class.spec, user_data="#!/bin/sh\nexport TOKEN=s3cret"))
    stage.settings = change(stage.settings, manifests=change(manifests, node_classes=(secret,)))
    stage.add_pods(1)
    launched_from = []
    stage.compute.on_launch.append(lambda _instance, request, _type: launched_from.append(request.node_class))
    stage.schedule()
    assert launched_from == [secret]
    (document,) = stage.recorder.records.values()
    assert records.decode(document).snapshot.manifests.node_classes[0].spec.user_data is None
    assert b"s3cret" not in zlib.decompress(document)


def test_nothing_pending_changes_and_records_nothing() -> None:
    stage = Stage()
    report = stage.schedule()
    assert (report.launched, report.unfinished, report.rounds) == ((), "", 1)
    assert stage.claims() == ()
    assert stage.recorder.records == {}
    assert not any(point.startswith("before catalog.save") for point in stage.faults.points)


def test_a_second_hint_for_the_same_pods_launches_nothing() -> None:
    stage = Stage()
    stage.add_pods(6)
    stage.schedule()
    before = len(stage.compute.launches)
    for _ in range(3):
        assert stage.schedule().launched == ()
    assert len(stage.compute.launches) == before


def test_the_time_from_the_oldest_event_to_the_launch_is_measured() -> None:
    stage = Stage()
    stage.add_pods(1)
    now = stage.clock.now()
    stage.schedule(PodsPending(CLUSTER, now - 1.5), PodsPending(CLUSTER, now - 4.0), PodsPending(CLUSTER, 0.0))
    assert stage.meter.counts["EventToLaunch"] == pytest.approx(4.0)
    assert stage.claims()[0].cause.first_event_at == now - 4.0


def test_what_no_event_with_a_time_asked_for_has_no_such_time() -> None:
    stage = Stage()
    stage.add_pods(1)
    stage.schedule(PodsPending(CLUSTER, 0.0))
    (claim,) = stage.claims()
    assert (claim.cause.first_event_at, claim.cause.event_id) == (0.0, "invocation/invocation-1")
    assert "EventToLaunch" not in stage.meter.counts


@pytest.mark.parametrize("kinds", [("hint",), ("sweep",), ("hint", "sweep"), ("sweep", "hint")])
def test_a_sweep_is_done_and_pods_are_measured_if_any_message_asks_for_it(kinds: tuple[str, ...]) -> None:
    stage = Stage()
    stage.add_pods(3)
    now = stage.clock.now()
    stage.schedule(*(Sweep(CLUSTER, now) if kind == "sweep" else PodsPending(CLUSTER, now) for kind in kinds))
    assert ("before compute.sweep_templates" in stage.faults.points) == ("sweep" in kinds)
    assert ("OldestPodWaiting" in stage.meter.counts) == ("sweep" in kinds)


def test_a_launch_without_trouble_counts_none_and_writes_nothing_twice() -> None:
    stage = Stage()
    stage.add_pods(3)
    report = stage.schedule()
    assert (len(report.launched), report.failed, report.rounds) == (1, (), 1)
    assert stage.meter.counts == {"PodAge": 0.0, "EventToLaunch": 0.0, "NodesLaunched": 1.0}
    effects = [point.partition(" ")[2] for point in stage.faults.points if point.startswith("before ")]
    assert effects == [
        "state.read",
        "cluster.view",
        "compute.resolve",
        "catalog.load",
        "joins.read",
        "capacity.pilots",
        "capacity.learned",
        "state.claims",
        "state.commit",
        "state.advance_all",
        "state.reserve_addresses",
        "compute.launch",
        "state.advance_all",
        "bus.publish",
        "timers.remind",
        "recorder.record",
    ]


def test_the_life_of_a_node_without_trouble_counts_none() -> None:
    stage, memory = Stage(), FakeMemory()
    stage.add_pods(3)
    stage.sweep()
    stage.join()
    stage.attend(*stage.due())
    stage.attend()
    stage.bind()
    for _ in range(3):
        stage.clock.advance(60)
        stage.sweep()
        stage.attend(*stage.due())
        disrupt(stage.settings, stage.context, memory)
    assert sorted(stage.meter.counts) == [
        "EventToLaunch",
        "EventToReady",
        "HourlyCost",
        "HourlyListPrice",
        "JoinedToReady",
        "LaunchToJoined",
        "MemoryBeyondPlan",
        "Nodes",
        "NodesInitialized",
        "NodesLaunched",
        "NodesNotDisruptable",
        "NodesRegistered",
        "OldestPodWaiting",
        "PodAge",
        "Pods",
        "PodsNominated",
        "PodsWaiting",
    ]
    assert stage.meter.counts["NodesRegistered"] == stage.meter.counts["NodesInitialized"] == 1
    assert stage.meter.counts["PodsNominated"] == 3


def test_capacity_that_has_run_out_falls_back_in_the_same_invocation() -> None:
    stage = Stage()
    stage.add_pods(3, cpu="1500m")
    for name in stage.types:
        if name.startswith("c7i-flex."):
            stage.compute.capacity.update({(name, zone, "on-demand"): 0 for zone in ZONES})
    report = stage.schedule()
    assert report.unfinished == ""
    assert report.failed
    launched = stage.compute.alive()
    assert launched
    assert all(not instance.instance_type.startswith("c7i-flex.") for instance in launched)
    assert {claim.plan.node_pool for claim in stage.claims() if claim.state is ClaimState.LAUNCHED} == {"fallback"}
    assert stage.meter.counts["OfferingFailures"] >= len(ZONES)
    stage.play_on()
    assert stage.pending() == 0


def test_one_instance_of_capacity_left_is_used_before_the_fallback() -> None:
    stage = Stage()
    stage.add_pods(4, cpu="1500m", memory="1Gi")
    for name in stage.types:
        if name.startswith("c7i-flex."):
            stage.compute.capacity.update({(name, zone, "on-demand"): 0 for zone in ZONES})
    stage.compute.capacity["c7i-flex.large", ZONES[1], "on-demand"] = 1
    stage.schedule()
    flex = [instance for instance in stage.compute.alive() if instance.instance_type.startswith("c7i-flex.")]
    assert [(instance.instance_type, instance.zone) for instance in flex] == [("c7i-flex.large", ZONES[1])]
    stage.play_on()
    assert stage.pending() == 0


def test_a_pod_gets_what_launched_nodes_leave_of_a_limit_in_the_same_invocation() -> None:
    """Each node's list needs two sizes, 2 and 4 vCPUs; once the first is one of 2, the limit has room for another."""
    flex = family_pool("flex", ("c7i-flex",), sizes=("large", "xlarge"))
    (family, size, kind) = flex.spec.template.spec.requirements
    two_sizes = (family, msgspec.structs.replace(size, min_values=2), kind)
    template = msgspec.structs.replace(flex.spec.template.spec, requirements=two_sizes)
    spec = msgspec.structs.replace(
        flex.spec, template=msgspec.structs.replace(flex.spec.template, spec=template), limits={"cpu": "6"}
    )
    stage = Stage((msgspec.structs.replace(flex, spec=spec),))
    stage.add_pods(2, cpu="1500m")
    report = stage.schedule()
    assert (len(report.launched), report.unfinished) == (2, "")
    assert {claim.known_instance.type for claim in stage.claims()} == {"c7i-flex.large"}
    stage.add_pods(3, prefix="more", cpu="1500m")
    assert stage.schedule().launched == ()


def test_spot_is_taken_where_it_is_allowed_and_on_demand_when_it_has_run_out() -> None:
    both = (family_pool("any", ("m6i",), capacity_types=("spot", "on-demand")),)
    stage = Stage(both, spot=True)
    stage.add_pods(1)
    stage.schedule()
    assert {instance.capacity_type for instance in stage.compute.alive()} == {"spot"}
    dry = Stage(both, spot=True)
    dry.add_pods(1)
    dry.compute.capacity.update({(name, zone, "spot"): 0 for name in dry.types for zone in ZONES})
    dry.schedule()
    assert {instance.capacity_type for instance in dry.compute.alive()} == {"on-demand"}


def test_a_node_class_that_is_not_ready_is_named_and_nothing_is_launched_from_it() -> None:
    stage = Stage()
    stage.add_pods(1)
    stage.compute.not_ready["default"] = NodeClassNotReady("no AMI matches", code="AMINotFound")
    report = stage.schedule()
    assert (report.launched, report.unschedulable, report.unfinished) == ((), 1, "")
    assert stage.meter.counts["NodeClassNotReady"] == 1


def test_a_launch_that_ec2_refuses_for_the_node_class_is_not_asked_for_again_in_this_invocation() -> None:
    stage = Stage()
    stage.add_pods(1)
    stage.compute.refusals["default"] = AwsError("not allowed to pass the role", code="UnauthorizedOperation")
    report = stage.schedule()
    assert len(report.failed) == 1
    assert report.unschedulable == 1
    assert stage.faults.points.count("before compute.launch") == 1
    del stage.compute.refusals["default"]
    assert len(stage.schedule().launched) == 1


def test_throttled_launches_are_resumed_by_the_next_invocation() -> None:
    stage = Stage()
    stage.add_pods(1)
    stage.faults.on("before", "compute.launch", AwsThrottled("slow down", code="RequestLimitExceeded"))
    report = stage.schedule()
    assert (report.unfinished, report.rounds) == ("EC2 asked to slow down", 1)
    assert stage.compute.alive() == ()
    second = stage.schedule()
    assert len(second.launched) == 1
    assert len(stage.claims()) == 1


@pytest.mark.parametrize("throttled", [True, False])
def test_after_a_launch_that_is_put_off_or_that_took_all_the_time_no_other_is_begun(throttled: bool) -> None:
    """The next sweep resumes it."""
    stage = Stage((family_pool("a", ("c7i",)), family_pool("b", ("m6i",))))
    for name in ("a", "b"):
        stage.add_pods(1, prefix=name, selector={labels.NODE_POOL: name})
    if throttled:
        stage.faults.on("before", "compute.launch", AwsThrottled("slow down", code="RequestLimitExceeded"))
    else:
        stage.faults.on("after", "compute.launch", lambda: stage.clock.advance(295.0))
    stage.schedule(seconds=300.0)
    assert stage.faults.points.count("before compute.launch") == 1
    assert sorted(claim.state for claim in stage.claims())[-1] is ClaimState.PLANNED
    assert len(stage.claims()) == 2


def test_a_launch_without_an_answer_is_found_again_by_its_tag() -> None:
    stage = Stage()
    stage.add_pods(1)
    stage.faults.on("after", "compute.launch", AwsError("connection reset"))
    assert stage.schedule().unfinished
    assert len(stage.compute.alive()) == 1
    stage.schedule()
    assert len(stage.compute.launches) == 1
    assert stage.claims()[0].instance_id == stage.compute.launches[0].id


def test_an_unreachable_cluster_launches_nothing_and_says_so() -> None:
    stage = Stage()
    stage.add_pods(1)
    stage.faults.on("before", "cluster.view", ClusterUnreachable("no route to host"))
    with pytest.raises(ClusterUnreachable):
        stage.schedule()
    assert stage.compute.launches == []
    assert stage.claims() == ()


def test_a_decision_that_cannot_be_recorded_holds_all_the_same() -> None:
    stage = Stage()
    stage.add_pods(1)
    stage.faults.on("before", "recorder.record", StoreError("bucket is gone"))
    assert len(stage.schedule().launched) == 1
    assert stage.meter.counts["DecisionsNotRecorded"] == 1


def test_a_decision_whose_chunks_cannot_be_stored_holds_all_the_same() -> None:
    stage = Stage()
    stage.recorder.least_bytes = 0
    stage.add_pods(1)
    stage.faults.on("before", "recorder.chunk", StoreError("bucket is gone"))
    assert len(stage.schedule().launched) == 1
    assert stage.meter.counts["DecisionsNotRecorded"] == 1
    assert stage.recorder.records == {}


def test_a_decision_is_recorded_when_its_launch_fails() -> None:
    stage = Stage()
    stage.add_pods(1)
    stage.faults.on("before", "state.advance_all", StoreError("table is gone"))
    with pytest.raises(StoreError, match="table is gone"):
        stage.schedule()
    (document,) = stage.recorder.records.values()
    assert [claim.name for claim in records.decode(document).plan.node_claims] == [stage.claims()[0].name]


def test_a_bus_and_timers_that_refuse_are_counted_and_made_up_for() -> None:
    stage = Stage()
    stage.add_pods(1)
    stage.faults.on("before", "bus.publish", StoreError("bus is gone"))
    stage.faults.on("before", "timers.remind", StoreError("queue is gone"))
    assert len(stage.schedule().launched) == 1
    assert stage.meter.counts["EventsNotPublished"] == 1
    assert stage.meter.counts["TimersNotSet"] == 1
    stage.play_on()


def test_pods_that_cannot_be_read_are_told_so_whether_or_not_there_is_anything_to_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage()
    odd = Unreadable("Pod", "default", "odd-000", "uid-odd-000", "no tolerations", waits=True)
    view = stage.cluster.view

    def seen(names: Collection[str], **options: Any) -> ClusterView:
        return msgspec.structs.replace(view(names, **options), unreadable=(odd,))

    monkeypatch.setattr(stage.cluster, "view", seen)
    alone = stage.schedule()
    assert (alone.launched, alone.unschedulable) == ((), 1)
    stage.add_pods(1)
    both = stage.schedule()
    assert (len(both.launched), both.unschedulable) == (1, 1)
    assert {
        (item["involvedObject"]["name"], "it cannot be read" in item["message"])
        for item in stage.server.list("events").items
    } == {("odd-000", True)}


def test_a_planned_node_of_a_class_that_no_pool_uses_any_more_is_not_launched() -> None:
    stage = Stage()
    stage.add_pods(1)
    stage.faults.on("after", "state.commit", Crash())
    assert stage.dies(stage.schedule)
    other = msgspec.structs.replace(NODE_CLASS, metadata=msgspec.structs.replace(NODE_CLASS.metadata, name="other"))
    template = {"spec": {"template": {"spec": {"nodeClassRef": {"name": "other"}, "requirements": []}}}}
    moved = msgspec.convert({"metadata": {"name": "moved"}, **template}, NodePool)
    manifests = msgspec.structs.replace(stage.settings.manifests, node_pools=(moved,), node_classes=(NODE_CLASS, other))
    stage.settings = msgspec.structs.replace(stage.settings, manifests=manifests)
    stage.clock.advance(LEASE_S + 1)
    stage.schedule()
    assert {claim.plan.node_class: claim.state for claim in stage.claims()} == {
        "default": ClaimState.FAILED,
        "other": ClaimState.LAUNCHED,
    }


def test_without_time_left_nothing_is_begun() -> None:
    stage = Stage()
    stage.add_pods(1)
    report = stage.schedule(seconds=5)
    assert report.unfinished == "out of time"
    assert stage.claims() == ()


def test_a_sweep_that_finds_nothing_pending_asks_neither_ec2_nor_the_catalogue_what_there_is_to_buy() -> None:
    stage = Stage()
    stage.sweep()
    assert {point.partition(" ")[2] for point in stage.faults.points} == {
        "state.read",
        "cluster.view",
        "compute.instances",
        "compute.sweep_templates",
        "state.claims",
    }
    assert stage.meter.counts == {}


def test_a_sweep_that_cannot_see_the_instances_plans_all_the_same() -> None:
    stage = Stage()
    stage.add_pods(1)
    stage.faults.on("before", "compute.instances", AwsError("denied", code="UnauthorizedOperation"))
    assert len(stage.sweep().launched) == 1
    assert stage.meter.counts["SweepsIncomplete"] == 1


def test_more_claims_than_one_transaction_holds_are_all_launched_even_if_the_second_half_loses_a_race() -> None:
    stage = Stage((family_pool("any", ("m6i",), sizes=("large",)),))
    stage.add_pods(120, cpu="1200m")
    stage.prove_pending_kinds()
    stage.faults.on("before", "state.commit", EpochMoved(CLUSTER, 1), nth=2)
    report = stage.schedule()
    assert (len(report.launched), report.failed, report.unfinished) == (120, (), "")
    assert len(stage.compute.launches) == 120
    assert len({pod.uid for claim in stage.claims() for pod in claim.plan.pods}) == 120
    stage.play_on()
    assert len(stage.compute.launches) == 120


def test_two_installs_that_make_the_same_plan_do_not_make_the_same_claims() -> None:
    first, second = Stage(), Stage()
    second.settings = msgspec.structs.replace(second.settings, install="second")
    for stage in (first, second):
        stage.add_pods(1)
        stage.sweep()
    (one,), (other,) = first.claims(), second.claims()
    assert one.plan.pods == other.plan.pods
    assert one.created_at == other.created_at
    assert one.name != other.name
    assert one.launch.token != other.launch.token


def test_a_claim_too_large_to_be_stored_keeps_no_other_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    stage.add_pods(3, cpu="100m", prefix="large", selector={"topology.kubernetes.io/zone": ZONES[0]})
    stage.add_pods(1, cpu="100m", prefix="small", selector={"topology.kubernetes.io/zone": ZONES[1]})
    monkeypatch.setattr(schedule_flow, "can_be_stored", lambda claim: len(claim.plan.pods) < 3)
    report = stage.schedule()
    assert (len(report.launched), report.unschedulable) == (1, 3)
    assert stage.meter.counts["ClaimsTooLarge"] == 1
    assert any("larger than" in item["message"] for item in stage.server.list("events").items)
    records = len(stage.recorder.records)
    again = stage.schedule()
    assert (again.launched, again.unschedulable, again.rounds, again.unfinished) == ((), 3, 1, "")
    assert len(stage.recorder.records) == records, "nothing was decided"


def test_the_garbage_collector_pauses_until_the_pods_are_gone_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, paused = Stage(), list[bool]()
    known = schedule_flow.plan_without_moves_under_way

    def noting(priced: PricedSnapshot) -> tuple[PricedSnapshot, Plan]:
        paused.append(not gc.isenabled())
        return known(priced)

    monkeypatch.setattr(schedule_flow, "plan_without_moves_under_way", noting)
    stage.add_pods(1)
    assert gc.isenabled()
    stage.schedule()
    assert paused == [True]
    assert gc.isenabled()
