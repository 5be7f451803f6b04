"""The player pushes the world, waits until expectations hold, and reports honestly when they do not."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from shiplap.kubernetes.objects import Node, Pod
from shiplap_lab.checks.observation import ClusterObservation, RegionObservation
from shiplap_lab.dev.dev_report import DevReport
from shiplap_lab.dev.player import play_observed
from shiplap_lab.scenarios.scenario import (
    Expectation,
    Interruption,
    NodeMemoryRule,
    Outage,
    Play,
    PodGroup,
    Scenario,
    ScenarioCluster,
    ScenarioStep,
)
from shiplap_lab.scenarios.workload import pods_of_step


class ToyStage:
    """Binds each pod `delay_s` after it was applied, unless there is an outage."""

    pace = 1.0

    def __init__(self, delay_s: float) -> None:
        self.time = 0.0
        self.delay_s = delay_s
        self.applied: list[tuple[float, dict[str, Any]]] = []
        self.out = False
        self.interrupted: list[tuple[str, str]] = []
        self.rules: tuple[NodeMemoryRule, ...] = ()
        self.disrupted: list[float] = []

    def now(self) -> float:
        return self.time

    def let_time_pass(self) -> None:
        self.time += 0.5

    def outage(self, outage: Outage) -> None:
        self.out = not outage.over

    def interrupt(self, instance_id: str, kind: str) -> None:
        self.interrupted.append((instance_id, kind))

    def set_memory(self, rules: tuple[NodeMemoryRule, ...]) -> None:
        self.rules = tuple(rules)

    def apply(self, cluster: str, *items: dict[str, Any]) -> None:
        self.applied += ((self.time, item) for item in items)

    def remove(self, cluster: str, pod: Pod) -> None:
        self.applied = [entry for entry in self.applied if entry[1]["metadata"]["name"] != pod.metadata.name]

    def disrupt(self, cluster: str) -> None:
        self.disrupted.append(self.time)

    def price(self, instance_type: str, zone: str, capacity_type: str) -> float:
        return 0.0

    def machine_types(self) -> dict[str, dict[str, Any]]:
        return {}

    def observe(self) -> RegionObservation:
        pods = []
        for since, item in self.applied:
            bound = not self.out and self.time >= since + self.delay_s
            stored = {
                "metadata": {"uid": item["metadata"]["name"], **item["metadata"]},
                "spec": {**item["spec"], "nodeName": "n" if bound else ""},
            }
            pods.append(msgspec.convert({**item, **stored}, Pod))
        return RegionObservation((ClusterObservation("c", tuple(pods)),))


def scenario(*steps: ScenarioStep, **changes: Any) -> Scenario:
    return Scenario("test", clusters=(ScenarioCluster("c", "m"),), steps=steps, **changes)


def play(name: str, played: Scenario, stage: ToyStage, show: Callable[[str, RegionObservation], object]) -> DevReport:
    return play_observed(Play(name, played), stage, show).report


WEB = PodGroup("web", "1", "1Gi", count=2)
BOUND = Expectation("web runs", pods="web")


def test_a_step_lasts_until_its_expectations_hold() -> None:
    stage = ToyStage(delay_s=7.0)
    shown: list[str] = []
    result = play(
        "toy", scenario(ScenarioStep("go", "c", pods=(WEB,), expect=(BOUND,))), stage, lambda say, _: shown.append(say)
    )
    assert result.invariants["web runs"] is True
    assert (result.pods, result.bound) == (2, 2)
    assert 7.0 < stage.time < 10.0
    assert shown[0].startswith("go  [web runs: not bound")


def test_the_disrupt_function_looks_often_while_a_step_asks_for_it() -> None:
    stage = ToyStage(delay_s=20.0)
    quiet, busy = (
        ScenarioStep("go", "c", pods=(WEB,), expect=(BOUND,)),
        ScenarioStep("shrink", "c", expect=(BOUND,), disrupt=True),
    )
    play("toy", scenario(quiet), stage, lambda *_: None)
    assert stage.disrupted == []
    again = ToyStage(delay_s=20.0)
    play("toy", scenario(msgspec.structs.replace(quiet, settle=False), busy), again, lambda *_: None)
    assert again.disrupted == [0.0, 8.0, 16.0]


def test_pods_are_deleted_by_globs_of_namespace_and_name() -> None:
    stage = ToyStage(delay_s=0.0)
    many = msgspec.structs.replace(WEB, count=4)
    gone = ScenarioStep("shrink", "c", delete=("default/web-[1-2]", "elsewhere/*"), expect=(BOUND,))
    play("toy", scenario(ScenarioStep("go", "c", pods=(many,), expect=(BOUND,)), gone), stage, lambda *_: None)
    assert [item["metadata"]["name"] for _, item in stage.applied] == ["web-0", "web-3"]


def test_an_expectation_that_never_holds_is_reported_false_when_time_is_up() -> None:
    stage = ToyStage(delay_s=10_000.0)
    result = play(
        "toy", scenario(ScenarioStep("go", "c", pods=(WEB,), expect=(BOUND,)), time_limit_s=30), stage, lambda *_: None
    )
    assert result.invariants["web runs"] is False
    assert result.invariants["all comes to rest"] is False
    assert stage.time <= 31.0


def test_a_pod_meant_to_wait_is_watched_for_a_while_and_is_not_stranded() -> None:
    stage = ToyStage(delay_s=0.0)
    held = Expectation("held", pods="web", held_back=True)
    result = play(
        "toy",
        scenario(ScenarioStep("go", "c", outages=(Outage(),), pods=(WEB,), expect=(held,))),
        stage,
        lambda *_: None,
    )
    assert result.invariants["held"] is True
    assert result.invariants["all comes to rest"] is True
    assert stage.time >= 6.0


def test_memory_rules_add_up_over_the_steps() -> None:
    stage = ToyStage(delay_s=0.0)
    first, second = NodeMemoryRule(instance_type="a"), NodeMemoryRule(instance_type="b")
    play(
        "toy",
        scenario(ScenarioStep("1", "c", memory=(first,)), ScenarioStep("2", "c", memory=(second,), settle=False)),
        stage,
        lambda *_: None,
    )
    assert stage.rules == (*Scenario("").memory, first, second)


def test_interruptions_reach_the_instances_that_run_a_group() -> None:
    class Nodes(ToyStage):
        def observe(self) -> RegionObservation:
            (toy,) = super().observe().clusters
            nodes = [
                {"metadata": {"name": name}, "spec": {"providerID": f"aws:///zone/i-{name}"}} for name in ("n", "o")
            ]
            return RegionObservation((msgspec.structs.replace(toy, nodes=msgspec.convert(nodes, tuple[Node, ...])),))

    stage = Nodes(delay_s=0.0)
    advice = Interruption("web", kind="rebalance", nodes=2)
    steps = (ScenarioStep("go", "c", pods=(WEB,), expect=(BOUND,)), ScenarioStep("leave", "c", interruptions=(advice,)))
    play("toy", scenario(*steps), stage, lambda *_: None)
    assert stage.interrupted == [("i-n", "rebalance")]  # nothing of the group runs on the other node


def test_replicas_belong_to_somebody_who_replaces_them() -> None:
    (owner,) = pods_of_step(PodGroup("web", "1", "1Gi", replicas=True))[0]["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("ReplicaSet", "web", True)
    assert "ownerReferences" not in pods_of_step(WEB)[0]["metadata"]


class _SlowStage(ToyStage):
    """Binds one pod after the other, each within the limit of a step, all of them not."""

    def observe(self) -> RegionObservation:
        (cluster,) = super().observe().clusters
        bound = int(self.time // 60)
        pods = tuple(
            msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name="n" if place < bound else ""))
            for place, pod in enumerate(cluster.pods)
        )
        return RegionObservation((msgspec.structs.replace(cluster, pods=pods),))


@pytest.mark.parametrize(("count", "holds"), [(6, True), (60, False)])
def test_a_slow_region_is_waited_for_while_it_gets_on(count: int, holds: bool) -> None:
    """Six pods take six minutes here, though a step has five; sixty take longer than any step may last."""
    stage = _SlowStage(delay_s=0.0)
    many = msgspec.structs.replace(WEB, count=count)
    result = play("toy", scenario(ScenarioStep("go", "c", pods=(many,), expect=(BOUND,))), stage, lambda *_: None)
    assert result.invariants["web runs"] is holds
