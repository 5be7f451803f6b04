"""A gang that has waited long has room set aside from gangs after it, if it can ever have what it needs."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.kubernetes.objects import Node, Pod
from shiplap.policies.gangs.gang import KnownGangs
from shiplap.scheduling.model.scheduling_plan import Plan
from tests.builders.nodes import node
from tests.builders.pools import pool
from tests.conformance.catalogues import Z1, fake_type
from tests.unit.gangs.gang_cases import gang, homes, planned, reasons

GPU = "nvidia.com/gpu"
CREATED = "2026-01-01T00:00:00Z"
BEGAN = 1_767_225_600.0
TYPES = (
    fake_type("gpus", cpu="32", memory="64Gi", pods="20", price=9.0, extra={GPU: "4"}, offerings=[("on-demand", Z1)]),
    fake_type("plain", cpu="8", memory="16Gi", pods="20", price=1.0, offerings=[("on-demand", Z1)]),
)


def gpus(name: str, size: int, created: str = CREATED, **fields: Any) -> list[Pod]:
    return gang(name, size, created=created, requests={GPU: "4"}, ports=[], **fields)


LARGE = gpus("large", 4)
SMALL = gpus("small", 2, "2026-01-01T00:00:30Z")


def used(count: int) -> list[Node]:
    """Nodes of the NodePool without a GPU to spare."""
    capacity = {"cpu": "32", GPU: "4"}
    return [node(f"n{place}", cpu="32", pool="default", capacity=capacity) for place in range(count)]


def made(*waiting: Pod, after_s: float = 1800.0, running: int = 2, **fields: Any) -> Plan:
    given = {"pools": [pool(limits={GPU: "16"})], "types": TYPES, "existing": used(running), **fields}
    return planned(*waiting, known=KnownGangs(set_aside_s=1800.0), now=BEGAN + after_s, **given)


def test_small_gangs_have_the_room_until_a_large_one_has_waited() -> None:
    before = made(*LARGE, *SMALL, after_s=1799.0)
    assert homes(before) == ["small-0", "small-1"]
    after = made(*LARGE, *SMALL)
    assert homes(after) == []
    assert reasons(after)["small-0"] == (
        f"nothing is launched for gang default/small: {GPU} is set aside for gang default/large, "
        f"which waits since {CREATED}"
    )


def test_the_large_gang_starts_once_enough_nodes_have_ended() -> None:
    assert homes(made(*LARGE, *SMALL, running=0)) == [f"large-{place}" for place in range(4)]


@pytest.mark.parametrize(
    "pools",
    [
        [pool(limits={GPU: "12"})],
        [pool(limits={"nodes": "3"})],
    ],
)
def test_nothing_is_set_aside_for_what_no_limit_ever_allows(pools: list[Any]) -> None:
    assert homes(made(*LARGE, *SMALL, running=1, pools=pools)) == ["small-0", "small-1"]


def test_nothing_is_set_aside_where_ec2_has_nothing_to_sell() -> None:
    sold_out = fake_type(
        "gpus", cpu="32", extra={GPU: "4"}, offerings=[("on-demand", Z1)], unavailable=[("on-demand", Z1)]
    )
    said = reasons(made(*LARGE, *SMALL, types=(sold_out, TYPES[1])))
    assert not any("is set aside" in message for message in said.values())


def test_gangs_that_need_nothing_of_it_go_on() -> None:
    plain = gang("plain", 2, cpu="1", ports=[], created="2026-01-01T00:00:40Z")
    said = reasons(made(*LARGE, *SMALL, *plain))
    assert sorted(said) == [*(f"large-{place}" for place in range(4)), "small-0", "small-1"]


def test_a_second_pool_is_not_held_back() -> None:
    pools = [
        pool("default", limits={GPU: "16"}, labels={"for": "a"}),
        pool("other", limits={GPU: "16"}, labels={"for": "b"}),
    ]
    large = gpus("large", 4, spec={"nodeSelector": {"for": "a"}})
    here = gpus("here", 2, "2026-01-01T00:00:30Z", spec={"nodeSelector": {"for": "a"}})
    there = gpus("there", 2, "2026-01-01T00:00:30Z", spec={"nodeSelector": {"for": "b"}})
    assert homes(made(*large, *here, *there, pools=pools)) == ["there-0", "there-1"]


def test_what_a_running_gang_has_lost_is_not_held_back() -> None:
    lost = gpus("lost", 3, "2026-01-01T00:00:30Z")
    runs = [
        replace(item, spec=replace(item.spec, node_name="n0"), status=replace(item.status, conditions=()))
        for item in lost[:1]
    ]
    assert homes(made(*LARGE, *runs, *lost[1:])) == ["lost-1", "lost-2"]


def test_a_gang_of_a_higher_priority_goes_first() -> None:
    urgent = gpus("urgent", 2, "2026-01-01T00:00:30Z", priority=7)
    assert homes(made(*LARGE, *urgent)) == ["urgent-0", "urgent-1"]


def test_without_a_time_nothing_is_ever_set_aside() -> None:
    given: dict[str, Any] = {"pools": [pool(limits={GPU: "16"})], "types": TYPES, "existing": used(2)}
    never = planned(*LARGE, *SMALL, now=BEGAN + 10**6, **given)
    assert homes(never) == ["small-0", "small-1"]
