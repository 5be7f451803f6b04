"""Sick nodes are rebooted where a policy says so: once, and replaced if that does not heal them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.disruption.repair.reboots import LEAVE_S, REMEMBERED_S, RETURN_S, SEND_S
from shiplap.disruption.repair.repair_policies import RepairPolicy
from shiplap.errors import AwsError, AwsThrottled, AwsUnavailable
from shiplap.kubernetes import labels
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim, Reboots
from shiplap_lab.fakes.faults import Crash
from tests.integration.flows.guards import guard
from tests.integration.flows.leaving import claim_now, evicted, first, play_out, serving
from tests.integration.flows.stage import Stage

GPU = "AcceleratedHardwareReady"
REBOOT = RepairPolicy(GPU, "False", ".*XID48.*", "10m", action="Reboot")


def with_reboots(pods: int = 1, *policies: RepairPolicy) -> Stage:
    """Nodes in service, one per pod, and a fresh count of the instances that are rebooted."""
    stage = serving(pods)
    stage.settings = msgspec.structs.replace(stage.settings, repair_policies=policies or (REBOOT,))
    return stage


def fall_sick(stage: Stage, claim: NodeClaim, *, reason: str = "NvidiaXID48Error", for_s: float = 3600) -> None:
    since = rfc3339(stage.clock.now() - for_s)
    say(stage, claim, {"type": GPU, "status": "False", "reason": reason, "lastTransitionTime": since})


def say(stage: Stage, claim: NodeClaim, *conditions: dict[str, str], boot: str = "") -> None:
    """The node reports conditions, merged by type, and its boot."""
    status = stage.server.get("nodes", claim.node_name)["status"]
    known = {item["type"]: item for item in status["conditions"]} | {item["type"]: item for item in conditions}
    info = {"nodeInfo": {"bootID": boot}} if boot else {}
    changed = {"status": {"conditions": list(known.values()), **info}}
    stage.server.patch("nodes", claim.node_name, changed, subresource="status")


def ready(status: str) -> dict[str, str]:
    return {"type": "Ready", "status": status}


def come_back(stage: Stage, claim: NodeClaim, *, boot: str = "boot-2", heals: bool = True) -> None:
    healthy = {"type": GPU, "status": "True", "lastTransitionTime": rfc3339(stage.clock.now())}
    say(stage, claim, ready("True"), *([healthy] if heals else []), boot=boot)


def pods_gone(stage: Stage) -> None:
    """Kubelets end the pods that were evicted."""
    for item in stage.server.list("pods").items:
        if item["metadata"].get("deletionTimestamp"):
            stage.server.delete("pods", item["metadata"]["name"], item["metadata"]["namespace"], grace_s=0)


def pass_time(stage: Stage, seconds: float, step_s: float = 15.0) -> None:
    """Sweeps each minute and timers in between."""
    end = stage.clock.now() + seconds
    while stage.clock.now() < end:
        stage.clock.advance(min(step_s, end - stage.clock.now()))
        stage.sweep()
        stage.attend_timers()
        pods_gone(stage)


def rebooted(stage: Stage) -> list[str]:
    """Ids of the instances that EC2 has rebooted, from now on."""
    found: list[str] = []
    stage.compute.on_reboot.append(lambda instance: found.append(instance.id))
    return found


def taints(stage: Stage, claim: NodeClaim) -> set[tuple[str, str]]:
    spec = stage.server.get("nodes", claim.node_name)["spec"]
    return {(taint["key"], taint["effect"]) for taint in spec.get("taints", ())}


def is_initialized(stage: Stage, claim: NodeClaim) -> bool:
    marks: dict[str, str] = stage.server.get("nodes", claim.node_name)["metadata"]["labels"]
    return marks.get(labels.INITIALIZED) == "true"


FENCE = (labels.REBOOTING_TAINT, "NoSchedule")


def test_a_sick_node_is_emptied_rebooted_once_and_in_service_again() -> None:
    stage = with_reboots(2)
    claim, other = stage.claims()
    sent = rebooted(stage)
    fall_sick(stage, claim)
    stage.sweep()
    assert claim_now(stage, claim).is_rebooting
    stage.attend_timers()
    assert taints(stage, claim) == {FENCE}
    assert not is_initialized(stage, claim)
    assert len(evicted(stage)) == 1, "its pod leaves first"
    assert sent == []
    pods_gone(stage)
    pass_time(stage, 15)
    assert sent == [claim.instance_id]
    say(stage, claim, ready("False"))
    pass_time(stage, 120)
    say(stage, claim, ready("False"), boot="boot-2")
    pass_time(stage, 60)
    assert taints(stage, claim) == set(), "another boot has begun"
    assert not is_initialized(stage, claim)
    come_back(stage, claim)
    pass_time(stage, 60)
    after = claim_now(stage, claim)
    assert (after.state, after.is_rebooting) == (ClaimState.INITIALIZED, False)
    assert is_initialized(stage, claim)
    assert after.reboots.asked_at != ()
    assert sent == [claim.instance_id]
    assert claim_now(stage, other).version == other.version
    assert stage.meter.counts["NodesRebooted"] == 1
    assert "NodesRepaired" not in stage.meter.counts
    events = [event["reason"] for event in stage.server.list("events").items if "Reboot" in event["reason"]]
    assert events == ["RebootIssued", "RebootSucceeded"]


def test_its_pods_wait_for_the_node_and_nothing_is_launched_for_them() -> None:
    stage = with_reboots()
    claim, _ = first(stage)
    fall_sick(stage, claim)
    launched = len(stage.compute.launches)
    pass_time(stage, 30)
    stage.add_pods(1, cpu="1200m", memory="2Gi", prefix="again")
    say(stage, claim, ready("False"))
    pass_time(stage, 300)
    assert len(stage.compute.launches) == launched
    come_back(stage, claim)
    pass_time(stage, 60)
    assert stage.bind() == 1


def test_nothing_is_rebooted_without_a_policy_that_says_so() -> None:
    stage = serving()
    sent = rebooted(stage)
    claim, _ = first(stage)
    fall_sick(stage, claim)
    stage.sweep()
    assert claim_now(stage, claim).state is ClaimState.DRAINING
    play_out(stage)
    assert sent == []


@pytest.mark.parametrize(
    "policies",
    [
        (REBOOT, RepairPolicy(GPU, "False", ".*48.*", "10m")),
        (replace(REBOOT, reason=".*XID79.*"),),
    ],
)
def test_a_reason_that_asks_for_a_replacement_too_gets_one(policies: tuple[RepairPolicy, ...]) -> None:
    stage = with_reboots(1, *policies)
    claim, _ = first(stage)
    fall_sick(stage, claim)
    stage.sweep()
    assert claim_now(stage, claim).state is ClaimState.DRAINING


def test_a_node_that_stays_sick_is_rebooted_twice_and_then_replaced() -> None:
    stage = with_reboots()
    claim, _ = first(stage)
    sent = rebooted(stage)
    fall_sick(stage, claim)
    for number in (1, 2):
        pass_time(stage, 120)
        assert len(sent) == number
        come_back(stage, claim, boot=f"boot-after-{number}", heals=False)
        pass_time(stage, 60)
        assert not claim_now(stage, claim).is_rebooting
        pass_time(stage, 480)
        assert len(sent) == number, "the condition is waited out anew"
        pass_time(stage, 120)
    assert claim_now(stage, claim).state in (ClaimState.DRAINING, ClaimState.TERMINATING, ClaimState.GONE)
    assert len(sent) == 2


def test_a_day_later_a_reboot_is_tried_again() -> None:
    stage = with_reboots()
    claim, _ = first(stage)
    now = stage.clock.now()
    stage.state.advance(claim, claim.state, reboots=Reboots((now - REMEMBERED_S, now - 60), ended_at=now - 30))
    fall_sick(stage, claim)
    stage.clock.advance(900)
    stage.sweep()
    assert claim_now(stage, claim).is_rebooting


@pytest.mark.parametrize("boots", [False, True])
def test_a_node_that_does_not_come_back_is_replaced(*, boots: bool) -> None:
    stage = with_reboots()
    claim, _ = first(stage)
    fall_sick(stage, claim)
    pass_time(stage, 60)
    say(stage, claim, ready("Unknown"), boot="boot-2" if boots else "")
    pass_time(stage, RETURN_S - 120)
    assert claim_now(stage, claim).is_rebooting
    pass_time(stage, 180)
    assert claim_now(stage, claim).failure == "NodeUnhealthy"
    assert stage.meter.counts["RebootsFailed"] == 1
    play_out(stage)
    assert claim_now(stage, claim).state is ClaimState.GONE


def test_pods_that_a_budget_keeps_stay_through_the_reboot() -> None:
    stage = with_reboots()
    claim, _ = first(stage)
    sent = rebooted(stage)
    guard(stage)
    fall_sick(stage, claim)
    pass_time(stage, LEAVE_S - 15)
    assert sent == []
    pass_time(stage, 75)
    assert sent == [claim.instance_id]
    assert evicted(stage) == []


@pytest.mark.parametrize("error", [AwsThrottled("slow down", code="RequestLimitExceeded"), AwsUnavailable("again")])
def test_what_ec2_did_not_take_is_asked_again_for_a_while(error: AwsError) -> None:
    stage = with_reboots()
    claim, _ = first(stage)
    sent = rebooted(stage)
    stage.faults.on("before", "compute.reboot", error)
    fall_sick(stage, claim)
    pass_time(stage, 120)
    assert sent == [claim.instance_id]
    assert stage.meter.counts["RebootsRefused"] == 1


def test_a_node_that_ec2_never_reboots_is_replaced() -> None:
    stage = with_reboots()
    claim, _ = first(stage)
    stage.faults.always("compute.reboot", AwsThrottled("slow down", code="RequestLimitExceeded"))
    fall_sick(stage, claim)
    pass_time(stage, LEAVE_S + SEND_S - 60)
    assert claim_now(stage, claim).is_rebooting
    pass_time(stage, 120)
    assert claim_now(stage, claim).failure == "NodeUnhealthy"


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "InvalidInstanceID.NotFound"])
def test_a_refusal_that_stays_replaces_the_node_at_once(code: str) -> None:
    stage = with_reboots()
    claim, _ = first(stage)
    stage.faults.on("before", "compute.reboot", AwsError("no", code=code))
    fall_sick(stage, claim)
    pass_time(stage, 30)
    assert claim_now(stage, claim).failure == "NodeUnhealthy"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", [AwsError("reset"), AwsError("no", code="ServiceUnavailable")])
def test_a_lost_answer_is_waited_for_and_never_asked_for_twice(when: str, error: AwsError) -> None:
    stage = with_reboots()
    claim, _ = first(stage)
    sent = rebooted(stage)
    stage.faults.on("before" if when == "before" else "after", "compute.reboot", error)
    fall_sick(stage, claim)
    pass_time(stage, 600)
    assert len(sent) == (1 if when == "after" else 0)
    assert "before compute.reboot" in stage.faults.points
    assert stage.faults.points.count("before compute.reboot") == 1
    if when == "after":
        come_back(stage, claim)
        pass_time(stage, 60)
        assert is_initialized(stage, claim)
    else:
        pass_time(stage, RETURN_S - 600 + 60)
        assert claim_now(stage, claim).failure == "NodeUnhealthy"


def test_an_instance_that_ends_while_it_is_rebooted_is_written_off() -> None:
    stage = with_reboots()
    claim, instance = first(stage)
    stage.clock.advance(600)
    fall_sick(stage, claim)
    pass_time(stage, 30)
    say(stage, claim, ready("Unknown"))
    stage.compute.lose(instance.id)
    pass_time(stage, 60)
    assert claim_now(stage, claim).state is ClaimState.GONE


def test_an_interruption_takes_a_node_that_is_rebooted() -> None:
    stage = with_reboots()
    claim, _ = first(stage)
    sent = rebooted(stage)
    fall_sick(stage, claim)
    stage.sweep()
    held = claim_now(stage, claim)
    stage.state.advance(held, ClaimState.DRAINING, failure="SpotInterruption", changed_at=stage.clock.now())
    pass_time(stage, 60)
    assert sent == []


def test_rebooted_nodes_count_as_in_repair_and_use_up_the_budgets() -> None:
    stage = with_reboots(5)
    for claim in stage.claims()[:2]:
        fall_sick(stage, claim)
    stage.sweep()
    assert not any(claim.is_rebooting for claim in stage.claims()), "more than a fifth is sick"
    come_back(stage, stage.claims()[1], boot="boot-1")
    stage.sweep()
    assert [claim.is_rebooting for claim in stage.claims()] == [True, False, False, False, False]
    fall_sick(stage, stage.claims()[1])
    pass_time(stage, 60)
    assert [claim.is_rebooting for claim in stage.claims()] == [True, False, False, False, False]


def test_three_reboots_of_one_ami_within_an_hour_are_too_many() -> None:
    stage = with_reboots(20)
    sent = rebooted(stage)
    for claim in stage.claims()[:3]:
        fall_sick(stage, claim)
        pass_time(stage, 60)
        if claim_now(stage, claim).is_rebooting:
            come_back(stage, claim)
            pass_time(stage, 60)
    assert len(sent) == 2
    assert stage.meter.counts["RepairsStopped"] > 0


def test_a_reboot_of_one_cluster_is_none_of_another() -> None:
    stage = with_reboots()
    other = Stage(stage.settings.manifests.node_pools, spot=True, beside=stage)
    other.settings = replace(other.settings, repair_policies=(REBOOT,))
    other.add_pods(1, cpu="1200m", memory="2Gi")
    other.play_on()
    mine, theirs = rebooted(stage), rebooted(other)
    claim, _ = first(stage)
    fall_sick(stage, claim)
    pass_time(stage, 60)
    pass_time(other, 60)
    assert (mine, theirs) == ([claim.instance_id], [])


def test_a_reboot_that_an_older_release_forgot_leaves_no_fence_behind() -> None:
    stage = with_reboots()
    claim, _ = first(stage)
    fall_sick(stage, claim)
    stage.sweep()
    stage.attend_timers()
    assert taints(stage, claim) == {FENCE}
    held = claim_now(stage, claim)
    stage.state.advance(held, held.state, reboots=Reboots())
    come_back(stage, claim, boot="boot-2")
    pass_time(stage, 60)
    assert taints(stage, claim) == set()
    assert is_initialized(stage, claim)


def heal(stage: Stage, claim: NodeClaim, sent: list[str]) -> None:
    """Play until the reboot is over: the node comes back two minutes after EC2 was asked."""
    for _ in range(40):
        pass_time(stage, 60, step_s=30)
        if sent:
            come_back(stage, claim)
        if not claim_now(stage, claim).is_rebooting:
            return


def begin_reboot(stage: Stage, *, pods_left: bool) -> NodeClaim:
    claim, _ = first(stage)
    fall_sick(stage, claim)
    stage.sweep()
    if not pods_left:
        stage.attend_timers()
        pods_gone(stage)
        stage.clock.advance(15)
    stage.faults.clear()
    return claim


def until_back(stage: Stage) -> NodeClaim:
    claim = begin_reboot(stage, pods_left=False)
    stage.attend_timers()
    come_back(stage, claim)
    stage.clock.advance(60)
    stage.sweep()
    stage.faults.clear()
    return claim


def until_sick(stage: Stage) -> NodeClaim:
    claim, _ = first(stage)
    fall_sick(stage, claim)
    stage.faults.clear()
    return claim


ACTS: dict[str, tuple[Callable[[Stage], NodeClaim], Callable[[Stage], object]]] = {
    "ask": (until_sick, Stage.sweep),
    "fence": (partial(begin_reboot, pods_left=True), Stage.attend_timers),
    "send": (partial(begin_reboot, pods_left=False), Stage.attend_timers),
    "return": (until_back, Stage.attend_timers),
}


def points_of(act: str) -> list[str]:
    stage = with_reboots()
    prepare, run = ACTS[act]
    prepare(stage)
    run(stage)
    return list(stage.faults.points)


CASES = [
    pytest.param(act, number, id=f"{act}-{number:02d}-{point.replace(' ', '-')}")
    for act in ACTS
    for number, point in enumerate(points_of(act))
]


def test_the_rehearsals_pass_every_effect_of_a_reboot() -> None:
    passed = {point.partition(" ")[2] for act in ACTS for point in points_of(act)}
    assert passed >= {"state.advance", "cluster.patch_node", "cluster.evict", "compute.reboot", "timers.remind"}


@pytest.mark.parametrize(("act", "number"), CASES)
def test_a_death_between_any_two_effects_reboots_no_node_twice(act: str, number: int) -> None:
    stage = with_reboots()
    sent = rebooted(stage)
    prepare, run = ACTS[act]
    claim = prepare(stage)
    stage.faults.crash_at(number)
    with pytest.raises(Crash):
        run(stage)
    stage.faults.clear()
    heal(stage, claim, sent)
    assert len(sent) <= 1
    known = claim_now(stage, claim)
    if sent:
        assert known.state is ClaimState.INITIALIZED
        assert (is_initialized(stage, claim), taints(stage, claim)) == (True, set())
        assert not known.is_rebooting
    else:  # written down as sent, and it was not: nobody can know
        assert known.failure == "NodeUnhealthy"
