"""Tests the facts a launch settles for its claim, the estimates that claims explore, and the facts a node teaches."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shiplap.flows.assign_instances import Attempt, launch_changes, offering_of, price_of_instance, release_leases
from shiplap.flows.learn import has_reported, instance_of, learn_from_joined, observation_of
from shiplap.flows.lifecycle.adoption import claim_of
from shiplap.flows.planning.decision_snapshots import exploring
from shiplap.instances.catalog.type_catalog import Offering
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, Taint
from shiplap.manifests.custom_resources import Manifests, NodePool
from shiplap.manifests.nodeclaim import ClaimPlan, ClaimState, LaunchedInstance, LaunchRequest, NodeClaim, PodReference
from shiplap.ports import Instance
from shiplap.settings import ClusterSettings
from tests.builders.claims import node_claim
from tests.builders.pools import pool
from tests.conformance.catalogues import fake_type
from tests.integration.flows.stage import Stage

NOW = 1_700_000_000.0
TYPE = msgspec.structs.replace(
    fake_type("m5.large", cpu="2", memory="8Gi", price=1.0),
    ami="ami-type",
    kubelet_hash="hash",
    offerings=(
        Offering("a", "on-demand", 0.1),
        Offering("b", "on-demand", 0.2),
        Offering("a", "spot", 0.05, available=False),
        Offering("a", "reserved", 0.001, reservation_id="cr-1"),
        Offering("a", "reserved", 0.002, reservation_id="cr-2", reservation_type="capacity-block"),
    ),
)


def instance(**fields: Any) -> Instance:
    known: dict[str, Any] = {
        "id": "i-1",
        "instance_type": "m5.large",
        "zone": "a",
        "capacity_type": "on-demand",
        "ami": "ami-1",
        "state": "pending",
        "launched_at": NOW,
        "cluster": "demo",
        "claim": "",
        "node_pool": "p",
        "subnet": "subnet-a",
        "security_groups": ("sg-1", "sg-2"),
    }
    return Instance(**known | fields)


CLAIM = node_claim(name="c", labels={"mine": "x"}, hourly=0.7)


@pytest.mark.parametrize(
    ("seen", "price"),
    [
        ({}, 0.1),
        ({"zone": "b"}, 0.2),
        ({"capacity_type": "spot"}, 0.05),
        ({"capacity_type": "reserved", "reservation": "cr-1"}, 0.001),
        ({"capacity_type": "reserved", "reservation": "cr-2"}, 0.002),
        ({"zone": "z"}, 0.2),
        ({"zone": "z", "capacity_type": "spot"}, 0.05),
        ({"capacity_type": "odd"}, 0.7),
    ],
)
def test_an_instance_costs_what_its_offering_does_else_the_dearest_elsewhere_else_what_was_planned(
    seen: dict[str, str], price: float
) -> None:
    assert price_of_instance(CLAIM, instance(**seen), TYPE) == price
    assert launch_changes(CLAIM, instance(**seen), TYPE)["hourly"] == price
    assert price_of_instance(CLAIM, instance(**seen), None) == 0.7


def test_all_of_an_instance_is_written_to_its_claim() -> None:
    found = launch_changes(CLAIM, instance(), None)
    assert found["instance"] == LaunchedInstance(
        id="i-1",
        type="m5.large",
        zone="a",
        capacity_type="on-demand",
        ami="ami-1",
        subnet="subnet-a",
        security_groups=("sg-1", "sg-2"),
    )
    assert "plan" not in found


def test_what_is_known_of_the_type_completes_it() -> None:
    found = launch_changes(CLAIM, instance(ami=""), TYPE)
    assert (found["instance"].ami, found["instance"].kubelet_hash) == ("ami-type", "hash")
    assert launch_changes(CLAIM, instance(), TYPE)["instance"].ami == "ami-1"
    marks = found["plan"].labels
    assert marks["mine"] == "x"
    assert marks[labels.INSTANCE_TYPE] == "m5.large"
    assert (marks[labels.ZONE], marks[labels.CAPACITY_TYPE]) == ("a", "on-demand")
    assert labels.RESERVATION_ID not in marks


def test_a_node_in_a_reservation_is_labelled_for_it_whatever_was_planned() -> None:
    planned = node_claim(name="c", labels={labels.RESERVATION_ID: "cr-1", labels.ZONE: "elsewhere"})
    found = launch_changes(planned, instance(capacity_type="reserved", reservation="cr-2"), TYPE)
    marks = found["plan"].labels
    assert (marks[labels.RESERVATION_ID], marks[labels.RESERVATION_TYPE]) == ("cr-2", "capacity-block")
    assert marks[labels.ZONE] == "elsewhere", "what was planned stays, but for the reservation"


def test_an_offering_is_found_whether_it_is_available_or_not() -> None:
    assert offering_of(instance(capacity_type="spot"), TYPE) == TYPE.offerings[2]
    assert offering_of(instance(zone="z"), TYPE) is None
    assert offering_of(instance(), None) is None


def test_a_pool_has_the_patience_that_was_learned_for_it() -> None:
    attempt = Attempt(owner="me", deadline=NOW, join_timeout_s=900, join_timeouts={"p": 120.0})
    assert (attempt.patience_s("p"), attempt.patience_s("q")) == (120.0, 900)


def test_all_leases_but_the_one_of_the_type_that_was_launched_are_given_back() -> None:
    stage = Stage()
    claim = node_claim(cluster=stage.name, name="c", relies_on_estimate=("a", "b", "unknown"))
    types = {name: msgspec.structs.replace(TYPE, name=name) for name in ("a", "b", "c")}
    for name in types:
        assert stage.capacity.acquire_pilot("ami-type", name, "hash", f"{stage.name}/c", NOW)

    def free() -> list[str]:
        return [name for name in types if stage.capacity.acquire_pilot("ami-type", name, "hash", "other", NOW)]

    release_leases(claim, types, stage.context, keep="a")
    assert free() == ["b"]


def relying(state: ClaimState, name: str, **fields: Any) -> Any:
    known = {"instance_type": "a", "ami": "ami-1", "kubelet_hash": "h", "node_class": "default"}
    return node_claim(name=name, state=state, relies_on_estimate=("a",), **known | fields)


@pytest.mark.parametrize(
    ("state", "fields", "found"),
    [
        (ClaimState.LAUNCHED, {}, {"ami-1/a#h"}),
        (ClaimState.LAUNCHED, {"instance_type": "b"}, set()),
        (ClaimState.PLANNED, {}, {"ami-type/a#hash"}),
        (ClaimState.LAUNCHING, {}, {"ami-type/a#hash"}),
        (ClaimState.PLANNED, {"node_class": "other"}, set()),
        (ClaimState.REGISTERED, {}, set()),
        (ClaimState.INITIALIZED, {}, set()),
        (ClaimState.FAILED, {}, set()),
    ],
)
def test_which_estimates_claims_in_flight_explore(state: ClaimState, fields: dict[str, str], found: set[str]) -> None:
    sold = {"default": tuple(msgspec.structs.replace(TYPE, name=name) for name in ("a", "b"))}
    assert exploring((relying(state, "c", **fields),), sold) == found


def joined(name: str, memory: str, cpu: str = "2") -> Node:
    amounts = {"memory": memory, "cpu": cpu}
    return msgspec.convert(
        {"metadata": {"name": name}, "status": {"capacity": {**amounts, "pods": "9"}, "allocatable": amounts}}, Node
    )


def test_a_node_teaches_what_it_has_and_what_was_expected() -> None:
    claim = node_claim(
        cluster="demo", ami="ami-1", instance_type="a", kubelet_hash="h", allocatable={"memory": 5}, name="c"
    )
    found = observation_of(claim, joined("n", "1Ki"), NOW)
    assert (found.ami, found.instance_type, found.kubelet_hash, found.cluster, found.node) == (
        "ami-1",
        "a",
        "h",
        "demo",
        "n",
    )
    assert (found.capacity, found.allocatable) == (
        {"cpu": 2000, "memory": 1024, "pods": 9},
        {"cpu": 2000, "memory": 1024},
    )
    assert (found.predicted, found.observed_at) == ({"memory": 5}, NOW)


def test_of_nodes_alike_those_teach_that_have_least_and_pods_that_miss_are_told() -> None:
    stage = Stage()
    pods = (PodReference("d", "p", "uid-p"), PodReference("d", "q"))

    def claim(name: str, wanted: int) -> Any:
        return node_claim(
            cluster=stage.name, name=name, ami="ami-1", instance_type="a", kubelet_hash="h",
            requests={"memory": wanted}, pods=pods,
        )  # fmt: skip

    nodes = [
        (claim("x", 1), joined("n1", "8Ki", "1")),
        (claim("y", 9000), joined("n2", "4Ki")),
        (claim("z", 1), joined("n3", "9Ki")),
    ]
    assert learn_from_joined(stage.context, nodes) == {"uid-p"}
    (learned,) = stage.capacity.learned(["ami-1"])
    assert sorted(item.node for item in learned.recent) == ["n1", "n2"]
    assert stage.state.read(stage.name, stage.clock.now()).missed_pods == {"uid-p"}
    assert learn_from_joined(stage.context, []) == frozenset()
    assert learn_from_joined(stage.context, nodes[:1]) == frozenset()


def registered(name: str = "n", **marks: str) -> Node:
    """A Node that an install registered as the claim `c` of NodePool `p`."""
    own = {
        labels.REGISTERED: "true",
        labels.INITIALIZED: "true",
        labels.NODE_CLAIM: "c",
        labels.NODE_POOL: "p",
        labels.NODE_CLASS: "default",
        **marks,
    }
    return msgspec.convert(
        {
            "metadata": {"name": name, "labels": {k: v for k, v in own.items() if v}},
            "status": {"allocatable": {"cpu": "2"}},
        },
        Node,
    )


def adopted(node: Node, **fields: Any) -> NodeClaim | None:
    template = {
        "taints": [{"key": "t", "effect": "NoSchedule"}],
        "startupTaints": [{"key": "s", "effect": "NoExecute"}],
    }
    plain = msgspec.to_builtins(pool("p"))
    plain["spec"]["template"]["spec"] |= template
    manifests = Manifests(node_pools=(msgspec.convert(plain, NodePool),))
    settings = ClusterSettings(name="demo", region="eu-west-1", manifests=manifests)
    return claim_of(settings, instance(**fields), node, NOW + 5)


def test_a_node_that_is_adopted_says_all_that_its_claim_said() -> None:
    found = adopted(registered())
    assert found == NodeClaim(
        cluster="demo",
        name="c",
        plan=ClaimPlan(
            node_pool="p",
            node_class="default",
            instance_types=("m5.large",),
            allocatable={"cpu": 2000},
            taints=(Taint(key="t", effect="NoSchedule"),),
            startup_taints=(Taint(key="s", effect="NoExecute"),),
        ),
        state=ClaimState.INITIALIZED,
        created_at=NOW,
        changed_at=NOW + 5,
        launch=LaunchRequest(token=""),
        instance=LaunchedInstance(
            id="i-1",
            type="m5.large",
            zone="a",
            capacity_type="on-demand",
            ami="ami-1",
            subnet="subnet-a",
            security_groups=("sg-1", "sg-2"),
        ),
        node_name="n",
    )
    young = adopted(registered(**{labels.INITIALIZED: ""}), launch="t")
    assert young is not None
    assert (young.state, young.launch.token) == (ClaimState.REGISTERED, "t")


@pytest.mark.parametrize(
    ("marks", "fields", "name"),
    [
        ({labels.NODE_CLAIM: ""}, {"claim": "tagged"}, "tagged"),
        ({labels.NODE_CLAIM: ""}, {}, None),
        ({labels.NODE_POOL: ""}, {"node_pool": ""}, None),
        ({labels.NODE_POOL: "unknown"}, {"node_pool": "unknown"}, None),
        ({}, {"node_pool": "another"}, None),
        ({}, {"node_pool": ""}, "c"),
        ({labels.REGISTERED: ""}, {}, None),
    ],
)
def test_which_nodes_are_adopted(marks: dict[str, str], fields: dict[str, str], name: str | None) -> None:
    found = adopted(registered(**marks), **fields)
    assert (found.name if found is not None else None) == name


def test_the_class_of_an_adopted_node_is_its_pools_where_it_does_not_say() -> None:
    found = adopted(registered(**{labels.NODE_CLASS: ""}))
    assert found is not None
    assert found.plan.node_class == "default"


@pytest.mark.parametrize("lacking", ["cpu", "memory", "pods"])
@pytest.mark.parametrize("where", ["capacity", "allocatable"])
def test_a_node_has_reported_once_kubelet_has_written_all_of_it(lacking: str, where: str) -> None:
    amounts = {"cpu": "2", "memory": "1Gi", "pods": "9"}
    status = {"capacity": dict(amounts), "allocatable": dict(amounts)}
    assert has_reported(msgspec.convert({"metadata": {"name": "n"}, "status": status}, Node))
    del status[where][lacking]
    assert not has_reported(msgspec.convert({"metadata": {"name": "n"}, "status": status}, Node))


@pytest.mark.parametrize(
    ("provider_id", "instance_id"),
    [
        ("aws:///eu-west-1a/i-0123", "i-0123"),
        ("aws:///i-0123", "i-0123"),
        ("aws:///eu-west-1a/fargate-ip", ""),
        ("kind://docker/kind/i-0123", ""),
        ("", ""),
    ],
)
def test_the_instance_of_a_node_is_in_its_provider_id(provider_id: str, instance_id: str) -> None:
    assert instance_of(provider_id) == instance_id
