"""A claim that a newer release wrote counts, but nothing is launched, drained or ended on account of it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shiplap.manifests.nodeclaim import SCHEMA, ClaimState, NodeClaim
from shiplap_lab.fakes.faults import Crash
from tests.builders.claims import with_fields
from tests.integration.flows.disrupted import kinds, oversized
from tests.integration.flows.leaving import claim_now, first, serving, warning
from tests.integration.flows.stage import Stage

S = ClaimState


def of_newer_release(stage: Stage, claim: NodeClaim, **fields: object) -> NodeClaim:
    """The claim as another release has written it since."""
    newer = with_fields(claim, **{"schema": SCHEMA + 1, "version": claim.version + 1, "deadline_at": 1.0, **fields})
    stage.state._put(newer)
    return newer


def hours_pass(stage: Stage) -> None:
    for _ in range(20):
        stage.sweep()
        stage.attend_timers()
        stage.attend()
        stage.clock.advance(360)


@pytest.mark.parametrize("state", [S.LAUNCHED, S.REGISTERED, S.INITIALIZED, S.DISRUPTING, S.DRAINING, S.TERMINATING])
def test_its_instance_and_its_node_are_left_alone(state: ClaimState) -> None:
    stage = serving()
    claim, instance = first(stage)
    newer = of_newer_release(stage, claim, state=state)
    hours_pass(stage)
    stage.interrupt(warning(stage, instance.id))
    stage.attend_timers()
    assert claim_now(stage, claim) == newer
    assert instance in stage.compute.alive()
    assert all(pod["spec"].get("nodeName") for pod in stage.server.list("pods").items)


@pytest.mark.parametrize("state", [S.PLANNED, S.LAUNCHING])
def test_it_is_not_launched_nor_failed_and_counts_for_its_pods(state: ClaimState) -> None:
    stage = Stage()
    stage.add_pods(1)

    def die() -> None:
        raise Crash

    stage.faults.on("after", "state.commit", die)
    assert stage.dies(stage.schedule)
    stage.faults.clear()
    (claim,) = stage.claims()
    newer = of_newer_release(stage, claim, state=state)
    hours_pass(stage)
    assert stage.claims() == (newer,)
    assert stage.compute.alive() == ()


def test_its_node_is_not_disrupted() -> None:
    stage = oversized()
    (claim,) = stage.claims()
    newer = of_newer_release(stage, claim, deadline_at=0.0)
    stage.minutes(12)
    assert stage.claims() == (newer,)
    assert kinds(stage) == ["m6i.2xlarge"]
    assert stage.tainted() == []


def test_a_command_takes_no_step() -> None:
    stage = oversized()
    stage.disrupt()
    stage.clock.advance(60)
    stage.disrupt()
    (command,) = stage.state.commands(stage.name)
    newer = replace(command, schema=SCHEMA + 1, version=command.version + 1)
    stage.state._put_command(newer)
    stage.minutes(12)
    assert stage.state.commands(stage.name) == (newer,)
    assert kinds(stage) == ["m6i.2xlarge", "m6i.large"]
