"""Tests the foreign nodes that teach, and the nodes of them about which Shiplap asks EC2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.errors import AwsError
from shiplap.flows.schedule.foreign_nodes import (
    has_our_settings,
    learn_from_foreign_nodes,
    observations,
    promising_nodes,
    unverified_types,
)
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes.objects import Node
from shiplap.ports import Instance
from shiplap.scheduling.model.snapshot import NodeClassCatalog
from tests.builders.nodes import node as any_node
from tests.integration.flows.stage import Stage

GIB = 2**30
CAPACITY = {"cpu": 2000, "memory": 8 * GIB, "pods": 29}
OVERHEAD = {"cpu": 100, "memory": GIB}


def joined(name: str = "n", **fields: Any) -> Node:
    """A node of 2 vCPUs and 8 GiB whose kubelet has our settings."""
    sizes = {"cpu": "1900m", "memory": "7Gi", "pods": "29", "capacity": {"cpu": "2", "memory": "8Gi", "pods": "29"}}
    known = {"instance_type": "m5.large", "provider_id": f"aws:///a/i-{name}", "born": None}
    return any_node(name, **sizes | known | fields)


def kind(name: str = "m5.large", **fields: Any) -> InstanceType:
    known: dict[str, Any] = {
        "capacity": CAPACITY,
        "overhead": OVERHEAD,
        "offerings": (),
        "verified": False,
        "ami": "ami-1",
        "kubelet_hash": "k",
    }
    return InstanceType(name=name, requirements=(), **known | fields)


@pytest.mark.parametrize(
    ("fields", "capacity", "allocatable", "alike"),
    [
        ({}, {}, {}, True),
        ({}, {"memory": 7 * GIB}, {"memory": 6 * GIB}, True),  # what it keeps back is the same
        ({}, {"pods": 30}, {}, False),
        ({}, {}, {"memory": 6 * GIB}, False),
        ({}, {}, {"cpu": 1800}, False),
        ({}, {"cpu": 4000}, {"cpu": 3900}, True),
        ({"overhead_fraction": {"memory": 0.05}}, {}, {}, False),
        ({"overhead": {"memory": GIB}}, {}, {}, False),
        ({"overhead": {"memory": GIB}}, {}, {"cpu": 2000}, True),
    ],
)
def test_which_kubelets_have_our_settings(
    fields: dict[str, Any], capacity: Mapping[str, int], allocatable: Mapping[str, int], alike: bool
) -> None:
    left = {name: amount - OVERHEAD.get(name, 0) for name, amount in CAPACITY.items()}
    assert has_our_settings(kind(**fields), {**CAPACITY, **capacity}, {**left, **allocatable}) is alike


def test_what_neither_a_node_nor_a_type_tells_of_is_alike() -> None:
    memory = {"memory": 8 * GIB, "pods": 29}
    assert has_our_settings(kind(overhead={"memory": GIB}), memory, {"memory": 7 * GIB, "pods": 29})
    assert not has_our_settings(kind(), memory, {"memory": 7 * GIB, "pods": 29})


def test_only_types_that_nobody_has_verified_and_that_have_an_ami_are_asked_for() -> None:
    catalogs = [
        NodeClassCatalog("a", (kind("new"), kind("known", verified=True), kind("without", ami=""))),
        NodeClassCatalog("b", (kind("new", ami="ami-2"),)),
    ]
    found = unverified_types(catalogs)
    assert {name: [item.ami for item in types] for name, types in found.items()} == {"new": ["ami-1", "ami-2"]}


@pytest.mark.parametrize(
    "odd",
    [
        joined(instance_type="m5.xlarge"),
        joined(provider_id="kind://local/n"),
        joined(capacity={"cpu": "2", "memory": "0", "pods": "29"}),
        joined(memory="5Gi"),
        joined(capacity={"cpu": "2", "memory": "8Gi", "pods": "110"}),
    ],
)
def test_a_node_that_can_teach_nothing_is_not_asked_about_and_hides_no_other(odd: Node) -> None:
    found = promising_nodes([joined("z"), odd], {"m5.large": [kind()]})
    assert list(found) == ["i-z"]


def test_one_of_several_kinds_is_enough_to_be_asked_about() -> None:
    kinds = [kind(overhead={"memory": 2 * GIB}), kind()]
    assert list(promising_nodes([joined()], {"m5.large": kinds})) == ["i-n"]


def test_the_newest_few_of_each_type_are_asked_about_by_name() -> None:
    """Nodes without a creation time count as oldest; of equally old nodes the first by name comes first."""
    nodes = [joined(f"n{number:02}", born=f"2026-01-{number + 1:02}T00:00:00Z") for number in range(12)]
    nodes += [joined("undated"), joined("other", instance_type="m5.xlarge")]
    types = {"m5.large": [kind()], "m5.xlarge": [kind("m5.xlarge")]}
    assert list(promising_nodes(nodes, types)) == [*(f"i-n{number:02}" for number in range(4, 12)), "i-other"]
    twins = [joined(f"t{number}", born="2026-01-01T00:00:00Z") for number in reversed(range(10))]
    assert list(promising_nodes(twins, types)) == [f"i-t{number}" for number in range(8)]


def test_each_type_learns_from_the_first_node_of_its_ami() -> None:
    nodes = {"i-1": joined("n1"), "i-2": joined("n2"), "i-3": joined("n3")}
    types = {"m5.large": [kind(), kind(ami="ami-2"), kind(ami="ami-3")]}
    amis = {"i-1": "ami-other", "i-2": "ami-1", "i-3": "ami-1"}
    (seen,) = observations("demo", nodes, amis, types, 7.0)
    assert (seen.node, seen.ami, seen.instance_type, seen.kubelet_hash) == ("n2", "ami-1", "m5.large", "k")
    assert (seen.observed_at, seen.cluster) == (7.0, "demo")
    assert (seen.capacity, seen.allocatable["memory"]) == (CAPACITY, 7 * GIB)
    assert seen.predicted == kind().allocatable


def test_types_of_other_settings_learn_each_from_a_node_of_theirs() -> None:
    types = {"m5.large": [kind(), kind(kubelet_hash="k2"), kind(kubelet_hash="k3", overhead={"memory": 2 * GIB})]}
    seen = observations("demo", {"i-1": joined("n1")}, {"i-1": "ami-1"}, types, 7.0)
    assert [item.kubelet_hash for item in seen] == ["k", "k2"]


def test_each_type_of_an_ami_learns_from_a_node_of_its_own() -> None:
    nodes = {"i-1": joined("n1"), "i-2": joined("n2", instance_type="c5.large")}
    types = {"m5.large": [kind()], "c5.large": [kind("c5.large")]}
    seen = observations("demo", nodes, dict.fromkeys(nodes, "ami-1"), types, 7.0)
    assert [(item.instance_type, item.node) for item in seen] == [("m5.large", "n1"), ("c5.large", "n2")]


def test_without_an_answer_of_ec2_nothing_is_learned_and_estimates_do() -> None:
    stage = Stage()
    stage.faults.on("before", "compute.images", AwsError("denied", code="UnauthorizedOperation"))
    assert learn_from_foreign_nodes("demo", [joined()], [NodeClassCatalog("a", (kind(),))], stage.context) is False
    assert stage.meter.counts == {"StrangersNotRead": 1.0}


def runs(stage: Stage, instance_id: str, ami: str) -> None:
    stage.compute.add(Instance(instance_id, "m5.large", "a", "on-demand", ami, "running"))


@pytest.mark.parametrize(("ami", "learned"), [("ami-1", True), ("ami-2", False)])
def test_what_was_learned_is_stored_and_counted(ami: str, learned: bool) -> None:
    stage = Stage()
    runs(stage, "i-n", ami)
    catalogs = [NodeClassCatalog("a", (kind(),))]
    assert learn_from_foreign_nodes("demo", [joined()], catalogs, stage.context) is learned
    assert len(stage.capacity.all()) == int(learned)
    assert stage.meter.counts == ({"TypesLearnedFromOthers": 1.0} if learned else {})


def test_a_node_that_has_reported_is_not_seen_again_each_minute() -> None:
    """While its report is in doubt, its type is unverified; seen again, the report would never be forgotten."""
    stage = Stage()
    runs(stage, "i-n", "ami-1")
    runs(stage, "i-other", "ami-1")
    catalogs = [NodeClassCatalog("a", (kind(),))]
    broken = joined(memory="10Mi", capacity={"cpu": "2", "memory": "1034Mi", "pods": "29"})
    assert learn_from_foreign_nodes("demo", [broken], catalogs, stage.context)
    stage.clock.advance(60)
    assert not learn_from_foreign_nodes("demo", [broken], catalogs, stage.context)
    assert [entry.reported[0].seen_at for entry in stage.capacity.all()] == [stage.clock.now() - 60]
    assert learn_from_foreign_nodes("demo", [broken, joined("other")], catalogs, stage.context), "another one teaches"


def test_a_node_that_has_reported_teaches_types_of_other_settings() -> None:
    stage = Stage()
    runs(stage, "i-n", "ami-1")
    assert learn_from_foreign_nodes("demo", [joined()], [NodeClassCatalog("a", (kind(),))], stage.context)
    both = [NodeClassCatalog("a", (kind(), kind(kubelet_hash="k2")))]
    assert learn_from_foreign_nodes("demo", [joined()], both, stage.context)
    assert sorted((entry.kubelet_hash, entry.version) for entry in stage.capacity.all()) == [("k", 1), ("k2", 1)]


def test_nodes_of_another_cluster_that_have_reported_hide_none_of_the_same_name() -> None:
    stage = Stage()
    runs(stage, "i-n", "ami-1")
    catalogs = [NodeClassCatalog("a", (kind(),))]
    for cluster in ("demo", "other"):
        assert learn_from_foreign_nodes(cluster, [joined()], catalogs, stage.context)


def test_without_a_node_that_may_teach_ec2_is_not_asked() -> None:
    stage = Stage()
    catalogs = [NodeClassCatalog("a", (replace(kind(), verified=True),))]
    assert not learn_from_foreign_nodes("demo", [joined()], catalogs, stage.context)
    assert stage.faults.points == []
