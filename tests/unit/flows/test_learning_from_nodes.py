"""Tests the facts that a joined node teaches, and the choice of the node that teaches among nodes alike."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import msgspec
import pytest

from shiplap.flows.learn import learn, learn_from_joined, seems_broken
from shiplap.instances.capacity.learned_capacity import shortfall
from shiplap.kubernetes.objects import NodeStatus, is_ready
from shiplap.kubernetes.quantity import parse_resources
from shiplap.manifests.nodeclaim import NodeClaim, PodReference
from tests.builders.claims import running_claim
from tests.builders.nodes import node as any_node
from tests.integration.flows.stage import Stage

node = partial(any_node, cpu="2", memory="8Gi", pods="29")
claim = partial(
    running_claim,
    cluster="demo",
    ami="ami-1",
    kubelet_hash="k",
    requests={"cpu": 2000, "memory": 8 * 2**30},
    pods=(PodReference("default", "a", "uid-a"), PodReference("default", "b"), PodReference("x", "c", "uid-c")),
)


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        ((), False),
        (({"type": "Ready", "status": "True"},), True),
        (({"type": "Ready", "status": "False"},), False),
        (({"type": "Ready", "status": "Unknown"},), False),
        (({"type": "DiskPressure", "status": "True"},), False),
        (({"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": "True"}), True),
        (({"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "False"}), True),
    ],
)
def test_a_node_is_ready_if_kubelet_says_so(conditions: tuple[Mapping[str, str], ...], ready: bool) -> None:
    assert is_ready(msgspec.convert({"conditions": conditions}, NodeStatus)) is ready


def test_a_node_that_is_as_planned_teaches_and_marks_no_pod() -> None:
    stage = Stage()
    assert learn(stage.context, claim(), node()) == {}
    (learned,) = stage.capacity.all()
    (seen,) = learned.recent
    assert (learned.ami, learned.instance_type, learned.kubelet_hash, seen.node) == ("ami-1", "m5.large", "k", "node")
    assert stage.state.read("demo", stage.clock.now()).missed_pods == frozenset()


def test_a_node_that_is_smaller_teaches_and_its_pods_are_planned_with_care() -> None:
    stage = Stage()
    assert learn(stage.context, claim(), node(memory="7Gi")) == {"memory": 2**30}
    assert len(stage.capacity.all()) == 1
    assert stage.state.read("demo", stage.clock.now()).missed_pods == {"uid-a", "uid-c"}


@pytest.mark.parametrize(("memory", "is_broken"), [("6Gi", False), ("6143Mi", True), ("10Mi", True)])
def test_a_node_with_less_than_three_quarters_teaches_but_its_pods_may_meet_estimates_again(
    memory: str, is_broken: bool
) -> None:
    stage = Stage()
    planned = claim(allocatable={"cpu": 2000, "memory": 8 * 2**30})
    short = learn(stage.context, planned, node(memory=memory))
    assert short == learn_of(Stage(), planned, memory)
    assert len(stage.capacity.all()) == 1
    assert stage.state.read("demo", stage.clock.now()).missed_pods == (set() if is_broken else {"uid-a", "uid-c"})


def learn_of(stage: Stage, planned: NodeClaim, memory: str) -> dict[str, int]:
    """The same of a node that joined and was found by a decision, with what it is short of."""
    found = node(memory=memory)
    is_broken = seems_broken(planned, found)
    assert learn_from_joined(stage.context, [(planned, found)]) == (frozenset() if is_broken else {"uid-a", "uid-c"})
    return shortfall(planned.plan.requests, parse_resources(found.status.allocatable))


@pytest.mark.parametrize("field", ["ami", "instance_type", "kubelet_hash"])
def test_nodes_are_alike_only_with_one_ami_type_and_kubelet(field: str) -> None:
    """The larger node of another kind teaches as well."""
    stage = Stage()
    joined = [(claim("c1"), node("n1", memory="7Gi")), (claim("c2", **{field: "other"}), node("n2", memory="9Gi"))]
    learn_from_joined(stage.context, joined)
    assert sorted(item.node for learned in stage.capacity.all() for item in learned.recent) == ["n1", "n2"]


def test_of_equal_nodes_the_first_by_name_teaches_for_all() -> None:
    stage = Stage()
    assert learn_from_joined(stage.context, [(claim(name), node(name)) for name in ("n3", "n1", "n2")]) == frozenset()
    assert [item.node for learned in stage.capacity.all() for item in learned.recent] == ["n1"]
    assert stage.state.read("demo", stage.clock.now()).missed_pods == frozenset()


def test_pods_of_every_node_that_is_smaller_are_marked() -> None:
    stage = Stage()
    other = claim("c2", pods=(PodReference("default", "z", "uid-z"),))
    joined = [(claim(), node("n1", memory="7Gi")), (other, node("n2", memory="7.5Gi")), (claim("c3"), node("n3"))]
    assert learn_from_joined(stage.context, joined) == {"uid-a", "uid-c", "uid-z"}
    assert stage.state.read("demo", stage.clock.now()).missed_pods == {"uid-a", "uid-c", "uid-z"}
