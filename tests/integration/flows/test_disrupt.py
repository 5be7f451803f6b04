"""The disrupt flow on the stage: two looks, replacement first, removal, undoing, and dying at any moment."""

from __future__ import annotations

import msgspec
import pytest

from shiplap.api.nodeclaim import ClaimState
from shiplap.api.types import NodePool
from shiplap.disruption.progress import READY_S
from shiplap.kubernetes import labels
from shiplap.provisioning.disrupt import Report, disrupt
from shiplap.twins.bucket import TwinMemory
from tests.integration.flows.leaving import kubelets_end_pods, warning
from tests.integration.flows.stage import Stage, pool


class Disrupted(Stage):
    """A stage whose pool may be disrupted at once and wholly."""

    def __init__(self, *, budget: str = "100%", **settings: object) -> None:
        plain = msgspec.to_builtins(pool("default", ("m6i",)))
        plain["spec"]["disruption"] = {"budgets": [{"nodes": budget}], "consolidateAfter": "0s"}
        super().__init__((msgspec.convert(plain, NodePool),))
        known = self.settings.disruption
        self.settings = msgspec.structs.replace(
            self.settings, disruption=msgspec.structs.replace(known, **{"settle_s": 0.0, **settings})
        )
        self.memory = TwinMemory(self.faults)

    def disrupt(self) -> Report:
        """One invocation of the disrupt function."""
        self._invocations += 1
        return disrupt(self.settings, self.world, self.memory, owner=f"invocation-{self._invocations}")

    def around(self) -> None:
        """Everything in a minute that is not the disrupt function."""
        self.sweep()
        self.join()
        self.attend(*self.due())
        self.attend()
        kubelets_end_pods(self)
        self.cloud_controller()
        self.bind()
        self.run_pods()
        self.clock.advance(60)

    def minutes(self, number: int) -> None:
        for _ in range(number):
            self.disrupt()
            self.around()

    def run_pods(self) -> None:
        """Kubelets start the pods they have."""
        for item in self.server.list("pods").items:
            if item["spec"].get("nodeName") and item["status"].get("phase") != "Running":
                self.server.patch(
                    "pods", item["metadata"]["name"], {"status": {"phase": "Running"}}, subresource="status"
                )

    def cloud_controller(self) -> None:
        """Nodes whose instance is gone are removed."""
        alive = {instance.provider_id for instance in self.compute.alive()}
        for item in self.server.list("nodes").items:
            if item["spec"]["providerID"] not in alive:
                self.server.delete("nodes", item["metadata"]["name"])

    def tainted(self) -> list[str]:
        """Names of nodes that keep new pods off."""
        return [
            item["metadata"]["name"]
            for item in self.server.list("nodes").items
            if any(taint["key"] == labels.DISRUPTED_TAINT for taint in item["spec"].get("taints", ()))
        ]


def oversized(**settings: object) -> Disrupted:
    """One 2xlarge in service that has one small pod left."""
    stage = Disrupted(**settings)
    stage.add_pods(5, cpu="1200m", memory="2Gi")
    stage.play_on()
    for number in range(1, 5):
        stage.server.delete("pods", f"web-{number:03d}", grace_s=0)
    stage.run_pods()
    stage.clock.advance(600)
    stage.faults.clear()
    return stage


def kinds(stage: Disrupted) -> list[str]:
    return sorted(instance.instance_type for instance in stage.compute.alive())


def test_an_oversized_node_is_replaced_by_a_smaller_one() -> None:
    stage = oversized()
    assert kinds(stage) == ["m6i.2xlarge"]
    stage.minutes(12)
    assert kinds(stage) == ["m6i.large"]
    assert stage.pending() == 0
    assert stage.state.commands(stage.name) == ()
    assert stage.tainted() == []


def test_nothing_happens_at_the_first_look() -> None:
    stage = oversized()
    report = stage.disrupt()
    assert (report.begun, report.proposed) == ((), 1)
    assert [claim.state for claim in stage.claims()] == [ClaimState.INITIALIZED]
    stage.clock.advance(60)
    assert len(stage.disrupt().begun) == 1


def test_the_old_node_stays_until_the_new_one_is_initialized() -> None:
    stage = oversized()
    stage.disrupt()
    stage.clock.advance(60)
    stage.disrupt()
    for _ in range(3):
        stage.sweep()
        stage.attend(*stage.due())
        stage.clock.advance(60)
        stage.disrupt()
    assert kinds(stage) == ["m6i.2xlarge", "m6i.large"]
    states = {claim.state for claim in stage.claims()}
    assert states == {ClaimState.DISRUPTING, ClaimState.LAUNCHED}
    assert len(stage.tainted()) == 1
    assert all(item["metadata"].get("deletionTimestamp") is None for item in stage.server.list("pods").items)


def test_a_command_whose_replacement_never_comes_is_undone() -> None:
    stage = oversized()
    stage.disrupt()
    stage.clock.advance(60)
    stage.disrupt()
    stage.sweep()
    stage.broken.update(instance.id for instance in stage.compute.alive() if instance.instance_type == "m6i.large")
    stage.clock.advance(60)
    stage.disrupt()
    assert len(stage.tainted()) == 1
    stage.clock.advance(READY_S)
    report = stage.disrupt()
    assert len(report.undone) == 1
    assert stage.tainted() == []
    (old,) = (claim for claim in stage.claims() if claim.instance_type == "m6i.2xlarge")
    assert old.state is ClaimState.INITIALIZED


def test_two_functions_at_once_begin_one_command_and_undo_none() -> None:
    stage = oversized()
    stage.disrupt()
    stage.clock.advance(60)
    others: list[Report] = []
    for effect in ("cluster.nodes", "state.commands", "state.claims"):
        stage.faults.on("after", effect, lambda: others.append(stage.disrupt()))
    own = stage.disrupt()
    assert [len(report.begun) for report in (own, *others)].count(1) == 1
    assert [report.undone for report in (own, *others)] == [()] * 4
    stage.minutes(12)
    assert kinds(stage) == ["m6i.large"]
    assert len(stage.compute.launches) == 2


def test_a_node_that_is_interrupted_meanwhile_stays_closed() -> None:
    stage = oversized()
    (claim,) = stage.claims()

    def interrupted() -> None:
        stage.interrupt(warning(stage, claim.instance_id))
        stage.attend_timers()

    stage.faults.on("after", "state.claims", interrupted)
    stage.disrupt()
    assert stage.tainted() == [claim.node_name]


def test_subnets_without_addresses_are_no_drift_of_the_nodes_in_them() -> None:
    stage = oversized()
    stage.add_pods(4, cpu="1200m", memory="2Gi", prefix="more")  # worth its node
    stage.bind()
    stage.run_pods()
    zones = {claim.zone for claim in stage.claims()}
    stage.compute.subnets = tuple(
        msgspec.structs.replace(item, free_ips=0) if item.zone in zones else item for item in stage.compute.subnets
    )
    stage.clock.advance(2 * 3600)
    for _ in range(3):
        stage.clock.advance(60)
        report = stage.disrupt()
        assert (report.begun, report.proposed) == ((), 0)


def test_an_empty_node_goes_without_a_replacement() -> None:
    stage = oversized()
    stage.server.delete("pods", "web-000", grace_s=0)
    stage.minutes(6)
    assert kinds(stage) == []
    assert len(stage.launched) == 1


def test_a_budget_of_none_keeps_everything() -> None:
    stage = oversized(budget="0")
    stage.minutes(5)
    assert kinds(stage) == ["m6i.2xlarge"]
    assert stage.state.commands(stage.name) == ()


def test_disruption_can_be_switched_off() -> None:
    stage = oversized(enabled=False)
    stage.minutes(5)
    assert kinds(stage) == ["m6i.2xlarge"]


def test_a_taint_that_a_dead_function_left_behind_is_taken_away() -> None:
    stage = oversized(budget="0")
    (name,) = (item["metadata"]["name"] for item in stage.server.list("nodes").items)
    stage.server.patch("nodes", name, {"spec": {"taints": [{"key": labels.DISRUPTED_TAINT, "effect": "NoSchedule"}]}})
    stage.disrupt()
    assert stage.tainted() == []


def test_a_decision_made_meanwhile_leaves_the_proposal_for_the_next_minute() -> None:
    stage = oversized()
    stage.disrupt()
    stage.clock.advance(60)
    read = stage.state.read

    def overtaken(cluster: str, now: float) -> object:
        known = read(cluster, now)
        stage.state.read = read  # type: ignore[method-assign]
        stage.add_pods(1, cpu="7", memory="2Gi", prefix="urgent")
        stage.schedule()
        return known

    stage.state.read = overtaken  # type: ignore[method-assign, assignment]
    assert stage.disrupt().begun == ()
    assert stage.state.commands(stage.name) == ()


@pytest.mark.parametrize("minute", range(7))
def test_the_function_may_die_before_and_after_every_effect(minute: int) -> None:
    """In any of the minutes that a replacement takes; the following ones bring the same end whatever is left behind."""
    for point in range(200):
        stage = oversized()
        stage.minutes(minute)
        stage.faults.clear()
        stage.faults.crash_at(point)
        died = stage.dies(stage.disrupt)
        stage.faults.clear()
        stage.around()
        stage.minutes(20)
        assert kinds(stage) == ["m6i.large"], (minute, point)
        assert stage.pending() == 0
        assert stage.tainted() == []
        assert stage.state.commands(stage.name) == ()
        if not died:
            return
    raise AssertionError("the invocation has no end")
