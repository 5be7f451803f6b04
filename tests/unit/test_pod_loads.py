"""The load of a node is the sum of its pods' requests; a node with a pod that cannot be read has no known load."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiplap.kubernetes.objects import (
    Container,
    ContainerStatus,
    ObjectMeta,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.quantity import add_resources
from shiplap.scheduling.model.snapshot import ClusterView
from shiplap.scheduling.supply.node_loads import NO_LOAD, PodLoads, loads_by_node
from tests.builders.pods import pod as any_pod

pod = partial(any_pod, cpu="100m", node="n")


def test_a_node_bears_its_unfinished_pods_and_no_others() -> None:
    pods = (
        pod("a", cpu="1"),
        pod("b", cpu="500m"),
        pod("done", phase="Succeeded"),
        pod("c", node="m"),
        pod("waits", node=""),
    )
    found = ClusterView(pods=pods).of_pods(loads_by_node)
    assert {node: dict(load.requests) for node, load in found.items()} == {
        "n": {"cpu": 1500, "pods": 2},
        "m": {"cpu": 100, "pods": 1},
    }


def test_daemons_are_told_apart_and_move_nowhere() -> None:
    pods = (
        pod("agent", cpu="200m", owner="agent"),
        pod("web", cpu="300m", owner="web", owner_kind="ReplicaSet", ports=[8080]),
    )
    load = ClusterView(pods=pods).of_pods(loads_by_node)["n"]
    assert [dict(requests) for requests in load.daemons] == [{"cpu": 200, "pods": 1}]
    assert load.moving == {"cpu", "pods"}
    assert {number for number, _, _ in load.ports} == {8080}


def test_a_resize_changes_the_load_of_its_pod_alone() -> None:
    side = Container(name="side", resources=ResourceRequirements(requests={"cpu": "8"}), restart_policy="Always")
    held, less = (
        (ContainerStatus(name="side", resources=ResourceRequirements(requests={"cpu": cpu})),) for cpu in ("9", "1")
    )
    refused = PodCondition(type="PodResizePending", reason="Infeasible")
    statuses = (
        PodStatus(),
        PodStatus(init_container_statuses=held),
        PodStatus(
            init_container_statuses=less,
            conditions=(refused,),
        ),
    )
    pods = [
        Pod(ObjectMeta(name=f"p{place}"), PodSpec(init_containers=(side,), node_name="n"), status)
        for place, status in enumerate(statuses)
    ]
    loads = PodLoads()
    assert [loads.load([item]).requests["cpu"] for item in pods] == [8000, 9000, 1000]


def test_a_node_with_a_pod_that_cannot_be_read_is_left_to_who_looks_at_it() -> None:
    pods = (pod("a", cpu="much"), pod("b", node="m"))
    assert set(ClusterView(pods=pods).of_pods(loads_by_node)) == {"m"}
    with pytest.raises(ValueError, match="cpu"):
        PodLoads().load(pods)


@given(st.lists(st.tuples(st.sampled_from(["100m", "1", "250m"]), st.sampled_from(["", "n", "m"])), max_size=12))
def test_it_is_the_sum_of_what_each_asks_for(drawn: list[tuple[str, str]]) -> None:
    pods = tuple(pod(f"p{number}", node=node, cpu=cpu) for number, (cpu, node) in enumerate(drawn))
    found = ClusterView(pods=pods).of_pods(loads_by_node)
    for node in ("n", "m"):
        asked = [pod_requests(item) for item in pods if item.spec.node_name == node]
        assert dict(found.get(node, NO_LOAD).requests) == add_resources(*asked)
