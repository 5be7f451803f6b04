"""What a gang lacks in all under limits is told, and never more than it lacks."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.quantity import format_amount, parse_amount
from shiplap.manifests.custom_resources import NodePool
from shiplap.scheduling.planner import plan
from tests.builders.nodes import node
from tests.builders.pools import pool
from tests.conformance.catalogues import fake_type
from tests.strategies import sampled_from
from tests.thoroughness import draws
from tests.unit.gangs.gang_cases import gang, homes, planned, reasons, snapshot

GPU = "nvidia.com/gpu"
TYPES = (
    fake_type("small", cpu="4", memory="8Gi", pods="9", price=1.0),
    fake_type("large", cpu="16", memory="32Gi", pods="20", price=3.5),
    fake_type("gpus", cpu="32", memory="64Gi", pods="20", price=9.0, extra={GPU: "8"}),
)
TAINT = {"key": "for", "value": "train", "effect": "NoSchedule"}
_SHORT = re.compile(r"short by at least (\S+) (\S+) in all under the limits? of NodePools? ([^;]+)")


def said(*waiting: Pod, name: str = "train-0", **fields: Any) -> str:
    """What the plan says that a gang lacks in all; nothing where it does not say so."""
    found = _SHORT.search(reasons(planned(*waiting, types=TYPES, **fields)).get(name, ""))
    return " ".join(found.groups()) if found else ""


def gpus(name: str = "train", size: int = 4, each: str = "8", **fields: Any) -> list[Pod]:
    return gang(name, size, requests={GPU: each}, ports=[], **fields)


@pytest.mark.parametrize(
    ("limits", "lacks"),
    [
        ({GPU: "16"}, "16 nvidia.com/gpu train"),
        ({GPU: "20"}, "12 nvidia.com/gpu train"),
        ({GPU: "8", "cpu": "1000"}, "24 nvidia.com/gpu train"),
        ({"nodes": "3"}, "1 node train"),
        ({"nodes": "1"}, "3 nodes train"),
        ({"cpu": "64"}, "64 cpu train"),
        ({"memory": "64Gi"}, "196608Mi memory train"),
        ({GPU: "32"}, ""),
    ],
)
def test_the_whole_gang_is_told_of(limits: dict[str, str], lacks: str) -> None:
    assert said(*gpus(), pools=[pool("train", limits=limits)]) == lacks


def test_two_pools_count_together() -> None:
    both = [pool("a", limits={GPU: "8"}), pool("b", limits={GPU: "8"})]
    assert said(*gpus(), pools=both) == "16 nvidia.com/gpu a, b"
    apart = pool("c", limits={GPU: "8"}, taints=[TAINT])
    assert said(*gpus(), pools=[both[0], apart]) == "24 nvidia.com/gpu a"
    assert said(*gpus(), pools=[both[0], pool("d", limits={"cpu": "32"})]) == ""


def test_room_on_nodes_that_exist_counts() -> None:
    made = node("n")
    free = replace(made, status=replace(made.status, allocatable={**made.status.allocatable, GPU: "8"}))
    limited = [pool("train", limits={GPU: "16"})]
    assert said(*gpus(), pools=limited, existing=[free]) == "8 nvidia.com/gpu train"


def test_a_gang_lacks_what_those_before_it_take() -> None:
    first, later = gpus("first", 2, priority=9), gpus("train", 2)
    assert said(*first, *later, pools=[pool("train", limits={GPU: "24"})]) == "8 nvidia.com/gpu train"
    many = [item for number in range(9) for item in gpus(f"g{number}", 3)]
    told = reasons(planned(*many, types=TYPES, pools=[pool("train", limits={GPU: "24"})]))
    assert "short by at least 24 nvidia.com/gpu in all" in told["g8-0"]


@st.composite
def short_gangs(draw: st.DrawFn) -> tuple[list[Pod], list[NodePool]]:
    asked: dict[str, Any] = {"cpu": draw(sampled_from(["1", "3", "7"])), "memory": draw(sampled_from(["1Gi", "9Gi"]))}
    if draw(st.booleans()):
        asked["requests"] = {GPU: draw(sampled_from(["1", "3", "8"]))}
    ports = draw(sampled_from([[], [80]]))
    size = draw(st.integers(2, 7))
    limit = st.fixed_dictionaries(
        {}, optional={"cpu": st.integers(1, 60), "nodes": st.integers(1, 4), GPU: st.integers(1, 30)}
    )
    drawn = [draw(limit) for _ in range(draw(st.integers(1, 2)))]
    pools = [
        pool(name, limits={key: str(n) for key, n in each.items()}) for name, each in zip("ab", drawn, strict=False)
    ]
    return gang(size=size, minimum=draw(st.integers(2, size)), ports=ports, **asked), pools


@given(short_gangs())
@settings(derandomize=True, max_examples=draws(80), deadline=None)
def test_with_less_than_that_the_gang_does_not_start(drawn: tuple[list[Pod], list[NodePool]]) -> None:
    waiting, pools = drawn
    words = said(*waiting, pools=pools)
    if not words:
        return
    by, resource, named = words.split(" ", 2)
    resource = "nodes" if resource == "node" else resource
    less = parse_amount(resource, by) - 1
    first = named.split(", ")[0]
    raised = [
        pool(
            each.metadata.name,
            limits={
                **each.spec.limits,
                resource: format_amount(resource, parse_amount(resource, str(each.spec.limits[resource])) + less),
            },
        )
        if each.metadata.name == first
        else each
        for each in pools
    ]
    assert homes(plan(snapshot(*waiting, types=TYPES, pools=raised))) == []
