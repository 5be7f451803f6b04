"""Tests the writes, events and counts of one look of the disrupt function, and the objects that it leaves alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.disruption.commands import Method, Reason
from shiplap.disruption.progress import READY_S, CommandState, DisruptionCommand
from shiplap.errors import ClusterUnreachable, ConditionFailed, ShiplapError, StoreError
from shiplap.flows.disrupt.disruption_round import DisruptionReport
from shiplap.flows.planning.futile_launches import IN_VAIN_S
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.manifests.template_hash import HASH_VERSION, NODE_CLASS_HASH_VERSION
from shiplap.ports import Refusals
from tests.builders.claims import with_fields
from tests.integration.flows.disrupted import Disrupted, decided_on, oversized

DISRUPTED = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}


def begun(stage: Disrupted | None = None) -> tuple[Disrupted, DisruptionReport]:
    """A stage after the second look at one oversized node."""
    stage = stage or oversized()
    stage.disrupt()
    stage.clock.advance(60)
    stage.timers.reminders.clear()
    stage.bus.events.clear()
    stage.meter.counts.clear()
    stage.meter.seen.clear()
    return stage, stage.disrupt()


def command_of(stage: Disrupted) -> DisruptionCommand:
    (command,) = stage.state.commands(stage.name)
    return command


def states(stage: Disrupted) -> dict[str, ClaimState]:
    return {claim.name: claim.state for claim in stage.claims()}


def test_a_command_names_its_nodes_its_claims_and_what_it_saves() -> None:
    stage = oversized()
    (old,) = stage.claims()
    stage, report = begun(stage)
    command = command_of(stage)
    assert report == DisruptionReport(begun=(command.name,))
    (new,) = (claim for claim in stage.claims() if claim.name != old.name)
    assert (command.targets, command.nodes, command.replacements) == ((old.name,), (old.node_name,), (new.name,))
    assert (command.reason, command.method, command.receiving) == (Reason.UNDERUTILIZED, Method.CONSOLIDATION, ())
    assert command.savings_hourly == pytest.approx(old.hourly - new.hourly)
    assert command.created_at == command.changed_at == stage.clock.now()
    assert command.detail == "1 of $0.3840 an hour become 1"
    assert command.state is CommandState.WAITING


def test_replacements_are_owned_by_nobody_and_launched_by_the_next_sweep() -> None:
    stage, _ = begun()
    new = next(claim for claim in stage.claims() if claim.state is ClaimState.PLANNED)
    now = stage.clock.now()
    assert (new.launch.owner, new.deadline_at, new.created_at) == ("", now, now)
    assert (new.cause.first_event_at, new.is_replacement) == (now, True)
    assert new.launch.token != ""
    assert new.name == f"default-{command_of(stage).name}-0"
    assert new.plan.annotations[NODE_CLASS_HASH_VERSION] == HASH_VERSION
    assert new.most_hourly == 0.0
    (hint,) = stage.bus.of_type("PodPending")
    assert (hint.detail["id"], hint.detail["reason"]) == (new.cause.event_id, "Disruption")
    assert [pod[1] for pod in hint.detail["pods"]] == ["web-000"]
    assert stage.sweep().launched == (new.name,)


def test_nodes_are_closed_and_claims_disrupting_at_once() -> None:
    stage, _ = begun()
    (old,) = (claim for claim in stage.claims() if claim.state is ClaimState.DISRUPTING)
    assert stage.tainted() == [old.node_name]
    assert stage.meter.counts["CommandsBegun"] == 1
    assert "SavingsHourly" not in stage.meter.counts


def test_what_keeps_nodes_is_counted_for_the_cluster() -> None:
    stage = oversized()
    (pool,) = stage.settings.manifests.node_pools
    plain = msgspec.to_builtins(pool)
    plain["spec"]["disruption"]["budgets"] = [{"nodes": "0"}]
    manifests = replace(stage.settings.manifests, node_pools=(msgspec.convert(plain, NodePool),))
    stage.settings = replace(stage.settings, manifests=manifests)
    report = stage.disrupt()
    assert (report.blocked, report.proposed, report.begun) == (1, 0, ())
    assert stage.meter.seen["NodesNotDisruptable"] == [(1, (("cluster", stage.name),))]
    assert "NodesOverdue" not in stage.meter.counts


def test_an_expired_node_that_a_protected_pod_keeps_is_counted() -> None:
    stage = oversized(template={"expireAfter": "1m"})
    stage.server.patch("pods", "web-000", {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}})
    stage.disrupt()
    assert stage.meter.seen["NodesOverdue"] == [(1, (("cluster", stage.name),))]
    assert stage.meter.seen["NodesNotDisruptable"] == [(1, (("cluster", stage.name),))]


@pytest.mark.parametrize("field", [{"paused": True}, {"suspended": "Karpenter runs here"}])
def test_nothing_is_looked_at_while_the_cluster_is_at_rest(field: dict[str, Any]) -> None:
    stage = oversized()
    stage.disrupt()
    stage.clock.advance(60)
    stage.settings = replace(stage.settings, paused="paused" in field)
    stage.manifest_state = replace(stage.manifest_state, **{k: v for k, v in field.items() if k != "paused"})
    assert stage.disrupt() == DisruptionReport()
    assert stage.state.commands(stage.name) == ()
    assert stage.meter.counts.get("InvocationsPaused") == (1.0 if "paused" in field else None)


def done(stage: Disrupted) -> list[DisruptionReport]:
    reports = []
    for _ in range(12):
        reports.append(stage.disrupt())
        stage.around()
    return reports


def test_a_command_ends_once_and_says_what_it_saved(caplog: pytest.LogCaptureFixture) -> None:
    stage, first = begun()
    saved = command_of(stage).savings_hourly
    with caplog.at_level("DEBUG", logger="shiplap"):
        reports = done(stage)
    told = [item.levelname for item in caplog.records if item.getMessage() == "disruption"]
    assert told == ["INFO" if report.done else "DEBUG" for report in reports]
    assert {item.levelname for item in caplog.records if "command is" in item.getMessage()} == {"INFO"}
    assert [report.done for report in reports if report.done] == [first.begun]
    assert stage.meter.counts["CommandsDone"] == stage.meter.counts["CommandsRemoving"] == 1
    assert stage.meter.counts["SavingsHourly"] == pytest.approx(saved)
    assert all(report.undone == () for report in reports)


@pytest.mark.parametrize(("grace", "deadline_s"), [(None, None), ("7m", 420.0)])
def test_a_node_that_goes_says_why_and_has_the_deadline_of_its_pool(
    grace: str | None, deadline_s: float | None
) -> None:
    stage, _ = begun(oversized(template={} if grace is None else {"terminationGracePeriod": grace}))
    (target,), reason = command_of(stage).targets, command_of(stage).reason
    for _ in range(10):
        stage.around()
        stage.timers.reminders.clear()
        stage.disrupt()
        claim = stage.state.claim(stage.name, target)
        if claim is not None and claim.state is ClaimState.DRAINING:
            break
    assert claim is not None
    assert (claim.state, claim.failure) == (ClaimState.DRAINING, str(reason))
    assert claim.deadline_at == (0.0 if deadline_s is None else claim.changed_at + deadline_s)
    assert claim.changed_at == stage.clock.now()
    assert (target, "drain", 0) in [(item.claim, item.step, item.delay_s) for item in stage.timers.reminders]


def undone(stage: Disrupted) -> DisruptionReport:
    """The replacement is never launched; the command is given up when its time is over."""
    stage.clock.advance(READY_S + 1)
    for claim in stage.claims():
        if claim.state is ClaimState.PLANNED:
            stage.state.advance(claim, ClaimState.FAILED, failure="no capacity", changed_at=stage.clock.now())
    return stage.disrupt()


def test_looks_that_propose_or_begin_something_are_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", logger="shiplap")
    _, report = begun()
    assert (report.begun != (), report.proposed) == (True, 0)
    assert [item.levelname for item in caplog.records if item.getMessage() == "disruption"] == ["INFO", "INFO"]


def test_a_command_that_is_given_up_opens_its_node_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", logger="shiplap")
    stage, first = begun()
    report = undone(stage)
    assert [item.levelname for item in caplog.records if "command is Undone" in item.getMessage()] == ["WARNING"]
    assert [item.levelname for item in caplog.records if item.getMessage() == "disruption"][-1] == "INFO"
    assert (report.undone, report.done) == (first.begun, ())
    assert stage.tainted() == []
    assert ClaimState.DISRUPTING not in states(stage).values()
    assert stage.meter.counts["CommandsUndone"] == 1
    assert "TaintsLeftOver" not in stage.meter.counts, "the same step opens it"
    assert "SavingsHourly" not in stage.meter.counts
    (kept,) = stage.state.contents()[1]
    assert kept.state is CommandState.UNDONE
    assert kept.failure != ""
    assert kept.changed_at == stage.clock.now()


def test_a_node_that_is_not_the_claims_any_more_is_not_opened() -> None:
    """Another instance has its name."""
    stage, _ = begun()
    (node,) = stage.server.list("nodes").items
    taints = node["spec"]["taints"]
    stage.server.delete("nodes", node["metadata"]["name"])
    body = {
        "metadata": {"name": node["metadata"]["name"]},
        "spec": {"providerID": "aws:///a/i-other", "taints": taints},
    }
    stage.server.create("nodes", body)
    undone(stage)
    (other,) = stage.server.list("nodes").items
    assert other["spec"]["taints"] == taints


@pytest.mark.parametrize("error", [ClusterUnreachable("no answer"), ConditionFailed("another function was faster")])
def test_a_step_that_fails_is_taken_by_the_next_minute(error: Exception) -> None:
    stage, _ = begun()
    command = command_of(stage)
    stage.server.patch("nodes", command.nodes[0], {"spec": {"taints": []}})
    stage.clock.advance(60)
    stage.meter.counts.clear()
    stage.faults.on("before", "cluster.patch_node", error)
    assert stage.disrupt().undone == ()
    assert stage.meter.counts["CommandStepsFailed"] == 1
    assert command_of(stage) == command
    stage.disrupt()
    assert stage.tainted() == list(command.nodes)


def test_a_node_that_its_command_has_closed_stays_closed_while_the_step_fails() -> None:
    """Its claim is in service until the step is written."""
    stage = oversized()
    stage.disrupt()
    stage.clock.advance(60)
    for _ in range(2):
        stage.faults.on("before", "state.advance", ConditionFailed("another function was faster"))
        stage.disrupt()
        (node,) = command_of(stage).nodes
        stage.server.patch("nodes", node, {"spec": {"taints": [DISRUPTED]}})
    assert states(stage)[command_of(stage).targets[0]] is ClaimState.INITIALIZED
    assert stage.tainted() == [node]
    assert "TaintsLeftOver" not in stage.meter.counts


def test_a_node_that_is_gone_by_now_does_not_hold_its_command_up() -> None:
    stage, _ = begun()
    command = command_of(stage)
    for _ in range(3):
        stage.around()
    stage.server.delete("pods", "web-000", grace_s=0)
    stage.server.delete("nodes", command.nodes[0])
    report = stage.disrupt()
    claim = stage.state.claim(stage.name, command.targets[0])
    assert claim is not None
    assert (claim.state, report.undone) == (ClaimState.DRAINING, ())


def test_a_command_of_a_newer_release_is_left_to_it() -> None:
    stage, _ = begun()
    command = command_of(stage)
    newer = replace(command, schema=command.schema + 1)
    stage.state._put_command(newer)
    assert undone(stage).undone == ()
    assert command_of(stage) == newer


def test_a_taint_is_taken_away_only_from_nodes_in_service_that_nothing_keeps_closed() -> None:
    stage = oversized()
    (claim,) = stage.claims()
    stage.server.patch("nodes", claim.node_name, {"spec": {"taints": [DISRUPTED]}})
    cordoned: NodeClaim = stage.state.advance(claim, claim.state, cordoned="RebalanceRecommendation")
    stage.disrupt()
    assert stage.tainted() == [claim.node_name]
    stage.state.advance(cordoned, claim.state, cordoned="")
    stage.disrupt()
    assert stage.tainted() == []
    assert stage.meter.counts["TaintsLeftOver"] == 1


def closed_too_late() -> tuple[Disrupted, NodeClaim]:
    """A node that was closed after its command had ended, by an invocation that had read the command before."""
    stage, _ = begun()
    (target,) = command_of(stage).targets
    undone(stage)
    claim = stage.state.claim(stage.name, target)
    assert claim is not None
    closed: NodeClaim = stage.state.advance(claim, ClaimState.DISRUPTING, changed_at=stage.clock.now())
    node = {"spec": {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]}}
    stage.server.patch("nodes", closed.node_name, node)
    return stage, closed


def test_a_node_that_is_closed_for_no_command_is_opened() -> None:
    stage, closed = closed_too_late()
    stage.disrupt()
    assert states(stage)[closed.name] is ClaimState.INITIALIZED
    assert stage.tainted() == []
    assert stage.meter.counts["NodesOfNoCommand"] == 1


@pytest.mark.parametrize("error", [ConditionFailed("others"), ClusterUnreachable("away")], ids=["others", "cluster"])
@pytest.mark.parametrize("effect", ["cluster.node", "state.advance"])
def test_a_node_that_cannot_be_opened_now_is_opened_a_minute_later(effect: str, error: ShiplapError) -> None:
    stage, closed = closed_too_late()
    stage.faults.on("before", effect, error)
    stage.disrupt()
    assert states(stage)[closed.name] is ClaimState.DISRUPTING
    stage.clock.advance(60)
    stage.disrupt()
    assert states(stage)[closed.name] is ClaimState.INITIALIZED


def test_a_node_closed_for_a_command_that_was_begun_meanwhile_stays_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, _ = begun()
    command = command_of(stage)
    late: list[tuple[DisruptionCommand, ...]] = [()]
    commands = stage.state.commands
    monkeypatch.setattr(stage.state, "commands", lambda name: late.pop() if late else commands(name))
    stage.disrupt()
    assert states(stage)[command.targets[0]] is ClaimState.DISRUPTING
    assert "NodesOfNoCommand" not in stage.meter.counts


def test_without_a_node_in_service_nothing_is_decided() -> None:
    stage = oversized()
    (claim,) = stage.claims()
    stage.state.adopt(with_fields(claim, name="x", instance_id="i-x", state=ClaimState.LAUNCHED, node_name=""))
    stage.state.advance(claim, ClaimState.DRAINING)
    stage.faults.clear()
    assert stage.disrupt() == DisruptionReport()
    assert "before cluster.view" not in stage.faults.points


def test_beside_nodes_that_are_on_their_way_those_in_service_are_looked_at() -> None:
    stage = oversized()
    (claim,) = stage.claims()
    stage.state.adopt(with_fields(claim, name="x", instance_id="i-x", state=ClaimState.LAUNCHED, node_name=""))
    stage.faults.clear()
    stage.disrupt()
    assert "before cluster.view" in stage.faults.points


def test_a_decision_knows_the_settings_and_which_nodes_are_busy() -> None:
    stage = oversized(move_cost=0.125)
    found = decided_on(stage)
    assert (found.settings, found.busy) == (stage.settings.disruption, frozenset())
    assert found.settings.move_cost == 0.125
    stage, _ = begun(stage)
    stage.state.adopt(with_fields(stage.claims()[0], name="y", instance_id="i-y", state=ClaimState.INITIALIZED))
    assert decided_on(stage).busy == command_of(stage).busy != frozenset()


def test_pods_that_waited_for_an_hour_in_vain_keep_no_node() -> None:
    stage = oversized()
    stage.add_pods(1, prefix="vain")
    assert "vain-000" in {pod.metadata.name for pod in decided_on(stage).scheduling.view.pods}
    at = stage.clock.now() - IN_VAIN_S
    stage.state.mark_refused(stage.name, "uid-vain-000", Refusals(("x",), at, 1, at))
    assert {pod.metadata.name for pod in decided_on(stage).scheduling.view.pods} == {"web-000"}


@pytest.mark.parametrize(("reason", "fresh"), [(Reason.UNDERUTILIZED, False), (Reason.DRIFTED, True)])
def test_what_seemed_to_have_drifted_is_compared_with_fresh_answers(
    reason: Reason, fresh: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One remembered from before might be older than the node. Other proposals beside it change nothing."""
    stage, asked = oversized(), list[bool]()
    resolve = stage.compute.resolve
    monkeypatch.setattr(
        stage.compute, "resolve", lambda node_class, *, fresh=False: asked.append(fresh) or resolve(node_class)
    )
    stage.disrupt()
    known = stage.memory.load(stage.name)
    (proposed,) = known.proposed
    stage.memory.save(stage.name, replace(known, proposed=(proposed, replace(proposed, reason=reason))))
    stage.disrupt()
    assert asked == [False, fresh]


def test_a_memory_that_cannot_be_written_ends_the_look() -> None:
    stage = oversized()
    stage.faults.on("before", "memory.save", StoreError("down"))
    with pytest.raises(StoreError):
        stage.disrupt()
    assert stage.state.commands(stage.name) == ()
