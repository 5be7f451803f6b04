"""A full static NodePool rolls: each node goes first, its replacement follows, and functions may die at any point."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.disruption.progress import CommandState
from shiplap.kubernetes.labels import EXCLUDE_BALANCERS
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import FINAL, ClaimState
from shiplap.manifests.shiplap_annotations import TERMINATE_FIRST
from tests.builders.pools import family_pool
from tests.integration.flows.disrupted import Disrupted
from tests.thoroughness import moments

WANTED = 2


class FullPool(Disrupted):
    """Two nodes of a static NodePool at its limit, each with a pod that fills it, and a template that has changed.

    `most` and `fewest` are the nodes that were there at once since.
    """

    def __init__(self, allows: str = "15m", *, budget: str = "100%") -> None:
        super().__init__(budget=budget)
        self._allows = allows
        self._write(budget, {})
        self.add_pods(WANTED, cpu="1200m", memory="2Gi")
        self.play_on()
        self.run_pods()
        self.clock.advance(900)
        self.old = {claim.name for claim in self.claims()}
        self._write(budget, {"release": "new"})
        self.most = self.fewest = len(self.compute.alive())
        self.faults.clear()

    def _write(self, budget: str, labels: dict[str, str]) -> None:
        plain = msgspec.to_builtins(family_pool("default", ("m6i",), sizes=("large",)))
        plain["metadata"]["annotations"] = {TERMINATE_FIRST: self._allows}
        plain["spec"]["template"]["metadata"] = {"labels": labels}
        plain["spec"] |= {"replicas": WANTED, "limits": {"nodes": str(WANTED)}}
        plain["spec"]["disruption"] = {"budgets": [{"nodes": budget}], "consolidateAfter": "Never"}
        manifests = replace(self.settings.manifests, node_pools=(msgspec.convert(plain, NodePool),))
        self.settings = replace(self.settings, manifests=manifests)

    def minutes(self, number: int) -> None:
        for _ in range(number):
            self.disrupt()
            self.around()
            there = len(self.compute.alive())
            self.most, self.fewest = max(self.most, there), min(self.fewest, there)

    @property
    def left(self) -> set[str]:
        """The names of old claims that are not over."""
        return self.old & {claim.name for claim in self.claims() if claim.state not in FINAL}


def test_the_pool_rolls_one_node_at_a_time_and_never_exceeds_its_limit() -> None:
    stage = FullPool()
    stage.minutes(40)
    assert stage.left == set()
    assert (stage.most, stage.fewest) == (WANTED, WANTED - 1)
    assert stage.pending() == 0


def test_an_event_of_the_node_states_the_gap() -> None:
    stage = FullPool()
    stage.minutes(4)
    told = [event for event in stage.server.list("events").items if event["reason"] == "TerminatingFirst"]
    assert {event["involvedObject"]["kind"] for event in told} == {"Node"}
    assert "1 pod has no place for about" in told[0]["message"]


@pytest.mark.parametrize(("allows", "budget"), [("Never", "100%"), ("60s", "100%"), ("15m", "0")])
def test_what_is_not_allowed_rolls_nothing(allows: str, budget: str) -> None:
    stage = FullPool(allows, budget=budget)
    stage.minutes(15)
    assert stage.left == stage.old
    assert stage.fewest == WANTED


def test_a_node_that_does_not_empty_in_time_returns_to_service() -> None:
    stage = FullPool("8m")
    stage.disrupt()
    stage.clock.advance(60)
    stage.disrupt()
    (command,) = stage.state.commands(stage.name)
    guard = {"metadata": {"name": "all", "namespace": "default", "generation": 1}}
    guard |= {"spec": {"minAvailable": WANTED, "selector": {}}, "status": {"disruptionsAllowed": 0}}
    stage.server.create("poddisruptionbudgets", guard)
    stage.minutes(12)
    ended = {claim.name: claim for claim in stage.claims()}[command.targets[0]]
    assert (ended.state, ended.failure, ended.deadline_at) == (ClaimState.INITIALIZED, "", 0.0)
    assert stage.left == stage.old
    assert stage.tainted() == []
    (node,) = (item for item in stage.server.list("nodes").items if item["metadata"]["name"] == command.nodes[0])
    assert EXCLUDE_BALANCERS not in node["metadata"]["labels"]
    assert stage.meter.counts[f"Commands{CommandState.UNDONE}"] == 1


@pytest.mark.parametrize("minute", range(7))
def test_it_rolls_wherever_a_function_dies(minute: int) -> None:
    for point in moments(400, minute):
        stage = FullPool()
        stage.minutes(minute)
        stage.faults.clear()
        stage.faults.crash_at(point)
        died = stage.dies(lambda stage=stage: stage.minutes(1))
        stage.faults.clear()
        stage.minutes(40)
        assert stage.left == set(), point
        assert stage.most == WANTED, point
        assert stage.tainted() == [], point
        assert stage.pending() == 0, point
        if not died:
            return
    raise AssertionError("the minute has no end")
