"""Names of resources that users invent cost themselves: they make no array wider, and stop nobody else's launches."""

from __future__ import annotations

from shiplap.kubernetes.objects import MOST_ENTRIES, Pod
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.scheduling.model.bounds import BOUNDS
from shiplap.scheduling.packing.compiled_snapshot import compile_snapshot
from tests.builders.nodes import node
from tests.builders.pods import pod, pods
from tests.builders.pools import pool
from tests.conformance import given as case
from tests.conformance.catalogues import incrementing_types

TYPES = incrementing_types(10)


def inventive(number: int, names: int = 90) -> Pod:
    requests = {f"example.com/r-{number}-{place}": "1" for place in range(names)}
    return pod(f"inventive-{number}", requests=requests)


def test_invented_names_widen_no_array_and_their_pods_say_why_they_wait() -> None:
    hostile, neighbours = [inventive(number) for number in range(40)], pods(5, "neighbour", cpu="1")
    outcome = case.given(*hostile, *neighbours, types=TYPES)
    assert len(compile_snapshot(outcome.snapshot).axis) <= BOUNDS.resources + 3
    alone = case.given(*neighbours, types=TYPES)
    assert [claim.launch.price for claim in outcome.claims] == [claim.launch.price for claim in alone.claims]
    assert all(outcome.home(pod.metadata.name) for pod in neighbours)
    assert {entry.pod.name for entry in outcome.plan.unschedulable} == {pod.metadata.name for pod in hostile}
    message = outcome.left("inventive-39").message
    assert "asks for example.com/r-39-0: no instance type has it" in message
    assert f"more than {BOUNDS.resources} resources" in message


def test_resources_of_types_and_nodes_go_before_invented_ones() -> None:
    """By name they would come last."""
    rare = {"zz.example.com/fpga": "2"}
    special = node("with-fpga", cpu="8", memory="16Gi", capacity=rare)
    special.status.allocatable.update(rare)
    served = pod("served", cpu="1", requests={"zz.example.com/fpga": "1"})
    outcome = case.given(*(inventive(number) for number in range(40)), served, nodes=[special], types=TYPES)
    assert outcome.home("served") == "with-fpga"


def test_limits_of_invented_resources_push_no_limit_aside() -> None:
    limits = {"cpu": "3", **{f"a.example.com/limit-{place}": "1" for place in range(2 * BOUNDS.resources)}}
    outcome = case.given(*pods(9, cpu="1"), pools=[pool(limits=limits)], types=TYPES)
    assert len(outcome.plan.unschedulable) >= 6


def test_a_pod_of_more_resources_than_are_read_cannot_be_planned_and_says_so() -> None:
    containers = [
        {"name": f"c{part}", "resources": {"requests": {f"example.com/r-{part}-{place}": "1" for place in range(60)}}}
        for part in range(2)
    ]
    for field in ("containers", "initContainers"):
        outcome = case.given(pod("odd", spec={field: containers}), pod("good", cpu="1"), types=TYPES)
        assert outcome.left("odd").message == f"asks for more than {MOST_ENTRIES} resources"
        assert outcome.home("good")


def test_a_daemon_set_that_asks_for_a_resource_of_its_own_stops_no_launch() -> None:
    """Its pods wait on every node, so they take nothing of it, neither cpu."""
    outcome = case.given(
        pod("good", cpu="1"),
        types=TYPES,
        daemon_sets=[case.daemon_set("odd", cpu="100", requests={"example.com/none": "1"})],
    )
    assert outcome.home("good")


def test_a_daemon_set_counts_on_the_types_that_have_what_it_asks_for() -> None:
    """As before where a resource is there: nodes must have room for it."""
    hungry = [case.daemon_set("hungry", cpu="100")]
    assert not case.given(pod("good", cpu="1"), types=TYPES, daemon_sets=hungry).claims


def test_sidecars_and_init_containers_take_the_largest_step() -> None:
    """However many there are, each is looked at once."""

    def container(cpu: str, *, stays: bool = False, **more: str) -> dict[str, object]:
        policy = {"restartPolicy": "Always"} if stays else {}
        return {"name": "c", "resources": {"requests": {"cpu": cpu, **more}}, **policy}

    busy = pod(
        cpu="1",
        spec={
            "initContainers": [
                container("500m", stays=True, memory="1Gi"),
                container("3"),
                container("250m", stays=True),
                container("2", memory="2Gi"),
            ]
        },
    )
    assert pod_requests(busy) == {"cpu": 3500, "memory": 3 * 2**30, "pods": 1}
