"""The lifecycle flow: nodes that join, are too small, come late, or never come."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from shiplap.errors import AwsError, AwsThrottled, ClusterError, ClusterUnreachable, ConditionFailed, ObjectConflict
from shiplap.flows import claim_events, cluster_metrics
from shiplap.flows.interrupt.notices import NoticeKind
from shiplap.flows.lifecycle import lifecycle
from shiplap.flows.lifecycle.endings import never_joined
from shiplap.flows.lifecycle.lifecycle import LifecycleReport, WantedVisits, visit_all
from shiplap.flows.messages import NodeSeen, PodsPending, Timer
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Taint
from shiplap.kubernetes.quantity import parse_resources
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.ports import Instance
from shiplap_lab.fakes.signals import FakeMeter
from tests.builders.claims import node_claim
from tests.builders.pools import family_pool
from tests.integration.flows.stage import CLUSTER, Stage, share
from tests.learned_amounts import smallest_allocatable, smallest_capacity

ONLY_LARGE = (family_pool("any", ("m6i",), sizes=("large",)),)
TINY = share(0.88)
"""Less than the formula's 92.5 %, more than the careful 87.5 % less 128 MiB."""


def launched(stage: Stage, **pods: str) -> NodeClaim:
    stage.add_pods(1, **pods)
    stage.schedule()
    (claim,) = stage.claims()
    return claim


def with_startup_taint(base: NodePool) -> NodePool:
    """The pool with a startup taint."""
    taint = Taint("example.com/agent", "NoExecute")
    spec = structs.replace(base.spec.template.spec, startup_taints=(taint,))
    template = structs.replace(base.spec.template, spec=spec)
    return structs.replace(base, spec=structs.replace(base.spec, template=template))


def test_registration_opens_the_node_and_learns_its_capacity() -> None:
    stage = Stage()
    claim = launched(stage)
    stage.join()
    report = stage.attend()
    assert report.registered == report.initialized == (claim.name,)
    (node,) = stage.cluster.nodes()
    assert node.spec.taints == ()
    expected = {
        labels.REGISTERED: "true",
        labels.INITIALIZED: "true",
        labels.NODE_POOL: "flex",
        labels.NODE_CLAIM: claim.name,
        labels.CAPACITY_TYPE: "on-demand",
        labels.INSTANCE_TYPE: claim.known_instance.type,
        labels.ZONE: claim.known_instance.zone,
        "karpenter.k8s.aws/instance-family": "c7i-flex",
        "karpenter.k8s.aws/instance-size": claim.known_instance.type.partition(".")[2],
    }
    assert expected.items() <= node.metadata.labels.items()
    (learned,) = stage.capacity.all()
    assert (learned.ami, learned.instance_type) == (claim.known_instance.ami, claim.known_instance.type)
    assert learned.recent[-1].capacity == stage.true_capacity(claim.known_instance.type)
    assert learned.recent[-1].predicted == claim.plan.allocatable
    (claim,) = stage.claims()
    assert (claim.state, claim.node_name, claim.missed) == (ClaimState.INITIALIZED, node.metadata.name, False)
    assert [e.detail_type for e in stage.bus.events] == [
        claim_events.LAUNCHED,
        claim_events.REGISTERED,
        claim_events.INITIALIZED,
    ]


def test_the_truth_is_stored_before_the_claim_advances_and_before_the_node_is_opened() -> None:
    stage = Stage()
    launched(stage)
    stage.join()
    stage.faults.clear()
    stage.attend()
    effects = [point.removeprefix("after ") for point in stage.faults.points if point.startswith("after ")]
    first = {name: effects.index(name) for name in ("capacity.observe", "state.advance", "cluster.patch_node")}
    assert first["capacity.observe"] < first["state.advance"] < first["cluster.patch_node"]


def test_repeated_hints_change_nothing() -> None:
    stage = Stage()
    launched(stage)
    stage.join()
    stage.attend()
    before = stage.claims(), stage.cluster.nodes(), stage.capacity.all()
    for _ in range(3):
        report = stage.attend()
        assert (report.registered, report.initialized, report.ended) == ((), (), ())
    assert (stage.claims(), stage.cluster.nodes(), stage.capacity.all()) == before


def test_a_node_that_is_not_ready_is_registered_and_initialized_later() -> None:
    stage = Stage()
    claim = launched(stage)
    stage.join(ready=False)
    report = stage.attend()
    assert (report.registered, report.initialized) == ((claim.name,), ())
    (node,) = stage.cluster.nodes()
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    stage.server.patch("nodes", node.metadata.name, ready, subresource="status")
    assert stage.attend().initialized == (claim.name,)


def test_a_node_whose_kubelet_has_not_reported_is_looked_at_again() -> None:
    stage = Stage()
    claim = launched(stage)
    stage.join()
    (node,) = stage.cluster.nodes()
    empty = {"status": {"capacity": None, "allocatable": None}}
    stage.server.patch("nodes", node.metadata.name, empty, subresource="status")
    stage.timers.reminders.clear()
    assert stage.attend().registered == ()
    assert stage.capacity.all() == ()
    (timer,) = stage.timers.reminders
    assert (timer.claim, timer.delay_s) == (claim.name, 15)


def test_startup_taints_are_set_and_hold_back_initialization_until_they_are_gone() -> None:
    stage = Stage((with_startup_taint(family_pool("any", ("m6i",))),))
    claim = launched(stage)
    stage.join()
    report = stage.attend()
    assert (report.registered, report.initialized) == ((claim.name,), ())
    (node,) = stage.cluster.nodes()
    assert [taint.key for taint in node.spec.taints] == ["example.com/agent"]
    stage.server.patch("nodes", node.metadata.name, {"spec": {"taints": []}})
    assert stage.attend().initialized == (claim.name,)
    assert stage.cluster.nodes()[0].spec.taints == ()


def test_conflicts_with_other_controllers_are_answered_with_a_fresh_read() -> None:
    stage = Stage()
    launched(stage)
    stage.join()

    def interfere() -> None:
        stage.server.patch("nodes", stage.cluster.nodes()[0].metadata.name, {"metadata": {"labels": {"x": "y"}}})

    stage.faults.on("before", "cluster.patch_node", interfere)
    assert stage.attend().registered
    (node,) = stage.cluster.nodes()
    assert node.metadata.labels["x"] == "y"
    assert node.metadata.labels[labels.REGISTERED] == "true"


def test_a_node_that_keeps_changing_is_tried_again_later() -> None:
    stage = Stage()
    launched(stage)
    stage.join()
    for number in range(5):
        conflict = ObjectConflict("changed", status=409)
        stage.faults.on("before", "cluster.patch_node", conflict, nth=number + 1)
    with pytest.raises(ObjectConflict):
        stage.attend()
    stage.attend()
    assert stage.cluster.nodes()[0].metadata.labels[labels.REGISTERED] == "true"


def test_a_claim_that_fails_does_not_hold_up_the_others() -> None:
    stage = Stage(ONLY_LARGE)
    stage.add_pods(3, cpu="1200m", memory="2Gi")
    stage.schedule()
    first, *others = sorted(stage.claims(), key=lambda claim: claim.name)
    stage.join()
    stage.faults.on("before", "cluster.patch_node", ClusterError("label refused", status=422))
    with pytest.raises(ClusterError, match="label refused"):
        stage.attend(*(Timer(CLUSTER, claim.name, "register") for claim in (first, *others)))
    states = {claim.name: claim.state for claim in stage.claims()}
    assert {states[claim.name] for claim in others} == {ClaimState.INITIALIZED}
    stage.play_on()
    assert {claim.state for claim in stage.claims()} == {ClaimState.INITIALIZED}


def test_an_api_server_out_of_reach_is_not_asked_for_every_claim() -> None:
    stage = Stage(ONLY_LARGE)
    stage.add_pods(3, cpu="1200m", memory="2Gi")
    stage.schedule()
    stage.join()
    stage.faults.clear()
    stage.faults.on("before", "cluster.patch_node", ClusterUnreachable("no route"))
    with pytest.raises(ClusterUnreachable):
        stage.attend(*(Timer(CLUSTER, claim.name, "register") for claim in stage.claims()))
    assert stage.faults.points.count("before cluster.patch_node") == 1


def test_a_node_smaller_than_planned_is_a_miss_and_the_retry_does_not_miss() -> None:
    stage = Stage((family_pool("any", ("c7i", "m6i", "r6i")),), true_memory=TINY)
    stage.add_pods(1, cpu="500m", memory=f"{_between(stage.types['c7i.large'], stage)}")
    stage.schedule()
    (claim,) = stage.claims()
    assert claim.known_instance.type == "c7i.large"
    assert claim.known_instance.type in claim.plan.relies_on_estimate
    stage.join()
    stage.attend()
    assert stage.claims()[0].missed
    assert stage.meter.counts["NodeClaimsMissed"] == 1
    assert len(stage.bus.of_type(claim_events.MISSED)) == 1
    hints = [hint for hint in stage.told() if isinstance(hint, PodsPending)]
    assert [pod.uid for pod in hints[0].pods] == ["uid-web-000"]
    stage.bind()
    assert stage.pending() == 1
    stage.schedule(*hints)
    second = next(c for c in stage.claims() if c.name != claim.name)
    assert second.plan.relies_on_estimate == ()
    stage.play_on()
    assert stage.meter.counts["NodeClaimsMissed"] == 1
    assert len(stage.compute.launches) == 2


GPU = "nvidia.com/gpu"


@pytest.mark.parametrize("reported", [2, 1])
def test_what_a_device_plugin_reports_late_is_learned_before_the_node_is_complete(reported: int) -> None:
    stage = Stage()
    claim = launched(stage)
    plan = structs.replace(claim.plan, requests={**claim.plan.requests, GPU: 2})
    stage.state.advance(claim, ClaimState.LAUNCHED, plan=plan)
    stage.join()
    assert (stage.attend().registered, stage.attend().initialized) == ((claim.name,), ())
    smallest = (smallest_capacity, smallest_allocatable)
    assert not any(GPU in read(stage.capacity.all()[0]) for read in smallest)
    (node,) = stage.cluster.nodes()
    late = {field: {GPU: str(reported)} for field in ("capacity", "allocatable")}
    stage.server.patch("nodes", node.metadata.name, {"status": late}, subresource="status")
    assert stage.attend().initialized == (claim.name,)
    assert [read(stage.capacity.all()[0])[GPU] for read in smallest] == [reported, reported]
    is_short = reported < 2
    assert stage.claims()[0].missed is is_short
    assert len(stage.bus.of_type(claim_events.MISSED)) == is_short
    assert len(stage.state.read(CLUSTER, stage.clock.now()).missed_pods) == is_short


def test_a_miss_is_known_to_the_next_plan_even_when_its_node_was_never_registered() -> None:
    stage = Stage((family_pool("any", ("c7i", "m6i", "r6i")),), true_memory=TINY)
    stage.add_pods(1, cpu="500m", memory=f"{_between(stage.types['c7i.large'], stage)}")
    (first,) = stage.schedule().launched
    stage.join()
    stage.sweep()  # every event of the node was lost
    (second,) = [claim for claim in stage.claims() if claim.name != first]
    assert second.plan.relies_on_estimate == ()
    assert "uid-web-000" in stage.state.read(CLUSTER, stage.clock.now()).missed_pods
    stage.play_on()
    assert stage.pending() == 0
    assert len([claim for claim in stage.claims() if claim.missed]) == 1


def test_a_crowd_of_nodes_that_join_at_once_is_learned_from_in_a_few_writes() -> None:
    stage = serving_capacity(40)
    stage.faults.clear()
    stage.sweep()
    assert stage.faults.points.count("before capacity.observe") == 1
    assert stage.faults.points.count("before state.mark_missed") == 0


@pytest.mark.parametrize(("memory", "is_missed"), [("5600Mi", True), ("2048Mi", False)])
def test_of_a_crowd_the_smallest_node_teaches_and_all_that_miss_are_known(memory: str, is_missed: bool) -> None:
    """A node that seems broken teaches, too, and its pods may rely on estimates again."""
    stage = serving_capacity(40, "6000Mi")
    shrunk = stage.server.list("nodes").items[7]
    for field in ("capacity", "allocatable"):
        shrunk["status"][field]["memory"] = memory
    stage.server.patch("nodes", shrunk["metadata"]["name"], {"status": shrunk["status"]}, subresource="status")
    stage.sweep()
    [learned] = stage.capacity.all()
    assert smallest_capacity(learned)["memory"] == int(memory.removesuffix("Mi")) << 20
    assert len(stage.state.read(CLUSTER, stage.clock.now()).missed_pods) == is_missed


def serving_capacity(nodes: int, memory: str = "3Gi") -> Stage:
    """Nodes of one type, a pod each, that have joined; every event of theirs was lost."""
    stage = Stage((family_pool("any", ("m6i",), sizes=("large",)),))
    stage.add_pods(1, cpu="1200m", memory="3Gi", prefix="pilot")
    stage.play_on()
    stage.add_pods(nodes, cpu="1200m", memory=memory)
    stage.schedule()
    stage.join()
    return stage


def _between(kind: InstanceType, stage: Stage) -> int:
    """A request that fits the estimate but not the tiny node, bytes."""
    really = stage.true_capacity(kind.name)["memory"] - kind.overhead["memory"]
    return (kind.allocatable["memory"] + really) // 2


def test_an_instance_that_never_joins_is_ended_and_its_pods_get_another() -> None:
    stage = Stage()
    claim = launched(stage)
    (timer,) = stage.timers.reminders
    assert timer.delay_s == 900
    stage.clock.advance(899)
    assert stage.attend(Timer(CLUSTER, claim.name, "join")).ended == ()
    assert len(stage.compute.alive()) == 1
    stage.clock.advance(2)
    assert stage.attend(Timer(CLUSTER, claim.name, "join")).ended == (claim.name,)
    assert stage.compute.alive() == ()
    assert stage.claims() == ()
    assert stage.state.claim(CLUSTER, claim.name).failure == "did not join within 901 s"
    hints = [hint for hint in stage.told() if isinstance(hint, PodsPending)]
    assert stage.schedule(*hints).launched
    stage.play_on()


def test_a_node_that_joins_at_the_last_moment_is_kept() -> None:
    stage = Stage()
    claim = launched(stage)
    stage.clock.advance(1000)
    stage.join()
    assert stage.attend(Timer(CLUSTER, claim.name, "join")).registered == (claim.name,)
    assert len(stage.compute.alive()) == 1


def test_a_node_that_joins_while_its_claim_is_given_up_is_never_opened_to_pods() -> None:
    stage = Stage()
    claim = launched(stage)
    stage.clock.advance(1000)
    (instance,) = stage.compute.alive()
    stage.faults.on("before", "compute.terminate", lambda: (stage.join(instance), stage.attend()))
    stage.attend(Timer(CLUSTER, claim.name, "join"))
    (node,) = stage.cluster.nodes()
    assert [taint.key for taint in node.spec.taints] == [labels.UNREGISTERED_TAINT]
    assert stage.compute.alive() == ()


def test_an_instance_that_vanishes_before_it_joins_fails_its_claim() -> None:
    stage = Stage()
    claim = launched(stage)
    stage.compute.lose(claim.instance_id)
    stage.clock.advance(130)
    stage.sweep()
    assert stage.attend(*stage.due()).ended == (claim.name,)
    (failed,) = stage.claims()
    assert failed.state is ClaimState.FAILED
    assert failed.failure.startswith(f"its instance {claim.instance_id} ended before it joined: Client.UserInitiated")
    stage.play_on()


def test_an_instance_that_ec2_has_forgotten_fails_its_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    claim = launched(stage)
    stage.compute.lose(claim.instance_id)
    monkeypatch.setattr(stage.compute, "ended", lambda *_: None)
    stage.clock.advance(130)
    stage.sweep()
    assert stage.attend(*stage.due()).ended == (claim.name,)
    (failed,) = stage.claims()
    assert (failed.state, failed.failure) == (ClaimState.FAILED, f"instance {claim.instance_id} is gone")


def test_describing_that_lags_behind_a_launch_ends_nothing() -> None:
    stage = Stage()
    stage.compute.describe_lag_s = 90
    claim = launched(stage)
    stage.clock.advance(60)
    stage.sweep()
    assert stage.attend(Timer(CLUSTER, claim.name, "vanished")).ended == ()
    stage.play_on()
    assert len(stage.compute.launches) == 1


def test_an_instance_in_service_that_vanishes_takes_its_claim_with_it() -> None:
    stage = Stage()
    claim = launched(stage)
    stage.play_on()
    stage.compute.lose(claim.instance_id)
    stage.server.delete("nodes", stage.cluster.nodes()[0].metadata.name)
    stage.clock.advance(200)
    stage.sweep()
    assert stage.attend(*stage.due()).ended == (claim.name,)
    assert stage.claims() == ()
    assert len(stage.bus.of_type(claim_events.TERMINATED)) == 1


def _fall_silent(stage: Stage) -> None:
    """The kubelet of the only node reports no more."""
    (node,) = stage.cluster.nodes()
    unready = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    stage.server.patch("nodes", node.metadata.name, unready, subresource="status")


def test_a_silent_node_whose_instance_has_vanished_ends_its_claim() -> None:
    stage = Stage()
    claim = launched(stage)
    stage.play_on()
    _fall_silent(stage)
    stage.compute.lose(claim.instance_id)
    stage.clock.advance(500)
    assert stage.attend().ended == (claim.name,)
    assert stage.claims() == ()


def test_an_unready_node_of_an_instance_that_exists_is_left_alone() -> None:
    stage = Stage()
    claim = launched(stage)
    stage.play_on()
    _fall_silent(stage)
    stage.clock.advance(500)
    assert stage.attend().ended == ()
    assert stage.state.claim(CLUSTER, claim.name).state is ClaimState.INITIALIZED


def test_an_instance_without_a_claim_is_ended_after_a_grace_and_two_looks() -> None:
    stage = Stage()
    now = stage.clock.now()
    about = {"launched_at": now, "cluster": CLUSTER, "claim": "x", "install": stage.settings.install}
    stage.compute.add(Instance("i-stray", "m6i.large", "eu-west-1a", "on-demand", "ami", "running", **about))
    stage.sweep()
    assert stage.due() == []
    stage.clock.advance(130)
    stage.sweep()
    assert stage.meter.counts["InstancesWithoutClaim"] == 1
    assert len(stage.compute.alive()) == 1
    assert stage.attend(*stage.due()).ended == ("x",)
    assert stage.compute.alive() == ()


def test_an_instance_without_a_claim_whose_node_is_in_service_is_only_reported() -> None:
    stage = Stage()
    now = stage.clock.now()
    about = {"launched_at": now, "cluster": CLUSTER, "claim": "x", "install": stage.settings.install}
    stray = Instance("i-stray", "m6i.large", "eu-west-1a", "on-demand", "ami", "running", **about)
    stage.compute.add(stray)
    stage.server.create("nodes", {"metadata": {"name": "stray"}, "spec": {"providerID": stray.provider_id}})
    stage.clock.advance(500)
    stage.sweep()
    assert stage.attend(*stage.due()).ended == ()
    assert len(stage.compute.alive()) == 1
    assert stage.meter.counts["NodesWithoutClaim"] == 1


def test_instances_of_others_are_never_touched() -> None:
    stage = Stage()
    stage.compute.add(Instance("i-other", "m6i.large", "eu-west-1a", "on-demand", "ami", "running", 0.0, "prod", "x"))
    stage.compute.add(Instance("i-plain", "m6i.large", "eu-west-1a", "on-demand", "ami", "running", 0.0))
    stage.sweep()
    stage.attend(Timer(CLUSTER, "x", "garbage"))
    assert len(stage.compute.alive()) == 2


def test_nodes_of_others_are_counted_and_left_alone() -> None:
    stage = Stage()
    stage.server.create("nodes", {"metadata": {"name": "theirs"}, "spec": {"providerID": "aws:///eu-west-1a/i-0abc"}})
    stage.server.create("nodes", {"metadata": {"name": "fargate"}, "spec": {"providerID": "aws:///z/abc/fargate-x"}})
    before = stage.cluster.nodes()
    assert stage.attend().foreign_nodes == 2
    assert stage.cluster.nodes() == before
    assert stage.meter.counts["NodesNotOurs"] == 2


def test_a_node_seen_before_its_launch_is_written_down_is_looked_at_again() -> None:
    stage = Stage()
    stage.add_pods(1)
    seen: list[LifecycleReport] = []

    def join_at_once() -> None:
        stage.join()
        seen.append(stage.attend())

    stage.faults.on("after", "compute.launch", join_at_once)
    stage.schedule()
    assert seen[0].registered == ()
    assert [timer.delay_s for timer in stage.timers.reminders] == [15, 900]
    stage.clock.advance(15)
    assert len(stage.attend(*stage.due()).registered) == 1


def test_a_hint_for_a_node_that_is_gone_finds_its_claim_by_the_instance() -> None:
    stage = Stage()
    claim = launched(stage)
    provider_id = f"aws:///{claim.known_instance.zone}/{claim.instance_id}"
    report = stage.attend(NodeSeen(CLUSTER, "ip-gone", provider_id))
    assert (report.registered, report.ended, report.foreign_nodes) == ((), (), 0)


def test_two_lifecycle_functions_at_once_register_once() -> None:
    stage = Stage()
    launched(stage)
    stage.join()
    stage.faults.on("before", "state.advance", stage.attend)
    stage.attend()
    assert len(stage.bus.of_type(claim_events.REGISTERED)) == 1
    assert len(stage.meter.seen["LaunchToJoined"]) == len(stage.meter.seen["MemoryBeyondPlan"]) == 1
    assert stage.meter.counts["ClaimsLost"] == 1
    assert stage.claims()[0].state is ClaimState.INITIALIZED


def test_a_registered_claim_whose_node_was_not_opened_is_opened_by_the_next_hint() -> None:
    stage = Stage()
    launched(stage)
    stage.join()
    stage.faults.on("before", "cluster.patch_node", ConditionFailed("stands for any end in between"))
    stage.attend()
    assert stage.cluster.nodes()[0].spec.taints
    assert stage.claims()[0].state is ClaimState.REGISTERED
    stage.attend()
    assert stage.cluster.nodes()[0].spec.taints == ()
    assert stage.claims()[0].state is ClaimState.INITIALIZED


def test_a_node_that_never_reports_what_it_has_is_given_up_at_its_deadline() -> None:
    stage = Stage()
    claim = launched(stage)
    stage.join()
    stage.server.patch("nodes", stage.cluster.nodes()[0].metadata.name, {"status": None}, subresource="status")
    stage.clock.advance(901)
    assert stage.attend(Timer(CLUSTER, claim.name, "join")).ended == (claim.name,)
    assert stage.compute.alive() == ()


def test_timers_that_come_early_do_not_breed_timers() -> None:
    stage = Stage()
    claim = launched(stage)
    stage.timers.reminders.clear()
    for step in ("join", "register", "vanished"):
        stage.attend(Timer(CLUSTER, claim.name, step))
    assert stage.timers.reminders == []


def test_a_claim_whose_node_is_deleted_is_ended_after_a_grace() -> None:
    stage = Stage()
    claim = launched(stage)
    stage.play_on()
    stage.server.delete("nodes", stage.cluster.nodes()[0].metadata.name)
    stage.clock.advance(200)
    stage.sweep()
    assert stage.attend(*stage.due()).ended == ()
    assert len(stage.compute.alive()) == 1
    stage.clock.advance(301)
    assert stage.attend(*stage.due()).ended == (claim.name,)
    assert stage.compute.alive() == ()
    assert stage.claims() == ()
    assert any(isinstance(hint, PodsPending) for hint in stage.told())


def test_a_node_that_comes_back_within_the_grace_keeps_its_instance() -> None:
    stage = Stage()
    claim = launched(stage)
    stage.play_on()
    node = stage.server.delete("nodes", stage.cluster.nodes()[0].metadata.name)
    stage.clock.advance(200)
    stage.sweep()
    stage.attend(*stage.due())
    assert stage.state.claim(CLUSTER, claim.name).deadline_at > 0
    metadata = {"name": node["metadata"]["name"], "labels": node["metadata"]["labels"]}
    stage.server.create("nodes", {"metadata": metadata, "spec": node["spec"], "status": node["status"]})
    stage.clock.advance(301)
    stage.sweep()
    assert stage.attend(*stage.due()).ended == ()
    assert stage.state.claim(CLUSTER, claim.name).deadline_at == 0
    assert len(stage.compute.alive()) == 1


def test_a_node_of_the_same_name_but_another_instance_is_not_the_claims() -> None:
    stage = Stage()
    claim = launched(stage)
    stage.play_on()
    node = stage.server.delete("nodes", stage.cluster.nodes()[0].metadata.name)
    heir = {"metadata": {"name": node["metadata"]["name"]}, "spec": {"providerID": "aws:///eu-west-1a/i-heir"}}
    stage.server.create("nodes", heir)
    stage.clock.advance(200)
    for _ in range(2):
        stage.sweep()
        stage.attend(*stage.due())
        stage.clock.advance(301)
    assert stage.state.claim(CLUSTER, claim.name).state is ClaimState.GONE
    assert "karpenter.sh/nodepool" not in stage.cluster.nodes()[0].metadata.labels


def test_a_second_instance_with_the_tag_of_a_claim_in_service_is_ended() -> None:
    stage = Stage()
    claim = launched(stage)
    stage.play_on()
    (own,) = stage.compute.alive()
    stage.compute.add(structs.replace(own, id="i-second"))
    stage.clock.advance(200)
    stage.sweep()
    assert stage.attend(*stage.due()).ended == (claim.name,)
    assert stage.compute.alive() == (own,)
    assert stage.state.claim(CLUSTER, claim.name).state is ClaimState.INITIALIZED


def test_ec2_is_not_asked_about_nodes_that_bear_no_mark_of_ours() -> None:
    stage = Stage()
    stage.server.create("nodes", {"metadata": {"name": "theirs"}, "spec": {"providerID": "aws:///eu-west-1a/i-0abc"}})
    stage.faults.clear()
    stage.attend()
    assert "before compute.instances" not in stage.faults.points


def test_instances_that_ec2_ends_none_of_now_are_not_asked_for_one_by_one() -> None:
    stage = Stage(ONLY_LARGE)
    stage.add_pods(3, cpu="1200m", memory="2Gi")
    stage.schedule()
    for claim in stage.claims():
        stage.state.advance(claim, ClaimState.TERMINATING)
    stage.faults.clear()
    stage.faults.on("before", "compute.terminate", AwsThrottled("slow down"))
    timers = [Timer(CLUSTER, claim.name, "terminate") for claim in stage.claims()]
    with pytest.raises(AwsThrottled):
        stage.attend(*timers)
    assert stage.faults.points.count("before compute.terminate") == 1
    stage.attend(*timers)
    assert stage.compute.alive() == ()


def test_registration_measures_the_memory_and_how_long_the_node_took_to_join() -> None:
    stage = Stage()
    claim = launched(stage)
    stage.clock.advance(35.0)
    stage.join()
    stage.attend()
    assert stage.meter.seen["LaunchToJoined"] == [(pytest.approx(35.0), ())]
    (node,) = stage.cluster.nodes()
    found = FakeMeter()
    cluster_metrics.measure_memory(claim, parse_resources(node.status.allocatable), found)
    assert found.seen.keys() <= stage.meter.seen.keys()
    for name in found.seen:
        assert stage.meter.seen[name] == found.seen[name], name


def test_no_time_is_less_than_nothing_where_clocks_of_functions_are_apart() -> None:
    stage = Stage()
    claim = launched(stage)
    stage.state.advance(claim, claim.state, changed_at=stage.clock.now() + 90.0)
    stage.join()
    stage.attend()
    (registered,) = stage.claims()
    stage.state.advance(registered, registered.state, changed_at=stage.clock.now() + 90.0)
    stage.attend()

    assert stage.meter.seen["LaunchToJoined"] == stage.meter.seen["JoinedToReady"] == [(0.0, ())]
    (learned,) = stage.joins.read(CLUSTER).pools
    assert learned.register_s == learned.initialize_s == (0.0,)


@pytest.mark.parametrize(
    ("failure", "node_name", "expected"),
    [
        (NoticeKind.STOPPED, "", True),
        (NoticeKind.TERMINATED, "", True),
        (NoticeKind.TERMINATED, "ip-1", False),
        (NoticeKind.SPOT, "", False),
        ("", "", False),
    ],
)
def test_an_instance_that_stopped_or_ended_before_it_had_a_node_never_joined(
    failure: str, node_name: str, expected: bool
) -> None:
    claim = node_claim(name="a", state=ClaimState.TERMINATING, failure=failure, node_name=node_name)
    assert never_joined(claim) is expected


def test_nodes_that_joined_are_visited_before_others_and_each_by_name() -> None:
    visited: list[tuple[str, bool]] = []

    class Visits:
        def visit(self, name: str, *, seen: bool) -> None:
            visited.append((name, seen))

        def clear(self, name: str) -> None:
            visited.append((f"cleared {name}", False))

    visits: Any = Visits()
    wanted = WantedVisits(dict.fromkeys("dbca", ()), seen="dc", garbage="b", strangers=0, failures=())
    assert visit_all(visits, wanted) == {}
    assert visited == [("c", True), ("d", True), ("a", False), ("cleared b", False), ("b", False)]


def test_a_hint_that_fails_leaves_the_other_hints_of_its_cluster_done() -> None:
    stage = Stage()
    claim = launched(stage)
    stage.join()
    (node,) = stage.cluster.nodes()
    honest = NodeSeen(CLUSTER, node.metadata.name, node.spec.provider_id)
    hostile = NodeSeen(CLUSTER, "odd", "aws:///eu-west-1a/i-odd")
    stage.faults.on("before", "compute.instance", AwsError("InvalidInstanceID.Malformed"))
    report = lifecycle.visit_claims(stage.settings, (hostile, honest), stage.context)
    assert [(failure.hint, str(failure.error)) for failure in report.failures] == [
        (hostile, "InvalidInstanceID.Malformed")
    ]
    assert report.registered == (claim.name,)


def test_the_hints_of_a_claim_that_fails_are_named_and_those_of_another_are_done() -> None:
    stage = Stage()
    stage.add_pods(1, selector={labels.ZONE: "eu-west-1a"})
    stage.add_pods(1, selector={labels.ZONE: "eu-west-1b"}, prefix="api")
    stage.schedule()
    stage.join()
    timers = [Timer(CLUSTER, claim.name, "join") for claim in stage.claims()]
    stage.faults.on("before", "cluster.patch_node", ClusterError("refused"))
    report = lifecycle.visit_claims(stage.settings, timers, stage.context)
    assert [failure.hint for failure in report.failures] == timers[:1]
    assert report.registered == (timers[1].claim,)


def forged(stage: Stage, instance: Instance, *, tainted: bool = False, **metadata: Any) -> NodeSeen:
    """A Node that another kubelet has made with the providerID of an instance; the hint that names it."""
    taints = [{"key": labels.UNREGISTERED_TAINT, "effect": "NoExecute"}] if tainted else []
    node = {
        "metadata": {"name": "aaa-forged", **metadata},
        "spec": {"providerID": instance.provider_id, "taints": taints},
        "status": {"capacity": {"cpu": "96"}, "allocatable": {"cpu": "96"}, "conditions": [READY]},
    }
    stage.server.create("nodes", node)
    return NodeSeen(CLUSTER, "aaa-forged", instance.provider_id)


READY = {"type": "Ready", "status": "True"}


@pytest.mark.parametrize("metadata", [{}, {"labels": {labels.REGISTERED: "true"}}])
@pytest.mark.parametrize("honest_is_there", [False, True])
def test_a_node_without_the_taint_of_its_user_data_is_refused_and_the_honest_one_registered(
    honest_is_there: bool, metadata: dict[str, Any]
) -> None:
    stage = Stage()
    claim = launched(stage)
    (instance,) = stage.compute.alive()
    if honest_is_there:
        stage.join(instance)
    report = stage.attend(forged(stage, instance, **metadata))
    assert report.registered == ((claim.name,) if honest_is_there else ())
    assert stage.meter.counts["NodesRefused"] == 1
    if not honest_is_there:
        assert stage.capacity.all() == ()  # what it reports is not learned
        stage._join(instance, ready=True)
        stage.attend(NodeSeen(CLUSTER, instance.private_dns, instance.provider_id))
    (registered,) = stage.claims()
    assert registered.node_name == instance.private_dns


def test_of_two_nodes_with_one_provider_id_that_with_the_name_of_the_instance_is_registered() -> None:
    stage = Stage()
    launched(stage)
    (instance,) = stage.compute.alive()
    stage.join(instance)
    hints = forged(stage, instance, tainted=True), NodeSeen(CLUSTER, instance.private_dns, instance.provider_id)
    stage.attend(*hints)
    (registered,) = stage.claims()
    assert registered.node_name == instance.private_dns
    assert stage.meter.counts["NodesRefused"] == 1
