"""Compares reports with the real state, and due actions with the time that has passed: each check can fail."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shiplap_lab.judge.promises import Promise
from shiplap_lab.scenarios.scenario import load
from shiplap_lab.simulation.campaign import run_seed
from shiplap_lab.simulation.due_steps import SOON_S, SWEPT_S, DueSteps
from shiplap_lab.simulation.mutants import MUTANTS, planted
from shiplap_lab.simulation.region_facts import RegionFacts
from shiplap_lab.simulation.tellings import Tellings

GIB = 2**30
ZONE = "topology.kubernetes.io/zone"
CLAIM = {
    "cluster": "demo",
    "name": "flex-1",
    "node_pool": "flex",
    "node_class": "default",
    "instance_id": "i-1",
    "instance_type": "m7i-flex.large",
    "instance_types": ["m7i-flex.large"],
    "zone": "eu-west-1a",
    "capacity_type": "spot",
    "hourly": 0.1,
    "node_name": "node-1",
    "pods": [{"namespace": "default", "name": "web-1", "uid": "u-1"}],
    "requests": {"cpu": 500, "memory": GIB, "pods": 1},
    "allocatable": {"memory": 6 * GIB},
    "labels": {"karpenter.sh/nodepool": "flex"},
    "requirements": [{"key": ZONE, "operator": "In", "values": ["eu-west-1a"]}],
    "created_at": 100.0,
    "changed_at": 100.0,
}
EVENT = {
    "cluster": "demo",
    "id": "demo/flex-1/NodeClaimLaunched",
    "time": "1970-01-01T00:03:20.000Z",
    "claim": "flex-1",
    "nodePool": "flex",
    "nodeClass": "default",
    "tier": 0,
    "instanceId": "i-1",
    "instanceType": "m7i-flex.large",
    "zone": "eu-west-1a",
    "capacityType": "spot",
    "ami": "",
    "hourly": 0.1,
    "node": "",
    "pods": [["default", "web-1", "u-1"]],
}


class Region:
    """A pod, its claim and its Node, and what is told of them at second 200."""

    def __init__(self, *, undisturbed: bool = True) -> None:
        self.now = 200.0
        self.found: list[str] = []
        self.facts = RegionFacts()
        self.tellings = Tellings(
            self.facts, lambda: self.now, self.found.append, price=lambda *_: 0.3, is_undisturbed=undisturbed
        )
        self.due = DueSteps(self.facts)
        self.pod()

    def pod(self, uid: str = "u-1", *, node: str = "", kind: str = "ADDED", cpu: str = "500m") -> None:
        resources = {"requests": {"cpu": cpu, "memory": "1Gi"}}
        conditions = [] if node else [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
        item = {
            "metadata": {
                "name": uid.replace("u", "web"),
                "namespace": "default",
                "uid": uid,
                "creationTimestamp": "1970-01-01T00:01:00Z",
            },
            "spec": {"nodeName": node, "containers": [{"resources": resources}]},
            "status": {"conditions": conditions},
        }
        self.facts.object_written("demo", kind, "pods", item, 100.0)

    def node(self, *, ready: bool = True, memory: str = "8Gi", **labels: str) -> None:
        self._node = {
            "metadata": {"name": "node-1", "labels": labels},
            "spec": {"providerID": "aws:///eu-west-1a/i-1"},
            "status": {
                "allocatable": {"memory": memory},
                "conditions": [{"type": "Ready", "status": str(ready)}],
            },
        }
        self.facts.object_written("demo", "ADDED", "nodes", self._node, 100.0)

    def node_gone(self) -> None:
        self.facts.object_written("demo", "DELETED", "nodes", self._node, 110.0)

    def write(self, state: str = "Planned", **fields: Any) -> None:
        """The next version of the claim."""
        stored = msgspec.json.encode({**CLAIM, "state": state, **fields}).decode()
        self.tellings.claim_written("shiplap", *self.facts.claim_written("shiplap", stored, 100.0))

    def launched(self) -> Region:
        self.facts.running.add("i-1")
        for state in ("Planned", "Launching", "Launched"):
            self.write(state)
        return self

    def command(self, state: str, savings: float = 0.5) -> None:
        stored = msgspec.json.encode({"cluster": "demo", "name": "c", "state": state, "savings_hourly": savings})
        self.tellings.command_written(*self.facts.command_written("shiplap", stored.decode()))

    def tell(self, **fields: Any) -> list[str]:
        self.tellings.published("shiplap", "NodeClaimLaunched", {**EVENT, **fields})
        return self.found

    def count(self, name: str, value: float, **of: str) -> list[str]:
        self.tellings.counted(name, value, of)
        return self.found

    def late_after(self, seconds: float) -> str:
        assert self.due.late(self.now) == ""
        return self.due.late(self.now + seconds)


def test_an_event_that_tells_what_is_so_is_told_once() -> None:
    region = Region().launched()
    assert region.tell() == []
    assert "told twice" in region.tell()[0]


@pytest.mark.parametrize(
    "field",
    [
        {"instanceId": "i-2"},
        {"hourly": 0.2},
        {"tier": 1},
        {"node": "node-2"},
        {"pods": []},
        {"pods": [["default", "web-1", "u-2"]]},
        {"reason": "Drifted"},
        {"missed": True},
        {"deadline": "1970-01-01T00:05:00Z"},
        {"claim": "flex-2"},
        {"id": ""},
        {"id": "flex-1"},
        {"time": "1970-01-01T00:01:00Z"},
    ],
)
def test_an_event_tells_what_its_claim_says(field: dict[str, Any]) -> None:
    assert Region().launched().tell(**field)


def test_an_id_stands_for_one_event() -> None:
    region = Region()
    hint = {"cluster": "demo", "id": "demo/node-1/7", "time": EVENT["time"], "node": "node-1"}
    region.tellings.published("shiplap", "NodeJoined", hint)
    region.tellings.published("shiplap", "NodeJoined", hint)
    assert region.found == []
    region.tellings.published("shiplap", "NodeJoined", {**hint, "node": "node-2"})
    assert "stands for" in region.found[0]


def test_what_happened_is_told_in_the_end_unless_functions_were_kept_from_it() -> None:
    for undisturbed in (True, False):
        region = Region(undisturbed=undisturbed).launched()
        region.tellings.check_end()
        expected = ["NodesLaunched counts 1 less than there was", "demo/flex-1/NodeClaimLaunched was not told"]
        assert region.found == (expected if undisturbed else [])
    region = Region().launched()
    region.count("NodesLaunched", 1)
    region.tell()
    region.tellings.check_end()
    assert region.found == []


def test_sums_count_no_more_than_there_was() -> None:
    region = Region(undisturbed=False).launched()
    assert region.count("NodesLaunched", 1) == []
    assert region.count("NodesLaunched", 1) == ["NodesLaunched counts 1 more than there was"]


def test_times_and_memory_of_a_node_add_up() -> None:
    region = Region().launched()
    region.node(**{"karpenter.sh/nodepool": "flex"})
    region.write("Registered", changed_at=130.0)
    region.write("Initialized", changed_at=150.0)
    for name, value in (
        ("NodesLaunched", 1),
        ("LaunchToJoined", 30.0),
        ("MemoryBeyondPlan", 2.0),
        ("NodesRegistered", 1),
        ("JoinedToReady", 20.0),
        ("EventToReady", 50.0),
        ("NodesInitialized", 1),
    ):
        assert region.count(name, value) == []
        assert region.count(name, 0.01) == [f"{name} counts 0.01 more than there was"]
        region.found.clear()
        region.count(name, -0.01)


def test_memory_of_a_node_that_has_gone_since_it_was_read_adds_up() -> None:
    region = Region().launched()
    region.node(**{"karpenter.sh/nodepool": "flex"})
    region.node_gone()
    region.write("Registered", changed_at=130.0)
    assert region.count("MemoryBeyondPlan", 2.0) == []


def test_commands_and_pods_that_are_deleted_add_up() -> None:
    region = Region()
    for state in ("Waiting", "Removing", "Done"):
        region.command(state)
    region.tellings.pod_deleted("demo", {}, False)
    region.tellings.pod_deleted("demo", {}, True)
    for name in ("CommandsBegun", "CommandsRemoving", "CommandsDone", "PodsEvicted", "PodsDeleted"):
        region.count(name, 1)
    region.count("SavingsHourly", 0.4)
    region.tellings.check_end()
    assert region.found == ["SavingsHourly counts 0.1 less than there was"]


@pytest.mark.parametrize(
    ("name", "of", "value", "wrong"),
    [
        ("Nodes", {"pool": "flex", "tier": "0"}, 1, 2),
        ("Nodes", {"pool": "flex", "tier": "1"}, 0, 1),
        ("HourlyCost", {}, 0.1, 0.3),
        ("HourlyListPrice", {}, 0.3, 0.1),
        ("PodsWaiting", {}, 1, 0),
        ("OldestPodWaiting", {}, 140.0, 60.0),
        ("Pods", {"pool": "flex"}, 1, 2),
    ],
)
def test_values_are_those_of_the_clusters(name: str, of: dict[str, str], value: float, wrong: float) -> None:
    region = Region().launched()
    region.node(**{"karpenter.sh/nodepool": "flex"})
    region.pod("u-2", node="node-1")
    assert region.count(name, value, cluster="demo", **of) == []
    assert len(region.count(name, wrong, cluster="demo", **of)) == 1
    assert len(region.count(name, float("nan"))) == 2
    region.now = 120.0  # what has just changed may not be known yet
    assert len(region.count(name, wrong, cluster="demo", **of)) == 2


def test_a_claim_asks_for_what_its_pods_do() -> None:
    region = Region()
    region.write(requests={"cpu": 400, "memory": GIB, "pods": 1})
    assert region.found == ["flex-1 asks for 400 cpu, its pods for 0.500"]
    region = Region()
    region.write(pods=[{"namespace": "default", "name": "web-9", "uid": "u-9"}])
    assert region.found == ["flex-1 names default/web-9 u-9, and there is no such pod"]


def test_a_node_in_service_has_the_labels_of_its_claim() -> None:
    region = Region().launched()
    region.node()
    region.write("Registered")
    assert region.found == []
    region.write("Initialized")
    assert region.found == ["flex-1 is in service without the labels ['karpenter.sh/nodepool']"]


@pytest.mark.parametrize(
    ("call", "is_so"),
    [
        ({}, True),
        ({"offerings": [["c5.large", "eu-west-1a"]]}, False),
        ({"offerings": [["m7i-flex.large", "eu-west-1b"]]}, False),
    ],
)
def test_a_fleet_is_requested_for_what_claims_allow(call: dict[str, Any], is_so: bool) -> None:
    region = Region().launched()
    usual = {"cluster": "demo", "claims": ["flex-1"], "capacity_type": "spot"}
    usual["offerings"] = [["m7i-flex.large", "eu-west-1a"]]
    region.tellings.fleet_requested("shiplap", {**usual, **call})
    assert (not region.found) is is_so


@pytest.mark.parametrize(
    ("claim", "step", "delay_s", "is_so"),
    [
        ("flex-1", "join", 900, True),
        ("*", "disruption", 5, True),
        ("flex-9", "garbage", 0, True),
        ("flex-9", "join", 0, False),
        ("flex-1", "jion", 0, False),
        ("flex-1", "join", 901, False),
        ("flex-1", "join", -1, False),
    ],
)
def test_timers_name_claims_and_steps(claim: str, step: str, delay_s: int, is_so: bool) -> None:
    region = Region().launched()
    region.tellings.reminded("shiplap", "demo", claim, step, delay_s)
    assert (not region.found) is is_so


def test_an_event_of_kubernetes_is_about_a_pod_that_was_there() -> None:
    region = Region()
    for uid, component, found in (("u-1", "shiplap", 0), ("u-2", "cluster-autoscaler", 0), ("u-2", "shiplap", 1)):
        about = {"kind": "Pod", "namespace": "default", "name": "web-1", "uid": uid}
        event = {"involvedObject": about, "source": {"component": component}}
        region.tellings.object_written("demo", event, "events")
        assert len(region.found) == found


# What is due


def test_launches_follow_at_once() -> None:
    region = Region()
    region.write("Launching")
    assert region.late_after(SOON_S) == ""
    assert region.due.late(231.0) == "flex-1 is Launching for 31 s"


def test_a_pod_is_planned_for_or_told_why_it_waits() -> None:
    region = Region()
    assert region.late_after(SOON_S + 1) == "web-1 waits, and was not told why, for 31 s"
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "uid": "u-1"}}
    region.facts.object_written("demo", "ADDED", "events", event, 200.0)
    assert region.due.late(300.0) == ""


@pytest.mark.parametrize(
    ("state", "fields", "ready", "most_s"),
    [
        ("Launched", {}, False, SOON_S),
        ("Registered", {}, True, SOON_S),
        ("Registered", {"startup_taints": [{"key": "agent"}]}, True, SWEPT_S),
        ("Registered", {}, False, 0.0),
        ("Initialized", {}, True, 0.0),
        ("Draining", {"failure": "SpotInterruption"}, True, SOON_S),
        ("Draining", {"failure": "Drifted"}, True, SWEPT_S),
        ("Terminating", {}, True, SOON_S),
    ],
)
def test_steps_of_a_node_follow_at_once(
    state: str,
    fields: dict[str, Any],
    ready: bool,
    most_s: float,
) -> None:
    region = Region().launched()
    region.node(ready=ready)
    region.pod(kind="DELETED")
    region.write(state, **fields)
    assert region.late_after(most_s or 3600.0) == ""
    assert bool(region.due.late(region.now + most_s + 1)) is bool(most_s)


def test_a_node_that_drains_waits_for_its_pods() -> None:
    region = Region().launched()
    region.node()
    region.pod(node="node-1")
    region.write("Draining")
    assert region.late_after(3600.0) == ""


@pytest.mark.parametrize("is_warned", [True, False])
def test_a_node_leaves_when_its_instance_does(is_warned: bool) -> None:
    region = Region().launched()
    region.node()
    region.pod(kind="DELETED")
    region.write("Initialized")
    assert region.late_after(3600.0) == ""
    if is_warned:
        warning = {"detail-type": "EC2 Spot Instance Interruption Warning", "detail": {"instance-id": "i-1"}}
        region.facts.event_sent(warning)
    else:
        region.facts.running.clear()
    assert region.due.late(4000.0) == ""
    assert region.due.late(4031.0) == "flex-1 is Initialized for 31 s"


def test_a_restored_table_tells_of_what_it_was() -> None:
    region = Region().launched()
    region.tell()
    region.command("Waiting")
    region.tellings.table_restored("shiplap")
    region.facts.table_restored("shiplap", [msgspec.json.encode(CLAIM).decode()], [], 150.0)
    assert [claim.state for claim in region.facts.open_claims()] == ["Planned"]
    assert region.facts.commands == {}
    for state in ("Launching", "Launched"):
        region.write(state)
    assert region.tell() == []


# In a run


def test_nothing_but_the_world_goes_wrong_in_the_undisturbed_scenario() -> None:
    scenario = load("undisturbed").scenario
    world = {"interrupt", "terminate", "no-capacity", "never-join", "late-join", "startup-taint", "ends-at-once"}
    assert scenario.undisturbed
    assert set(scenario.chaos_kinds) <= world | {"slow-end", "ami-drift", "daemon-set", "pdb-zero"}
    assert run_seed(load("undisturbed"), 7).violations == ()


@pytest.mark.parametrize("name", ["sets no timers", "measures no memory"])
def test_the_undisturbed_scenario_finds_what_others_forgive(name: str) -> None:
    assert MUTANTS[name].scenarios == ("undisturbed",)
    with planted(name):
        broken = run_seed(load("undisturbed"), 0).violations
    assert broken[0].promise in (Promise.TOLD, Promise.AT_ONCE)
