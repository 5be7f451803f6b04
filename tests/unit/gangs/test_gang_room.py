"""The bound of the room for gangs: it spares plans, and never refuses what a plan has room for."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shiplap.errors import InvalidInput
from shiplap.kubernetes.objects import Node, Pod
from shiplap.policies.gangs import waiting_gangs, whole_gangs
from shiplap.policies.gangs.gang import KnownGangs
from shiplap.policies.gangs.gang_membership import Membership, membership
from shiplap.policies.gangs.search.gang_room import GangRoom, PodKinds
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.planner import plan
from tests.builders.nodes import node
from tests.builders.pods import pods
from tests.builders.pools import pool
from tests.conformance.catalogues import Z1, Z2, fake_type
from tests.conformance.given import NOW, daemon_set
from tests.rules import ZONE
from tests.thoroughness import draws
from tests.unit.gangs.gang_cases import gang, reasons, snapshot

GPU = "nvidia.com/gpu"
TYPES = (
    fake_type("small", cpu="4", memory="8Gi", pods="9", price=1.0, offerings=[("on-demand", Z1), ("on-demand", Z2)]),
    fake_type("large", cpu="16", memory="32Gi", pods="20", price=3.5, offerings=[("on-demand", Z1)]),
    fake_type("gpus", cpu="32", memory="64Gi", pods="20", price=9.0, extra={GPU: "4"}, offerings=[("on-demand", Z2)]),
)
TAINT = {"key": "for", "value": "train", "effect": "NoSchedule"}
TOLERATED = {"tolerations": [{"key": "for", "operator": "Exists"}]}


def lack(of: Snapshot) -> str:
    """What the gangs of a cluster have too little of together."""
    gangs = waiting_gangs.waiting_gangs(of.view, KnownGangs(), NOW)
    return GangRoom(of, gangs, PodKinds()).lack(gangs)


@pytest.mark.parametrize(
    ("fields", "needed"),
    [
        ({"limits": {"cpu": "31"}}, "cpu for 32 is needed, nodes and NodePools have room for 31 at most"),
        ({"limits": {"cpu": "32"}}, ""),
        ({"limits": {"nodes": "1"}}, "nodes and NodePools have room for 15 of 16 members at most"),
        ({"limits": {"nodes": "2"}}, ""),
        ({"limits": {}}, ""),
        ({"limits": {"nodes": "1"}, "existing": [node("n", cpu="4")]}, ""),
        (
            {"limits": {"nodes": "1"}, "existing": [node("n", cpu="4", taints=[TAINT])]},
            "nodes and NodePools have room for 15 of",
        ),
    ],
)
def test_limits_and_nodes_bound_the_room(fields: dict[str, Any], needed: str) -> None:
    existing = fields.pop("existing", ())
    both = [*gang("a", 8, cpu="2", ports=[]), *gang("b", 8, cpu="2", ports=[])]
    found = lack(snapshot(*both, pools=[pool(**fields)], types=TYPES, existing=existing))
    assert found.startswith(needed)
    assert bool(found) == bool(needed)


def test_a_pool_that_pods_do_not_suit_has_no_room_for_them() -> None:
    apart = pool("apart", taints=[TAINT], limits={})
    near = pool("near", limits={"cpu": "4"})
    waiting = gang("a", 4, cpu="2", ports=[])
    assert "room for 4 at most" in lack(snapshot(*waiting, pools=[apart, near], types=TYPES))
    tolerant = gang("a", 4, cpu="2", ports=[], spec=TOLERATED)
    assert lack(snapshot(*tolerant, pools=[apart, near], types=TYPES)) == ""


def test_a_zone_without_offerings_has_no_room() -> None:
    for zone, short in ((Z1, True), (Z2, False)):
        waiting = gang("a", 2, requests={GPU: "4"}, ports=[], spec={"nodeSelector": {ZONE: zone}})
        assert lack(snapshot(*waiting, types=TYPES)) == (
            "nodes and NodePools have room for 0 of 2 members at most" if short else ""
        )


def test_members_that_may_be_missing_take_no_room() -> None:
    waiting = gang("a", 4, 2, cpu="8", ports=[])
    assert lack(snapshot(*waiting, pools=[pool(limits={"cpu": "16"})], types=TYPES)) == ""
    assert lack(snapshot(*waiting, pools=[pool(limits={"cpu": "15"})], types=TYPES)) != ""


def test_gangs_that_certainly_do_not_fit_cost_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    gangs = [gang(f"g{place:03}", 3, cpu="2", memory=f"{place + 1}Mi", ports=[]) for place in range(200)]
    asked = snapshot(*(item for members in gangs for item in members), pools=[pool(limits={"cpu": "5"})], types=TYPES)
    monkeypatch.setattr(whole_gangs, "_MOST_PLANS", 1)
    said = reasons(plan(asked))
    assert "1 of 3 members would have a place" in said["g000-0"]
    assert "short by at least 7 cpu in all under the limit of NodePool default" in said["g199-0"]


def _drawn_gang(draw: Random, name: str) -> list[Pod]:
    size = draw.randint(2, 5)
    minimum = draw.choice((size, size, draw.randint(2, size)))
    fields: dict[str, Any] = {"ports": draw.choice(([], [], [80])), "priority": draw.choice((0, 0, 5))}
    if draw.random() < 0.4:
        fields["spec"] = TOLERATED
    if draw.random() < 0.2:
        fields["annotations"] = {"kueue.x-k8s.io/podset-required-topology": ZONE}
    kinds = [_drawn_requests(draw) for _ in range(draw.choice((1, 1, 2)))]
    made = [item for kind in kinds for item in gang(name, size, minimum, **kind, **fields)]
    return [
        replace(item, metadata=replace(item.metadata, name=f"{name}-{place}"))
        for place, item in enumerate([*made[: size - 1], made[-1]])
    ]


def _drawn_requests(draw: Random) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "cpu": draw.choice(("500m", "1", "3", "7")),
        "memory": draw.choice(("100Mi", "3Gi", "9Gi")),
    }
    return asked | ({"requests": {GPU: draw.choice("124")}} if draw.random() < 0.3 else {})


def _drawn_limits(draw: Random) -> dict[str, str]:
    drawn = {"cpu": str(draw.randint(0, 60)), "nodes": str(draw.randint(0, 9)), GPU: str(draw.randint(0, 9))}
    return {name: amount for name, amount in drawn.items() if draw.random() < 0.4}


def _drawn(draw: Random) -> Snapshot:
    gangs = [_drawn_gang(draw, f"g{place}") for place in range(draw.randint(2, 6))]
    waiting = [item for members in gangs for item in members]
    if draw.random() < 0.5:
        waiting += pods(draw.randint(1, 4), "web", cpu="1")
    pools = [pool("near", limits=_drawn_limits(draw), weight=draw.choice((0, 9)))]
    if draw.random() < 0.6:
        pools.append(pool("train", limits=_drawn_limits(draw), taints=draw.choice(([], [TAINT]))))
    existing: Sequence[Node] = [node(f"n{place}", zone=draw.choice((Z1, Z2))) for place in range(draw.randint(0, 3))]
    daemons = (daemon_set(cpu="100m"),) if draw.random() < 0.3 else ()
    return snapshot(*waiting, pools=pools, types=TYPES, existing=existing, daemon_sets=daemons)


def _without_the_bound(of: Snapshot) -> Plan:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GangRoom, "lack", lambda *_: "")
        return plan(of)


@given(st.integers(0, 2**32))
@settings(max_examples=draws(30), deadline=None)
def test_the_plan_is_the_same_as_without_the_bound(seed: int) -> None:
    asked = _drawn(Random(seed))  # noqa: S311 - repeatable chance
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whole_gangs, "_MOST_PLANS", 10_000)
        bounded, tried = plan(asked), _without_the_bound(asked)
    assert bounded.node_claims == tried.node_claims
    assert bounded.existing_nodes == tried.existing_nodes
    assert bounded.ignored == tried.ignored
    assert [entry.pod for entry in bounded.unschedulable] == [entry.pod for entry in tried.unschedulable]


def test_what_cannot_be_read_is_said_as_without_gangs() -> None:
    broken = pool(limits={"cpu": "many"})
    with pytest.raises(InvalidInput, match="many"):
        plan(snapshot(*gang("a"), *gang("b"), pools=[broken]))


def test_a_view_is_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = snapshot(*gang("a"), *gang("b"))
    read: list[Pod] = []

    def reads(item: Pod) -> Membership | None:
        read.append(item)
        return membership(item)

    monkeypatch.setattr(waiting_gangs, "membership", reads)
    first = waiting_gangs.waiting_gangs(asked.view, KnownGangs(), NOW)
    assert waiting_gangs.waiting_gangs(asked.view, KnownGangs(10.0), NOW) == first
    assert len(read) == 8


def test_gangs_of_the_same_kinds_of_pods_are_alike_in_whatever_order_their_members_stand() -> None:
    waiting = []
    for name, sizes in (("a", "12"), ("b", "21")):
        for place, cpu in enumerate(sizes):
            (member,) = gang(name, 1, 2, cpu=cpu)
            waiting.append(replace(member, metadata=replace(member.metadata, name=f"{name}-{place}")))
    gangs = waiting_gangs.waiting_gangs(snapshot(*waiting, types=TYPES).view, KnownGangs(), NOW)
    kinds = PodKinds()
    assert [kinds.of(members) for members in gangs] == [[0, 1], [0, 1]]


def test_of_several_resources_the_one_is_named_that_is_shortest_in_proportion() -> None:
    """16 CPUs are a quarter of what is needed; 16 GiB less than half of the memory is missing."""
    waiting = gang("a", 16, cpu="4", memory="2Gi", ports=[])
    found = lack(snapshot(*waiting, pools=[pool(limits={"cpu": "16", "memory": "17Gi"})], types=TYPES))
    assert found == "cpu for 64 is needed, nodes and NodePools have room for 16 at most"
    found = lack(snapshot(*waiting, pools=[pool(limits={"cpu": "48", "memory": "8Gi"})], types=TYPES))
    assert found.startswith("memory for 32Gi is needed")
