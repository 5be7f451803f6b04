"""Checks and invariants must be able to fail: each is shown one world that keeps it and one that breaks it."""

import msgspec
import pytest

from shiplap.instances.catalog.type_catalog import LearnedCapacity
from shiplap.instances.catalog.type_catalog import Observation as Observed
from shiplap.kubernetes.objects import Event, Node, ObjectReference, Pod
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim, PodReference
from shiplap.ports import Instance
from shiplap_lab.dev import dev_report
from shiplap_lab.dev.checks import unmet
from shiplap_lab.dev.observation import ClusterObservation, RegionObservation, check_invariants
from shiplap_lab.scenarios.scenario import Expectation
from tests.node_claims import node_claim, with_fields

GIB = 2**30


def pod(name: str, node: str = "node-a", memory: str = "1Gi") -> Pod:
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"memory": memory}}}]},
        },
        Pod,
    )


def node(name: str = "node-a", **spec: object) -> Node:
    return msgspec.convert(
        {
            "metadata": {"name": name, "labels": {"node.kubernetes.io/instance-type": "m5.large"}},
            "spec": spec,
            "status": {"capacity": {"pods": "29"}, "allocatable": {"memory": "4Gi", "pods": "29"}},
        },
        Node,
    )


CLAIM = node_claim(
    cluster="c",
    name="claim-a",
    node_pool="flex",
    node_class="default",
    state=ClaimState.INITIALIZED,
    created_at=10.0,
    first_event_at=9.0,
    instance_id="i-1",
    instance_type="c7i-flex.large",
    zone="us-east-1a",
    capacity_type="on-demand",
    ami="ami-1",
    hourly=0.08,
    node_name="node-a",
    pods=(PodReference("default", "web-0", "web-0"),),
)
INSTANCE = Instance(
    "i-1", "c7i-flex.large", "us-east-1a", "on-demand", "ami-1", "running", 11.5, "c", "claim-a", "flex"
)


def world(**changes: object) -> RegionObservation:
    seen = ClusterObservation("c", (pod("web-0"),), (node(),), (), (CLAIM,), (INSTANCE,))
    return RegionObservation((msgspec.structs.replace(seen, **changes),))


def replaced(**changes: object) -> NodeClaim:
    return with_fields(CLAIM, **changes)


def test_a_sound_world_keeps_every_promise() -> None:
    assert all(check_invariants(world(), may_wait=frozenset()).values())


@pytest.mark.parametrize(
    ("promise", "broken"),
    [
        ("no pod is stranded", world(pods=(pod("web-0", node=""),))),
        ("a nodeclaim never misses twice", world(claims=(replaced(missed=True), replaced(name="b", missed=True)))),
        ("a nodeclaim never misses twice", world(claims=(replaced(missed=True), replaced(ami="ami-2", missed=True)))),
        ("no instance leaks, none is launched twice", world(claims=())),
        ("no instance leaks, none is launched twice", world(claims=(replaced(state=ClaimState.GONE),))),
        (
            "no instance leaks, none is launched twice",
            world(instances=(INSTANCE, msgspec.structs.replace(INSTANCE, id="i-2", state="terminated"))),
        ),
        ("a claim is written before its instance exists", world(claims=(replaced(created_at=12.0),))),
        ("no node holds more than it has", world(pods=(pod("web-0", memory="5Gi"),))),
        ("no message was given up", msgspec.structs.replace(world(), dead_letters=1)),
    ],
)
def test_each_promise_can_be_seen_broken(promise: str, broken: RegionObservation) -> None:
    assert check_invariants(broken, may_wait=frozenset())[promise] is False


def test_a_pod_may_wait_where_the_scenario_says_so() -> None:
    waiting = world(pods=(pod("web-0", node=""),))
    assert check_invariants(waiting, may_wait=frozenset({"c/default/web-0"}))["no pod is stranded"]


def told(message: str) -> Event:
    return Event(involved_object=ObjectReference(kind="Pod", namespace="default", name="web-0"), message=message)


LEARNED = LearnedCapacity(
    "ami-1", "m5.large", "h", (Observed("ami-1", "m5.large", "h", {"memory": GIB}, {}, 1.0, "c", "n"),)
)


@pytest.mark.parametrize(
    ("expectation", "met", "broken"),
    [
        (Expectation("x", pods="web"), world(), world(pods=(pod("web-0", node=""),))),
        (Expectation("x", pods="web"), world(), world(pods=())),
        (Expectation("x", pods="web", node_pool="flex"), world(), world(claims=(replaced(node_pool="other"),))),
        (Expectation("x", pods="web", node_pool="flex"), world(), world(claims=())),
        (Expectation("x", pods="web", tier=0), world(), world(claims=(replaced(tier=1),))),
        (
            Expectation("x", pods="web", instance_types=("c7i-flex.*",)),
            world(),
            world(claims=(replaced(instance_type="m5.large"),)),
        ),
        (Expectation("x", pods="web", amis=("ami-1",)), world(), world(claims=(replaced(ami="ami-2"),))),
        (Expectation("x", pods="web", nodes=1), world(), world(pods=(pod("web-0"), pod("web-1", node="node-b")))),
        (Expectation("x", pods="web", pod_capacity=29), world(), world(nodes=())),
        (Expectation("x", launches=1), world(), world(claims=())),
        (Expectation("x", misses=0), world(), world(claims=(replaced(missed=True),))),
        (
            Expectation("x", pods="web", unschedulable="short by 1Mi"),
            world(pods=(pod("web-0", node=""),), events=(told("memory short by 1Mi"),)),
            world(pods=(pod("web-0", node=""),), events=(told("something else"),)),
        ),
        (Expectation("x", pods="web", held_back=True), world(pods=(pod("web-0", node=""),)), world()),
        (
            Expectation("x", learned={"ami-1/m5.large": "1Gi"}),
            msgspec.structs.replace(world(), learned=(LEARNED,)),
            world(),
        ),
        (Expectation("x", untouched=("node-a",)), world(), world(nodes=())),
        (Expectation("x", untouched=("node-a",)), world(), world(nodes=(node(unschedulable=True),))),
    ],
)
def test_each_expectation_can_be_met_and_missed(
    expectation: Expectation, met: RegionObservation, broken: RegionObservation
) -> None:
    assert unmet(expectation, met, "c") == ()
    assert unmet(expectation, broken, "c")


def test_the_report_counts_what_was_seen() -> None:
    result = dev_report.summarize("demo", world(), {"kept": True})
    assert (result.pods, result.bound, result.launches, result.misses, result.hourly) == (1, 1, 1, 0, 0.08)
    assert result.event_to_launch_seconds.p50 == 2.5
    assert set(msgspec.to_builtins(result)) == {
        "scenario", "pods", "bound", "nodes", "misses", "launches", "hourly", "eventToLaunchSeconds", "invariants",
    }  # fmt: skip
    assert list(msgspec.to_builtins(result)["nodes"][0]) == [
        "name", "instanceType", "zone", "capacityType", "nodePool", "tier", "pods", "ami", "hourly",
    ]  # fmt: skip
