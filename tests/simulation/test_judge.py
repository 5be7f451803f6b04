"""The judge must be able to find fault: each promise is shown what keeps it, and what breaks it."""

from __future__ import annotations

import ast
import json
import sys
import zlib
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.manifests.custom_resources import NodePool
from shiplap.policies.registry import POLICIES
from shiplap_lab.judge import judge as judged
from shiplap_lab.judge import raw_json
from shiplap_lab.judge.judge import Judge
from shiplap_lab.judge.promises import Promise
from shiplap_lab.judge.raw_json import ClaimItem
from shiplap_lab.scenarios.scenario import Play, load
from shiplap_lab.simulation.campaign import run_seed
from shiplap_lab.simulation.mutants import planted
from tests.deletability.without_policy import belongs

GIB = 2**30
WARNING = "EC2 Spot Instance Interruption Warning"


def test_the_judge_is_short_enough_to_be_read() -> None:
    """The rules of a policy are a file of their own, which nobody reads who has the policy off."""
    lines = {module: len(module.read_text().splitlines()) for module in Path(judged.__file__).parent.glob("*.py")}
    of_policies = {module for module in lines if any(belongs(Path(module.name), entry.name) for entry in POLICIES)}

    assert sum(number for module, number in lines.items() if module not in of_policies) <= 1450
    assert all(lines[module] <= 320 for module in of_policies)


def test_the_judge_imports_the_standard_library_msgspec_and_itself_only() -> None:
    """import-linter only knows what the project itself holds."""
    modules = Path(judged.__file__).parent.glob("*.py")
    nodes = [node for module in modules for node in ast.walk(ast.parse(module.read_text()))]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {f"{node.module}." for node in nodes if isinstance(node, ast.ImportFrom)}
    foreign = {name for name in names if name.partition(".")[0] not in sys.stdlib_module_names | {"msgspec"}}
    assert all(name.startswith("shiplap_lab.judge.") for name in foreign), foreign


def pod(name: str, *, node: str = "node-a", cpu: str = "1", **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "web"}},
        "spec": {"nodeName": node, "containers": containers, **spec},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def node(name: str, machine: str, *, cpu: str = "4", ready: str = "True") -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": "16Gi", "pods": "10", "example.com/disk": "2"}
    return {
        "metadata": {"name": name},
        "spec": {"providerID": f"aws:///eu-west-1a/{machine}"},
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


def machine_of(name: str, token: str) -> dict[str, Any]:
    item = {"id": name, "instance_type": "m6i.xlarge", "cluster": "demo", "node_pool": "flex"}
    return {**item, "launch": token, "install": "shiplap"}


class Region:
    """Plays events before a judge, with the limits of NodePool `flex`."""

    def __init__(self, limits: Mapping[str, str] | None = None, *, sampled: bool = False) -> None:
        self.now = 1000.0
        self.told: list[str] = []
        self.versions: dict[str, int] = {}
        self.judge = Judge(
            lambda: self.now,
            lambda violation: self.told.append(violation.promise),
            machine_types={"m6i.xlarge": {"cpu": 4, "memory": "16Gi"}},
            pools={("demo", "flex"): {"limits": limits or {}}},
            price=lambda *_: 0.1,
            most_nodes_per_pod=2,
            sampled=sampled,
        )

    def claim(self, name: str, state: str, *, token: str = "", install: str = "shiplap", **fields: Any) -> None:
        version = self.versions[name] = self.versions.get(name, -1) + 1
        item = {"cluster": "demo", "name": name, "node_pool": "flex", "token": token or name, "version": version}
        self.judge.claim_written(install, json.dumps({"hourly": 0.1, **item, "state": state, **fields}))

    def request(self, *claims: str, token: str = "", wanted: int = 0, capacity_type: str = "spot") -> None:
        call = {"token": token or claims[0], "cluster": "demo", "claims": claims, "wanted": wanted or len(claims)}
        self.judge.fleet_requested("shiplap", json.dumps({**call, "capacity_type": capacity_type}).encode())

    def start(self, machine: str, token: str, *, launched_at: float = 0.0) -> None:
        """As it was requested."""
        self.judge.machine_started(json.dumps({**machine_of(machine, token), "launched_at": launched_at}).encode())

    def add(self, machine: str, token: str, *, install: str = "shiplap") -> None:
        """Without a request."""
        self.judge.machine_added(json.dumps({**machine_of(machine, token), "install": install}).encode())

    def has(self, plural: str, *items: dict[str, Any]) -> None:
        for item in items:
            self.judge.object_written("demo", "ADDED", plural, item)

    def launched(self, name: str, **fields: Any) -> dict[str, Any]:
        """A claim with its instance; returns the fields about that."""
        of = {"instance_id": f"i-{name}", "instance_type": "m6i.xlarge", **fields}
        self.claim(name, "Planned")
        self.claim(name, "Launching")
        self.request(name)
        self.start(f"i-{name}", name)
        self.claim(name, "Launched", **of)
        return of

    def node(self, name: str = "a", *, state: str = "Initialized", hourly: float = 0.1, **fields: Any) -> None:
        """A node in service, or in a later state."""
        of = self.launched(name, hourly=hourly)
        self.claim(name, "Registered", **of)
        self.has("nodes", node(f"node-{name}", f"i-{name}"))
        self.claim(name, "Initialized", **of)
        if state == "Terminating":
            self.claim(name, "Draining", **of, **fields)
        if state != "Initialized":
            self.claim(name, state, **of, **fields)

    def terminate(self, machine: str = "i-a", install: str = "shiplap") -> None:
        self.judge.termination_requested(install, [machine])


@pytest.mark.parametrize(("read", "sampled"), [(True, False), (False, False), (False, True)])
def test_a_pod_misses_a_second_time_only_what_the_first_node_could_tell_nobody(read: bool, sampled: bool) -> None:
    """With an API server that does not answer, a node may be gone before anybody has read what it has.

    Where reads are not seen, a node counts as read once it is there.
    """
    region = Region(sampled=sampled)
    for name in ("a", "b"):
        region.launched(name, requests={"memory": 17 * GIB}, pods=[{"uid": "web-1", "name": "web-1"}])
        region.has("nodes", node(f"node-{name}", f"i-{name}"))
        if read or name == "b":
            region.judge.node_read("demo", f"i-{name}")
        region.judge.machine_ended(f"i-{name}")

    assert (Promise.NO_SECOND_MISS in region.told) == (read or sampled)
    assert set(region.told) <= {Promise.NO_SECOND_MISS}


@pytest.mark.parametrize(
    ("resource", "types", "broken"),
    [
        ("cpu", ("m6i.xlarge", "c6i.xlarge"), False),
        ("cpu", ("m6i.xlarge", "m6i.xlarge"), True),
        ("memory", ("m6i.xlarge", "c6i.xlarge"), True),
    ],
)
def test_what_ec2_states_of_a_new_type_is_relied_on_after_a_miss_on_another(
    resource: str, types: tuple[str, str], broken: bool
) -> None:
    """A single instance that has fewer CPUs than EC2 states says nothing about other types; an estimate was wrong."""
    region = Region()
    for name, kind in zip(("a", "b"), types, strict=True):
        pods = [{"uid": "web-1", "name": "web-1"}]
        region.launched(name, requests={resource: 10**15}, pods=pods, instance_type=kind)
        region.has("nodes", node(f"node-{name}", f"i-{name}"))
        region.judge.node_read("demo", f"i-{name}")
        region.judge.machine_ended(f"i-{name}")

    assert (Promise.NO_SECOND_MISS in region.told) == broken


def test_a_life_in_order_keeps_all_promises() -> None:
    region = Region({"cpu": "4"})
    region.node(state="Terminating")
    region.terminate()
    region.judge.machine_ended("i-a")
    region.claim("a", "Gone", instance_id="i-a")
    region.judge.tick(calm=True)
    assert region.told == []


@pytest.mark.parametrize(
    ("limits", "broken"),
    [
        ({"cpu": "8"}, False),
        ({"cpu": "7999m"}, True),
        ({"memory": "30Gi"}, False),
        ({"memory": "29Gi"}, True),
        ({"nodes": "2"}, False),
        ({"nodes": "1"}, True),
        ({"example.com/disk": "4"}, False),
        ({"pods": "10"}, False),
        ({"example.com/disk": "1"}, True),
    ],
)
def test_each_resource_of_a_limit_is_counted_when_something_is_launched(limits: dict[str, str], broken: bool) -> None:
    region = Region(limits)
    region.node("a")
    region.node("b")
    assert region.told == ([Promise.LIMITS] if broken else [])


def test_what_leaves_for_good_or_by_a_command_counts_towards_no_limit() -> None:
    region = Region({"cpu": "4"})
    region.node("a", state="Draining")
    region.node("b")
    assert region.told == []
    command = {"cluster": "demo", "name": "one", "targets": ["b"]}
    region.judge.command_written("shiplap", json.dumps(command))
    region.node("c")
    assert region.told == []
    region.judge.command_written("shiplap", json.dumps({**command, "state": "Undone"}))
    region.node("d")
    assert region.told == [Promise.LIMITS]


def test_what_a_user_deletes_counts_towards_no_limit() -> None:
    """The claim leaves once Shiplap has seen it; Karpenter does not count such a node either."""
    region = Region({"cpu": "4"})
    region.node("a")
    gone = node("node-a", "i-a")
    gone["metadata"]["deletionTimestamp"] = "1970-01-01T00:16:40Z"
    region.has("nodes", gone)
    region.launched("b")
    region.judge.object_written("demo", "DELETED", "nodes", gone)
    region.launched("c")
    assert region.told == [Promise.LIMITS], "b and c are more than the limit"


def test_a_node_that_comes_back_counts_towards_its_limit_again() -> None:
    region = Region({"cpu": "4"})
    region.node("a")
    region.judge.object_written("demo", "DELETED", "nodes", node("node-a", "i-a"))
    region.has("nodes", node("node-a", "i-a"))
    region.launched("b")
    assert region.told == [Promise.LIMITS]


def test_a_limit_is_judged_as_soon_as_something_is_launched() -> None:
    """A pool over its limit gets no further plan, so that no later write would show the breach."""
    region = Region({"cpu": "12"})
    for name in ("a", "b", "c"):
        region.node(name)
    assert region.told == []
    region.launched("d")
    assert region.told == [Promise.LIMITS]


def test_nodes_that_a_command_gives_back_make_room_for_what_is_launched_meanwhile() -> None:
    region = Region({"cpu": "12"})
    for name in ("a", "b", "c"):
        region.node(name)
    command = {"cluster": "demo", "name": "first", "targets": ["a"], "replacements": ["d"]}
    region.judge.command_written("shiplap", json.dumps(command))
    region.node("d")
    assert region.told == []


def test_a_claim_costs_what_ec2_charges_for_its_instance() -> None:
    region = Region()
    region.node("a", hourly=0.1)
    region.node("b", hourly=0.11)
    assert region.told == [Promise.MONEY]


def test_a_claim_is_older_than_its_instance() -> None:
    region = Region()
    region.claim("a", "Planned", created_at=5.0)
    region.start("i-a", "a", launched_at=5.0)
    assert region.told == []
    region.claim("b", "Planned", created_at=5.0)
    region.start("i-b", "b", launched_at=4.0)
    assert region.told == [Promise.WRITTEN_FIRST]


def test_what_was_not_requested_is_no_launch() -> None:
    region = Region()
    region.add("i-x", "unknown")
    assert region.told == []
    region.start("i-y", "unknown")
    assert region.told == [Promise.WRITTEN_FIRST]


def test_what_a_look_from_time_to_time_cannot_see_breaks_nothing() -> None:
    """Versions between two looks, pods beside one that was deleted, and machines that ended by themselves."""
    region = Region(sampled=True)
    region.versions["a"] = 7
    region.node("a", state="Terminating", failure="InstanceTerminated")
    critical = pod("dns", priorityClassName="system-cluster-critical")
    region.has("pods", critical, pod("web-1"))
    region.judge.pod_deleted("shiplap", "demo", critical, False)
    region.terminate()
    assert region.told == []
    region.claim("a", "Terminating", instance_id="i-a", instance_type="m6i.xlarge", failure="Underutilized")
    region.terminate()
    assert region.told == [Promise.PODS_LEAVE_FIRST]


def test_pods_of_a_node_that_is_gone_belong_to_its_claim() -> None:
    region = Region()
    region.node("a", state="Draining", node_name="node-a")
    region.judge.object_written("demo", "DELETED", "nodes", node("node-a", "i-a"))
    delete(region, pod("web-1"))
    assert region.told == []


@pytest.mark.parametrize(("known_for_s", "broken"), [(2.0, False), (120.0, True)])
def test_a_second_node_for_a_pod_is_fair_when_the_first_was_planned_without_a_new_daemon_set(
    known_for_s: float, broken: bool
) -> None:
    region = Region()
    region.claim("before", "Planned")
    planned = {"owner": "one", "pods": [{"uid": "web", "name": "web"}], "instance_types": ["m6i.xlarge"]}

    region.has("daemonsets", {"metadata": {"name": "agent"}})
    region.now += known_for_s
    region.claim("a", "Planned", created_at=region.now, **planned)
    region.now += 3
    region.claim("b", "Planned", created_at=region.now, **planned)

    assert (Promise.ONE_DECISION in region.told) is broken


def test_a_token_is_sent_for_one_request_only() -> None:
    region = Region()
    for name in ("a", "b"):
        region.claim(name, "Planned", token="t")
    region.request("a", "b", token="t")
    region.request("a", token="t", wanted=2)
    assert region.told == []
    region.request("a", "b", token="t", capacity_type="on-demand")
    region.request("a", token="t")
    region.request("a", token="other")
    assert region.told == [Promise.ONE_TOKEN] * 3


def test_risk_leaves_a_choice_of_spot() -> None:
    region = Region()
    zones = [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a", "b"]}]
    many = [f"m{number}.large/{'ab'[number % 2]}" for number in range(40)]
    in_a = [name for name in many if name.endswith("a")]

    region.claim("a", "Planned", preferred_spot={"offerings": many[:15]}, requirements=zones)
    region.claim("b", "Planned", preferred_spot={"offerings": in_a})
    assert region.told == []
    region.claim("c", "Planned", preferred_spot={"offerings": many[:14]}, requirements=zones)
    region.claim("d", "Planned", preferred_spot={"offerings": in_a}, requirements=zones)
    assert region.told == [Promise.SPOT_CHOICE] * 2


@pytest.mark.parametrize(("most", "broken"), [(6, False), (7, True)])
def test_risk_gives_no_offering_more_than_its_share_of_the_pool(most: int, broken: bool) -> None:
    """Ten claims and ten machines: of more nodes nobody can have known."""
    region = Region()
    preferred = {"offerings": [f"m{number}.large/{'ab'[number % 2]}" for number in range(20)], "most": most}
    names = [f"c{number}" for number in range(10)]
    for name in names:
        region.claim(name, "Planned", preferred_spot=preferred, token="t")
        region.claim(name, "Launching", preferred_spot=preferred, token="t")
    region.claim("other", "Planned", node_pool="other")
    region.request(*names, token="t")
    for name in names:
        region.start(f"i-{name}", "t")
    launched = {"instance_id": "i-c0", "instance_type": "m6i.xlarge", "token": "t"}
    region.claim("c0", "Launched", preferred_spot=preferred, **launched)
    assert region.told == [Promise.SPOT_CHOICE] * broken


@pytest.mark.parametrize("most", [0, 1])
def test_one_node_is_a_share_of_any_pool(most: int) -> None:
    region = Region()
    preferred = {"offerings": [f"m{number}.large/{'ab'[number % 2]}" for number in range(20)], "most": most}
    region.claim("a", "Planned", preferred_spot=preferred)
    region.claim("a", "Launching", preferred_spot=preferred)
    region.request("a")
    region.start("i-a", "a")
    region.claim("a", "Launched", preferred_spot=preferred, instance_id="i-a", instance_type="m6i.xlarge")
    assert region.told == []


def test_a_claim_keeps_its_token() -> None:
    region = Region()
    region.claim("a", "Planned", token="t")
    region.claim("a", "Launching", token="u")
    assert region.told == [Promise.ONE_TOKEN]


def test_a_request_without_claims_and_more_instances_than_requested_are_found() -> None:
    region = Region()
    region.request("a")
    assert region.told == [Promise.WRITTEN_FIRST]
    region.claim("a", "Planned")
    region.start("i-a", "a")
    assert region.told == [Promise.WRITTEN_FIRST]
    region.start("i-b", "a")
    assert region.told == [Promise.WRITTEN_FIRST, Promise.NO_SECOND_LAUNCH]


def test_an_instance_has_one_claim_and_a_claim_one_instance() -> None:
    region = Region()
    region.node("a")
    region.claim("b", "Launched", instance_id="i-a", instance_type="m6i.xlarge")
    region.claim("a", "Draining", instance_id="i-z")
    assert region.told == [Promise.ONE_CLAIM] * 2


def test_states_follow_each_other_and_no_version_is_left_out() -> None:
    region = Region()
    region.claim("a", "Planned")
    region.claim("a", "Registered")
    region.claim("b", "Planned")
    region.versions["b"] += 1
    region.claim("b", "Launching")
    assert region.told == [Promise.READ_BEFORE_WRITE] * 2


def test_only_what_was_launched_belongs_to_a_claim() -> None:
    region = Region()
    region.claim("a", "Planned")
    region.claim("a", "Launching")
    region.claim("a", "Launched", instance_id="i-x", instance_type="m6i.xlarge")
    assert region.told == [Promise.INSTANCE_EXISTS]


def test_instances_without_a_claim_are_paid_for_fifteen_minutes_at_most() -> None:
    region = Region()
    region.add("i-x", "t")
    region.judge.tick(calm=False)
    region.now += judged.UNCLAIMED_S
    region.judge.tick(calm=True)
    assert region.told == []
    region.now += 1
    region.judge.tick(calm=True)
    region.now += judged.UNCLAIMED_S
    region.judge.tick(calm=True)
    assert region.told[0] == Promise.ACCOUNTED_FOR


def test_claims_without_an_instance_are_found_after_as_long() -> None:
    region = Region()
    region.node("a")
    region.claim("b", "Planned")
    region.judge.tick(calm=True)
    region.now += judged.UNCLAIMED_S + 1
    region.judge.tick(calm=True)
    region.claim("b", "Failed")
    region.judge.machine_ended("i-a")
    region.judge.tick(calm=True)
    region.now += judged.UNCLAIMED_S + 1
    region.judge.tick(calm=True)
    assert region.told == [Promise.ACCOUNTED_FOR] * 2


def test_a_node_ends_after_its_pods_or_at_its_deadline() -> None:
    region = Region()
    region.node(state="Terminating", deadline_at=2000.0)
    region.has("pods", pod("web-1"))
    region.terminate()
    assert region.told == [Promise.PODS_LEAVE_FIRST]
    region.now = 2000.0
    region.terminate()
    region.now = 1500.0
    region.has("nodes", node("node-a", "i-a", ready="Unknown"))
    region.terminate()
    assert region.told == [Promise.PODS_LEAVE_FIRST]


def test_pods_that_end_with_their_node_hold_nothing_up() -> None:
    region = Region()
    region.node(state="Terminating")
    static = pod("static")
    static["metadata"]["ownerReferences"] = [{"kind": "Node", "controller": True}]
    ended = pod("ended")
    ended["status"]["phase"] = "Succeeded"
    region.has("pods", static, ended, pod("all", tolerations=[{"operator": "Exists"}]))
    region.terminate()
    assert region.told == []


def test_nothing_is_ended_that_is_not_ours_or_stays() -> None:
    region = Region()
    region.node("a")
    region.terminate("i-a")
    region.add("i-x", "t", install="other")
    region.terminate("i-x")
    assert region.told == [Promise.ENDED_AFTER_LEAVING, Promise.OWN_INSTANCES]


def test_an_instance_that_a_claim_waits_for_is_not_ended() -> None:
    region = Region()
    region.claim("a", "Planned")
    region.start("i-a", "a")
    region.terminate()
    region.claim("a", "Failed")
    region.terminate()
    assert region.told == [Promise.ENDED_AFTER_LEAVING]


def delete(region: Region, item: dict[str, Any], *, forced: bool = False) -> None:
    marked = {**item, "metadata": {**item["metadata"], "deletionTimestamp": "1970-01-01T00:17:00Z"}}
    region.judge.object_written("demo", "MODIFIED", "pods", marked)
    region.judge.pod_deleted("shiplap", "demo", item, forced)


def test_pods_are_deleted_only_from_nodes_of_ours_that_leave() -> None:
    region = Region()
    region.node("a", state="Draining")
    region.node("b")
    for item in (pod("web-1"), pod("web-2", node="node-b"), pod("web-3", node="node-z")):
        region.has("pods", item)
        delete(region, item)
    assert region.told == [Promise.OWN_PODS, Promise.OWN_PODS]


def refused(region: Region, name: str, on: str) -> bool:
    """True if the judge reports that a new pod on a node must not be deleted there."""
    before = region.told.count(Promise.OWN_PODS)
    region.has("pods", pod(name, node=on))
    delete(region, pod(name, node=on))
    return region.told.count(Promise.OWN_PODS) > before


def test_an_eviction_that_was_under_way_may_take_effect_after_the_claims_end() -> None:
    """Its node had left, and the answer took so long that the machine's end was written first."""
    region = Region()
    region.node("a", state="Draining")
    region.node("b")
    for name in ("a", "b"):
        region.claim(name, "Gone", instance_id=f"i-{name}", node_name=f"node-{name}")

    assert not refused(region, "web-1", "node-a")
    assert refused(region, "web-2", "node-b"), "nobody had asked its pods to leave"
    region.now += 121
    assert refused(region, "web-3", "node-a")


def test_an_eviction_that_was_under_way_may_take_effect_after_a_node_stays_that_left_for_sleep() -> None:
    region = Region()
    region.node("a", state="Draining", failure="Asleep")
    region.claim("a", "Initialized", instance_id="i-a", node_name="node-a")
    assert not refused(region, "web-1", "node-a")
    region.now += 121
    assert refused(region, "web-2", "node-a")
    assert region.told.count(Promise.OWN_PODS) == 1


def one_leaves(key: tuple[str, str, str], claim: ClaimItem, pod: dict[str, Any] | None) -> str:
    """A rule that lets node `a` leave with pod `web-1`."""
    if pod is None:
        return "" if key == ("shiplap", "demo", "a") else f"{claim.name} leaves"
    return "" if pod["metadata"]["name"] == "web-1" else f"a pod of {key} is awake"


def test_a_node_leaves_for_an_optional_feature_only_as_its_rule_allows() -> None:
    region = Region()
    region.node("a", state="Draining", failure="Asleep")
    assert region.told == [Promise.ASLEEP], "there is no rule"

    region = Region()
    region.judge.leaving_rules["Asleep"] = one_leaves
    region.node("a", state="Draining", failure="Asleep")
    region.has("pods", pod("web-1", node="node-a"), pod("web-2", node="node-a"))
    delete(region, pod("web-1", node="node-a"))
    assert region.told == []
    delete(region, pod("web-2", node="node-a"))
    assert region.told == [Promise.ASLEEP]
    region.node("b", state="Draining", failure="Asleep")
    region.node("c", state="Draining", failure="Drifted")
    assert region.told == [Promise.ASLEEP] * 2


def test_protection_holds_until_a_pods_last_moment() -> None:
    region = Region()
    region.node(state="Draining", deadline_at=2000.0)
    kept = pod("web-1")
    kept["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "1h"}
    region.has("pods", kept)
    delete(region, kept, forced=True)
    assert region.told == [Promise.POD_BUDGETS, Promise.DO_NOT_DISRUPT]
    region.now = 2000.0 - 30 - 25
    delete(region, kept, forced=True)
    assert len(region.told) == 2


@pytest.mark.parametrize(
    ("spec", "broken"),
    [({"maxUnavailable": 1}, False), ({"maxUnavailable": 0}, True), ({"minAvailable": "50%"}, False)],
)
def test_an_eviction_leaves_as_many_pods_as_its_budget_wants(spec: dict[str, Any], broken: bool) -> None:
    region = Region()
    region.node(state="Draining")
    item = pod("web-1")
    selector = {"matchLabels": {"app": "web"}}
    budget = {"metadata": {"name": "web", "namespace": "default"}, "spec": {**spec, "selector": selector}}
    region.has("poddisruptionbudgets", budget)
    region.has("pods", item, pod("web-2"))
    delete(region, item)
    assert region.told == ([Promise.POD_BUDGETS] if broken else [])


def test_critical_pods_leave_after_the_others() -> None:
    region = Region()
    region.node(state="Draining")
    critical = pod("dns", priorityClassName="system-cluster-critical")
    ordinary = pod("web-1")
    region.has("pods", critical, ordinary)
    delete(region, critical)
    assert region.told == [Promise.CRITICAL_LAST]
    delete(region, ordinary)
    region.has("pods", critical)
    delete(region, critical)
    assert region.told == [Promise.CRITICAL_LAST]


@pytest.mark.parametrize(("deadline_at", "told"), [(1080.0, 0), (1082.0, 1), (0.0, 1)])
def test_a_warning_counts_from_its_own_moment(deadline_at: float, told: int) -> None:
    region = Region()
    detail = {"instance-id": "i-a"}
    region.judge.event_sent({"detail-type": WARNING, "time": "1970-01-01T00:16:00Z", "detail": detail})
    region.node(state="Draining", deadline_at=deadline_at, failure="SpotInterruption")
    assert region.told == [Promise.DEADLINES] * told


def test_a_later_warning_gives_no_more_time() -> None:
    region = Region()
    for minute in (16, 17):
        detail = {"instance-id": "i-a"}
        region.judge.event_sent({"detail-type": WARNING, "time": f"1970-01-01T00:{minute}:00Z", "detail": detail})
    region.node(failure="SpotInterruption", state="Draining", deadline_at=1080.0)
    known = {"instance_id": "i-a", "node_name": "node-a", "failure": "SpotInterruption", "token": "a"}
    region.claim("a", "Draining", deadline_at=1075.0, **known)
    assert region.told == []
    region.claim("a", "Draining", deadline_at=1080.0, **known)
    assert region.told == [Promise.DEADLINES]


def test_a_recorded_decision_is_made_again() -> None:
    region = Region()
    region.judge.decision_replayed({"record": "demo/1", "recorded": "a", "again": "a"})
    assert region.told == []
    region.judge.decision_replayed({"record": "demo/1", "recorded": "a", "again": "b"})
    region.judge.decision_replayed({"record": "demo/2", "recorded": "", "again": ""})
    assert region.told == [Promise.REPEATABLE] * 2


def test_a_node_holds_the_requests_of_its_pods() -> None:
    region = Region()
    region.node()
    region.has("pods", pod("web-1", cpu="3500m"))
    region.has("pods", pod("web-2", cpu="500m"))
    assert region.told == []
    region.has("pods", pod("web-3", cpu="1m"))
    assert region.told == [Promise.NODES_HOLD]


@pytest.mark.parametrize(
    ("quantity", "value"),
    [("100m", "0.1"), ("1Gi", str(GIB)), ("1E", str(10**18)), ("1e3", "1000"), ("1.5", "1.5"), (4, "4")],
)
def test_quantities(quantity: str, value: str) -> None:
    assert raw_json.amount(quantity) == Decimal(value)


@pytest.mark.parametrize("quantity", ["x", "1x", "1KiB", "Mi", "m1"])
def test_what_is_no_quantity(quantity: str) -> None:
    with pytest.raises(ValueError, match=quantity):
        raw_json.amount(quantity)


def test_sidecars_run_beside_init_containers_that_follow_them() -> None:
    def container(cpu: str, **more: str) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    init = [container("3"), container("1", restartPolicy="Always"), container("4")]
    spec = {"initContainers": init, "containers": [container("2")], "overhead": {"cpu": "500m"}}
    assert raw_json.requests_of({"spec": spec}) == {"cpu": Decimal("5.5"), "pods": Decimal(1)}
    whole = {**spec, "resources": {"requests": {"cpu": "7"}}}
    assert raw_json.requests_of({"spec": whole})["cpu"] == Decimal("7.5")


def test_limits_stand_for_requests_that_are_not_stated() -> None:
    asks = {"resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}}
    assert raw_json.requests_of({"spec": {"containers": [asks]}})["memory"] == GIB


def test_durations() -> None:
    assert raw_json.seconds("1h30m5s500ms") == 5405.5
    for text in ("5", "h", "1x"):
        with pytest.raises(ValueError, match=text):
            raw_json.seconds(text)


def limited(limits: dict[str, str]) -> Play:
    """The campaign's scenario, with these limits of its NodePool that has any."""
    play = load("mixed")
    manifests = {
        cluster: replace(each, node_pools=tuple(_with_limits(pool, limits) for pool in each.node_pools))
        for cluster, each in play.manifests.items()
    }
    return replace(play, manifests=manifests)


def _with_limits(pool: NodePool, limits: dict[str, str]) -> NodePool:
    return replace(pool, spec=replace(pool.spec, limits=limits)) if pool.spec.limits else pool


@pytest.mark.parametrize("limits", [{"memory": "40Gi"}, {"nodes": "3"}])
def test_limits_of_memory_and_of_nodes_are_judged_in_a_simulated_run(limits: dict[str, str]) -> None:
    play = limited(limits)
    assert run_seed(play, 0).violations == ()
    with planted("charges no limits"):
        broken = [violation.promise for seed in range(3) for violation in run_seed(play, seed).violations[:1]]
    assert set(broken) == {Promise.LIMITS}


def placed(name: str, node_name: str, version: int) -> dict[str, Any]:
    item = pod(name, node=node_name)
    return {**item, "metadata": {**item["metadata"], "resourceVersion": str(version)}}


@pytest.mark.parametrize(
    ("version", "pods", "broken"),
    [
        ("10", [("default/web-1", "node-a")], False),
        ("12", [], False),
        ("10", [], True),
        ("11", [("default/web-1", "node-a")], True),
        ("11", [("default/web-1", "node-a"), ("default/web-2", "node-b")], False),
        ("11", [("default/web-1", "node-a"), ("default/web-2", "node-a")], True),
        ("12", [("default/web-1", "node-a")], True),
    ],
)
def test_a_snapshot_shows_the_pods_of_its_version(version: str, pods: list[tuple[str, str]], broken: bool) -> None:
    region = Region()
    first, second = placed("web-1", "node-a", 10), placed("web-2", "node-b", 11)
    region.has("pods", first, second)
    for item, gone_at in ((second, "12"), (first, "12")):
        gone = {**item, "metadata": {**item["metadata"], "resourceVersion": gone_at}}
        region.judge.object_written("demo", "DELETED", "pods", gone)
    rows = [[0, 0, number, key.partition("/")[2], b"uid"] for number, (key, _) in enumerate(pods)]
    header = {"cluster": "demo", "version": version, "complete": True}
    document = [header, [None], [["default", {}, []]], [name for _, name in pods], rows]
    region.judge.snapshot_written("demo", zlib.compress(msgspec.msgpack.encode(document)))
    assert region.told == ([Promise.SNAPSHOTS] if broken else [])
    header["complete"] = False
    region.judge.snapshot_written("demo", zlib.compress(msgspec.msgpack.encode(document)))
    assert len(region.told) == broken


def test_what_a_decision_knows_is_as_of_some_version_that_is_not_too_old() -> None:
    region = Region()
    region.has("pods", placed("web-1", "node-a", 10), placed("web-2", "node-b", 11))
    first, second = ("default/web-1", "node-a", False), ("default/web-2", "node-b", False)
    region.judge.pods_known("demo", "10", [first])
    region.judge.pods_known("demo", "11", [first, second])
    assert region.told == []
    region.judge.pods_known("demo", "11", [first])
    region.judge.pods_known("demo", "10", [first, first])
    region.judge.pods_known("demo", "11", [first, ("default/web-2", "node-b", True)])
    assert region.told == [Promise.SNAPSHOTS] * 3


def test_a_snapshot_shows_which_pods_end() -> None:
    region = Region()
    item = placed("web-1", "node-a", 10)
    ending = {**item["metadata"], "resourceVersion": "11", "deletionTimestamp": "1970-01-01T00:17:00Z"}
    region.has("pods", item, {**item, "metadata": ending})
    for deleted, told in (("1970-01-01T00:17:00Z", 0), ("", 1)):
        row = [0, 0, 0, "web-1", b"uid", "", deleted, "started"]
        document = [{"version": "11", "complete": True}, [None], [["default", {}, []]], ["node-a"], [row]]
        region.judge.snapshot_written("demo", zlib.compress(msgspec.msgpack.encode(document)))
        assert len(region.told) == told
