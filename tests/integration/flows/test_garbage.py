"""Tests the removal of instances and Nodes without a claim, and of everything launched for a cluster that is gone."""

from __future__ import annotations

import json

import msgspec
import pytest

from shiplap.aws.eks import api_server
from shiplap.errors import AwsError, ClusterGone
from shiplap.flows.lifecycle.lifecycle import NODE_GRACE_S
from shiplap.flows.messages import NodeSeen
from shiplap.flows.sweep.sweep import MOST_REMINDERS
from shiplap.kubernetes import labels
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.ports import Instance
from shiplap.settings import ClusterSettings
from tests.aws_faults import AwsFaults
from tests.integration.contracts.in_process_aws import aws_in_process, make_client
from tests.integration.flows.leaving import claim_now, first, serving
from tests.integration.flows.stage import Stage


class Deleted:
    """Stands in for a cluster that EKS does not know any more: whatever is asked of it fails."""

    def __getattr__(self, name: str) -> object:
        raise ClusterGone("no cluster found for name: demo", status=404)


def gone(stage: Stage) -> None:
    stage.context = msgspec.structs.replace(stage.context, cluster=Deleted())


def names(stage: Stage) -> set[str]:
    return {item["metadata"]["name"] for item in stage.server.list("nodes").items}


def stray(stage: Stage, number: int = 1, cluster: str = "", **tags: str) -> Instance:
    """An instance with a cluster's tags, launched a while ago, that no claim knows."""
    instance = Instance(
        id=f"i-0000000000000ff{number:02d}",
        instance_type="m6i.large",
        zone="eu-west-1a",
        capacity_type="on-demand",
        ami="ami-1",
        state="running",
        launched_at=stage.clock.now() - 600,
        node_pool="any",
        **{"cluster": cluster or stage.name, "install": stage.settings.install, "claim": f"lost-{number}", **tags},
    )
    stage.compute.add(instance)
    return instance


def alive(stage: Stage) -> set[str]:
    return {instance.id for instance in stage.compute.alive()}


def test_many_instances_without_a_claim_end_on_the_second_look() -> None:
    stage = serving()
    strays = {stray(stage, number).id for number in range(1, 21)}
    stage.sweep()
    assert strays <= alive(stage)  # one look ends nothing
    stage.attend_timers()
    assert not strays & alive(stage)
    assert stage.meter.counts["GarbageTerminated"] == 20
    assert first(stage)[1].id in alive(stage)


def test_one_sweep_reminds_of_some_hundreds_and_the_next_of_others() -> None:
    stage = Stage()
    for number in range(700):
        stray(stage, number)
    stage.sweep()
    first_turn = {reminder.claim for reminder in stage.timers.reminders}
    stage.timers.reminders.clear()
    stage.clock.advance(60)
    stage.sweep()
    second_turn = {reminder.claim for reminder in stage.timers.reminders}
    assert len(first_turn) == len(second_turn) == MOST_REMINDERS
    assert len(first_turn | second_turn) == 700


def test_an_instance_that_is_ending_is_nobodys_garbage() -> None:
    stage = serving()
    strays = [stray(stage, number) for number in range(1, 4)]
    for instance in strays:  # EC2 shows them so for minutes after their claim has ended
        stage.compute.add(msgspec.structs.replace(instance, state="shutting-down"))
    stage.sweep()
    assert stage.timers.reminders == []
    assert "InstancesWithoutClaim" not in stage.meter.counts


def test_instances_of_another_cluster_are_never_touched() -> None:
    stage = serving()
    other = stray(stage, cluster="other")
    for _ in range(3):
        stage.sweep()
        stage.attend_timers()
        stage.clock.advance(60)
    assert other.id in alive(stage)


@pytest.mark.parametrize("install", ["another", ""])
def test_instances_that_do_not_say_they_are_this_installs_are_never_garbage(install: str) -> None:
    stage = serving()
    other = stray(stage, install=install)
    for _ in range(3):
        stage.sweep()
        stage.attend_timers()
        stage.clock.advance(60)
    assert other.id in alive(stage)
    assert stage.meter.counts["InstancesOfOtherInstalls"] == 3
    assert "InstancesWithoutClaim" not in stage.meter.counts


def test_an_instance_older_than_the_tag_of_its_install_is_garbage_if_its_claim_was_ours() -> None:
    stage = serving()
    (claim,) = stage.claims()
    double = stray(stage, install="", claim="", launch=claim.launch.token)
    stage.sweep()
    stage.attend_timers()
    assert double.id not in alive(stage)
    assert claim.instance_id in alive(stage)
    assert "InstancesOfOtherInstalls" not in stage.meter.counts


def test_many_strays_of_one_batch_of_messages_are_looked_up_once() -> None:
    stage = serving()
    strays = {stray(stage, number).id for number in range(1, 11)}
    stage.sweep()
    stage.faults.clear()
    stage.attend_timers()
    assert not strays & alive(stage)
    assert stage.faults.points.count("before compute.instances") == 1


def test_a_marked_node_of_others_is_looked_up_by_its_instance_alone() -> None:
    stage = serving()
    marks = {labels.NODE_POOL: "theirs"}
    node = {"metadata": {"name": "theirs", "labels": marks}, "spec": {"providerID": "aws:///eu-west-1a/i-0abc"}}
    stage.server.create("nodes", node)
    stage.faults.clear()
    assert stage.attend(NodeSeen(stage.name, "theirs", "aws:///eu-west-1a/i-0abc")).foreign_nodes == 1
    assert "before compute.instances" not in stage.faults.points


def orphan(stage: Stage, *, ready: bool = False) -> str:
    """A Node whose claim has ended and whose instance is gone; returns its name."""
    claim, instance = first(stage)
    stage.compute.terminate(stage.name, instance.id)
    stage.clock.advance(121)
    status = {"conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}]}
    stage.server.patch("nodes", claim.node_name, {"status": status}, subresource="status")
    claim = stage.state.advance(claim, ClaimState.DRAINING)
    stage.state.advance(claim, ClaimState.GONE, changed_at=stage.clock.now())
    return claim.node_name


def test_a_node_that_outlives_its_instance_is_removed() -> None:
    stage = serving(2)
    name = orphan(stage)
    stage.sweep()
    assert name in names(stage)
    stage.attend_timers()
    assert name not in names(stage)
    assert len(names(stage)) == 1
    assert stage.meter.counts["NodesCleared"] == 1


def test_a_node_that_has_just_fallen_silent_is_left_to_the_clouds_own_controller() -> None:
    stage = serving(2)
    name = orphan(stage)
    silent = {"type": "Ready", "status": "Unknown", "lastTransitionTime": rfc3339(stage.clock.now())}
    stage.server.patch("nodes", name, {"status": {"conditions": [silent]}}, subresource="status")
    stage.sweep()
    assert stage.timers.reminders == []
    stage.clock.advance(121)
    stage.sweep()
    stage.attend_timers()
    assert name not in names(stage)


def test_a_node_that_still_reports_is_left_alone() -> None:
    stage = serving(2)
    name = orphan(stage, ready=True)
    stage.sweep()
    stage.attend_timers()
    assert name in names(stage)


def test_nodes_that_only_look_like_ours_are_left_alone() -> None:
    stage = serving()
    marks = {labels.NODE_CLAIM: "somebody-else", labels.NODE_POOL: "any", labels.REGISTERED: "true"}
    node = {"metadata": {"name": "theirs", "labels": marks}, "spec": {"providerID": "aws:///eu-west-1a/i-0abc"}}
    stage.server.create("nodes", node)
    stage.sweep()
    stage.attend_timers()
    assert "theirs" in names(stage)


def test_what_was_launched_for_a_cluster_ends_some_time_after_it() -> None:
    stage = serving(3)
    lost = stray(stage)
    gone(stage)
    report = stage.sweep()
    assert (report.launched, report.unfinished) == ((), "")
    assert stage.meter.counts["ClustersGone"] == 1
    stage.attend_timers()
    assert lost.id not in alive(stage)
    assert len(alive(stage)) == 3  # seen to be gone once
    stage.clock.advance(NODE_GRACE_S - 1)
    stage.sweep()
    stage.attend_timers()
    assert len(alive(stage)) == 3
    stage.clock.advance(1)
    stage.timers.reminders.clear()  # the sweep finds them without
    stage.sweep()
    stage.attend_timers()
    assert alive(stage) == set()
    assert {claim.state for claim in stage.claims()} <= {ClaimState.GONE}


def test_reminders_of_what_has_ended_are_no_error_when_the_cluster_is_gone() -> None:
    stage = serving(2)
    orphan(stage)
    stage.sweep()
    gone(stage)
    stage.attend_timers()
    assert "NodesCleared" not in stage.meter.counts


def test_a_cluster_that_is_back_keeps_its_nodes() -> None:
    stage = serving()
    claim, _ = first(stage)
    there = stage.context
    gone(stage)
    stage.sweep()
    stage.attend_timers()
    assert claim_now(stage, claim).deadline_at > 0
    stage.context = there
    stage.clock.advance(NODE_GRACE_S)
    stage.sweep()
    stage.attend_timers()
    assert (claim_now(stage, claim).state, claim_now(stage, claim).deadline_at) == (ClaimState.INITIALIZED, 0.0)


def test_pending_pods_of_a_cluster_that_is_gone_are_nobodys_business() -> None:
    stage = serving()
    gone(stage)
    assert stage.schedule().launched == ()
    assert stage.timers.reminders == []


@pytest.mark.parametrize(
    ("code", "error"), [("ResourceNotFoundException", ClusterGone), ("AccessDeniedException", AwsError)]
)
def test_only_eks_itself_can_say_that_a_cluster_is_gone(code: str, error: type[Exception]) -> None:
    with aws_in_process():
        eks = make_client("eks")
        body = json.dumps({"message": "No cluster found for name: demo.", "__type": code})
        AwsFaults(eks).answer("DescribeCluster", body, status=404)
        with pytest.raises(error):
            api_server(ClusterSettings(name="demo", region="eu-west-1"), lambda: eks)


def test_what_is_launched_while_a_sweep_reads_is_taken_neither_for_garbage_nor_for_anothers() -> None:
    """Its claim exists before its instance, so that a sweep that sees the instance must know the claim."""
    stage = Stage()
    stage.compute.install = ""  # nothing but the claim says whose the instance is
    stage.add_pods(1, cpu="1200m", memory="2Gi", prefix="late")
    stage.faults.on("before", "compute.instances", stage.schedule)
    stage.sweep()
    assert len(stage.compute.launches) == 1
    assert "InstancesOfOtherInstalls" not in stage.meter.counts
    assert "InstancesWithoutClaim" not in stage.meter.counts
