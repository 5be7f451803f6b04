"""Frozen launches: nothing is launched any more, what was begun ends, and nodes are still emptied."""

from __future__ import annotations

import msgspec

from shiplap.errors import AwsUnavailable, ConditionFailed
from shiplap.flows.claim_updates import GRACE_S
from shiplap.flows.schedule.launch import LEASE_S
from shiplap.manifests.nodeclaim import SCHEMA, ClaimState
from shiplap_cli.commands.install.node_draining import UNINSTALLED, DrainedCluster, drain_cluster
from shiplap_lab.fakes.faults import Crash
from tests.integration.flows.disrupted import Disrupted, kinds, oversized
from tests.integration.flows.stage import Stage


def freeze(stage: Stage) -> None:
    stage.state.freeze([stage.name], stage.clock.now())


def states(stage: Stage) -> list[ClaimState]:
    return sorted(claim.state for claim in stage.claims())


def test_nothing_is_launched_until_launches_go_on() -> None:
    stage = Stage()
    stage.add_pods(2)
    freeze(stage)
    assert stage.schedule().launched == stage.sweep().launched == ()
    assert stage.compute.launches == []
    assert stage.meter.counts["InvocationsPaused"] == 2
    stage.state.unfreeze()
    stage.play_on()
    assert stage.pending() == 0


def test_a_pod_that_waits_is_told_why() -> None:
    stage = Stage()
    stage.add_pods(1)
    freeze(stage)
    stage.sweep()
    assert any("launches are frozen" in event["message"] for event in stage.server.list("events").items)


def test_a_freeze_between_plan_and_commit_wins() -> None:
    stage = Stage()
    stage.add_pods(2)
    stage.faults.on("before", "state.commit", lambda: freeze(stage))
    assert stage.schedule().launched == ()
    assert stage.compute.launches == []
    assert stage.claims() == ()


def test_a_claim_that_was_written_but_not_launched_fails() -> None:
    stage = Stage()
    stage.add_pods(2)
    stage.faults.on("after", "state.commit", Crash())
    assert stage.dies(stage.schedule)
    assert set(states(stage)) == {ClaimState.PLANNED}
    freeze(stage)
    stage.clock.advance(LEASE_S + 1)
    stage.sweep()
    assert set(states(stage)) == {ClaimState.FAILED}
    assert stage.compute.launches == []


def test_an_instance_whose_launch_was_not_answered_gets_its_claim() -> None:
    stage = Stage()
    stage.add_pods(1)
    stage.faults.on("after", "compute.launch", Crash())
    assert stage.dies(stage.schedule)
    freeze(stage)
    stage.clock.advance(LEASE_S + 1)
    stage.sweep()
    assert states(stage) == [ClaimState.LAUNCHED]
    assert len(stage.compute.launches) == 1


def test_a_launch_that_may_have_been_sent_is_waited_for_and_never_repeated() -> None:
    stage = Stage()
    stage.add_pods(1)
    stage.faults.on("before", "compute.launch", AwsUnavailable("no answer"))
    stage.schedule()
    assert states(stage) == [ClaimState.LAUNCHING]
    freeze(stage)
    stage.clock.advance(LEASE_S + 1)
    stage.sweep()
    assert states(stage) == [ClaimState.LAUNCHING]
    stage.clock.advance(GRACE_S)
    stage.sweep()
    assert states(stage) == [ClaimState.FAILED]
    assert stage.compute.launches == []


def test_no_disruption_begins() -> None:
    stage = oversized()
    freeze(stage)
    stage.minutes(12)
    assert kinds(stage) == ["m6i.2xlarge"]
    stage.state.unfreeze()
    stage.minutes(12)
    assert kinds(stage) == ["m6i.large"]


def test_a_replacement_that_was_not_launched_is_given_up_and_the_node_stays() -> None:
    stage = oversized()
    stage.disrupt()
    stage.clock.advance(60)
    assert len(stage.disrupt().begun) == 1
    freeze(stage)
    stage.minutes(12)
    assert kinds(stage) == ["m6i.2xlarge"]
    assert states(stage) == [ClaimState.FAILED, ClaimState.INITIALIZED]
    assert stage.tainted() == []


class TestDrain:
    def test_every_node_ends_whatever_its_claim_was(self) -> None:
        stage = Disrupted()
        stage.add_pods(2)
        stage.play_on()
        stage.add_pods(40, prefix="more")
        stage.prove_pending_kinds()
        stage.schedule()
        assert set(states(stage)) == {ClaimState.INITIALIZED, ClaimState.LAUNCHED}
        freeze(stage)
        seen = drain_cluster(stage.settings, stage.state, stage.clock.now())
        assert set(seen.begun) == {claim.name for claim in stage.claims()}
        assert set(states(stage)) == {ClaimState.DRAINING, ClaimState.TERMINATING}
        assert {claim.failure for claim in stage.claims()} == {UNINSTALLED}
        again = drain_cluster(stage.settings, stage.state, stage.clock.now())
        assert again == DrainedCluster(ending=tuple(sorted(seen.begun)))
        for _ in range(10):
            stage.around()
        assert stage.compute.alive() == ()
        assert drain_cluster(stage.settings, stage.state, stage.clock.now()) == DrainedCluster()
        assert stage.pending() == 42

    def test_pods_are_ended_by_the_deadline_at_the_latest(self) -> None:
        stage = Disrupted()
        stage.add_pods(1)
        stage.play_on()
        now = stage.clock.now()
        drain_cluster(stage.settings, stage.state, now, grace_s=600)
        assert [claim.deadline_at for claim in stage.claims()] == [now + 600]

    def test_what_a_function_or_a_newer_release_writes_is_left_to_it(self) -> None:
        stage = Disrupted()
        stage.add_pods(1)
        stage.play_on()
        stage.faults.on("before", "state.advance", ConditionFailed("changed"))
        assert drain_cluster(stage.settings, stage.state, stage.clock.now()) == DrainedCluster()
        (known,) = stage.claims()
        newer = msgspec.structs.replace(known, schema=SCHEMA + 1)
        stage.state._put(newer)
        assert drain_cluster(stage.settings, stage.state, stage.clock.now()) == DrainedCluster(newer=(known.name,))
        assert states(stage) == [ClaimState.INITIALIZED]
