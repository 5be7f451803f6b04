"""The number of each node: lower where it should go sooner, the same as long as little changes, none where it stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from shiplap.disruption.disruption_snapshot import NodeHistory
from shiplap.kubernetes.objects import Pod
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.policies.deletion_costs.node_costs import by_urgency, node_costs
from tests.builders.pods import pod_on
from tests.builders.pools import pool, rule
from tests.conformance.disruptions import BOTH, ON_DEMAND, Standing, disrupted, large, small
from tests.conformance.given import NOW

GONE = rule("gone", "DoesNotExist")
KEEP = {"karpenter.sh/do-not-disrupt": "true"}


def costs(*nodes: Standing, pods: Sequence[Pod] = (), **fields: Any) -> dict[str, int | None]:
    known: dict[str, Any] = {"pools": [pool("default", ON_DEMAND)], "types": BOTH}
    verdict = disrupted(*nodes, pods=pods, **known | fields)
    return node_costs(verdict.snapshot, verdict.decision)


def load(node: str, number: int, held: int | None = None) -> list[Pod]:
    """Pods of a node, with the cost that was written on them."""
    text = str(held)
    marks = {"controller.kubernetes.io/pod-deletion-cost": text, "shiplap.dev/written-deletion-cost": text}
    names = (f"{node}-{place}" for place in range(number))
    return [pod_on(name, node, cpu="100m", annotations=marks if held is not None else {}) for name in names]


def departure(cost: int | None) -> int:
    assert cost is not None
    return -cost // 1_000_000


def worth(cost: int | None) -> int:
    assert cost is not None
    return -cost // 10_000 % 100


def test_nodes_are_ordered_by_dollars_for_the_cost_of_their_pods() -> None:
    found = costs(
        *(small(name) for name in "abc"), large("d"), pods=[*load("a", 9), *load("b", 2), *load("c", 4), *load("d", 9)]
    )
    assert by_urgency(found) == ["b", "d", "c", "a"]
    assert {departure(cost) for cost in found.values()} == {1}


def test_nodes_of_equal_worth_have_different_numbers() -> None:
    names = [f"node-{number}" for number in range(30)]
    found = costs(*(small(name) for name in names), pods=[each for name in names for each in load(name, 3)])
    assert len({worth(cost) for cost in found.values()}) == 1
    assert len(set(found.values())) == len(names)


def test_nodes_that_will_be_replaced_go_before() -> None:
    found = costs(
        small("plain"),
        large("drifted", labels={"gone": "x"}),
        small("old", made={"expire_after": "30h"}, created_at=NOW - 6 * 3600 - 1),
        small("young", made={"expire_after": "30h"}, created_at=NOW - 6 * 3600 + 1),
        pods=[each for name in ("plain", "drifted", "old", "young") for each in load(name, 5)],
        pools=[pool("default", ON_DEMAND, GONE)],
    )
    by_departure = {name: departure(cost) for name, cost in found.items()}
    assert by_departure == {"plain": 1, "young": 1, "drifted": 2, "old": 2}


@pytest.mark.parametrize("histories", [[], [NodeHistory("drifted", drifted_at=NOW - 60)]])
def test_nodes_that_leave_go_first_and_what_drifted_is_not_forgotten_as_pods_come(histories: list[NodeHistory]) -> None:
    leaves = small("leaves", state=ClaimState.DISRUPTING, made={"changed_at": NOW - 60})
    takes_its_pods = large("drifted", labels={"gone": "x"})
    pools = [pool("default", ON_DEMAND, GONE)]
    found = costs(leaves, takes_its_pods, pods=load("leaves", 5), pools=pools, histories=histories)
    assert {name: departure(cost) for name, cost in found.items()} == {"drifted": 1 + len(histories), "leaves": 3}
    assert by_urgency(found)[0] == "leaves"


@pytest.mark.parametrize(
    ("node", "fields"),
    [
        (small("a", annotations=KEEP), {}),
        (small("a"), {"pods": [pod_on("p", "a", annotations=KEEP)]}),
        (small("a"), {"pools": [pool("default", ON_DEMAND, after="Never")]}),
        (small("a"), {"pools": [pool("default", ON_DEMAND, replicas=1)]}),
        (small("a"), {"histories": [NodeHistory("a", said_to_stay=True)]}),
        (small("a", claimed=False), {}),
    ],
)
def test_nodes_that_stay_have_none(node: Standing, fields: dict[str, Any]) -> None:
    assert costs(node, **fields) == {"a": None}


def test_a_node_that_drifted_in_a_pool_that_is_never_consolidated_goes() -> None:
    found = costs(small("a", labels={"gone": "x"}), pools=[pool("default", ON_DEMAND, GONE, after="Never")])
    assert departure(found["a"]) == 2


@pytest.mark.parametrize(
    ("node", "fields"),
    [
        (small("a", initialized=False), {}),
        (small("a"), {"busy": ["a"]}),
        (small("a", state=ClaimState.DRAINING, made={"changed_at": NOW - 59}), {}),
        (small("a", pool="gone"), {}),
    ],
)
def test_pods_of_nodes_in_between_stay_as_they_are(node: Standing, fields: dict[str, Any]) -> None:
    assert costs(node, **fields) == {}


@pytest.mark.parametrize(("before", "is_kept"), [(5, True), (8, True), (13, True), (4, False), (16, False)])
def test_a_number_is_kept_until_the_worth_has_doubled_or_halved(before: int, is_kept: bool) -> None:
    """A node of 8 pods was written when it had `before` of them."""
    (held,) = costs(small("a"), pods=load("a", before)).values()
    (fresh,) = costs(small("a"), pods=load("a", 8)).values()
    (found,) = costs(small("a"), pods=load("a", 8, held)).values()
    assert found == (held if is_kept else fresh)


def test_of_two_numbers_that_pods_have_the_nearer_one_is_kept() -> None:
    far, near = (next(iter(costs(small("a"), pods=load("a", number)).values())) for number in (13, 10))
    mixed = [*load("a", 8, far)[:4], *load("a", 8, near)[4:]]
    assert costs(small("a"), pods=mixed) == {"a": near}


def test_a_number_of_another_departure_is_not_kept() -> None:
    (before,) = costs(small("a"), pods=load("a", 5)).values()
    drifted = {"pools": [pool("default", ON_DEMAND, GONE)], "pods": load("a", 5, before)}
    (after,) = costs(small("a", labels={"gone": "x"}), **drifted).values()
    assert (departure(before), departure(after)) == (1, 2)
    assert worth(before) == worth(after)


def test_a_node_without_a_known_price_goes_last() -> None:
    found = costs(small("a"), small("b", labels={"node.kubernetes.io/instance-type": "unknown"}))
    assert worth(found["b"]) == 0
    assert by_urgency(found) == ["a", "b"]


def test_costs_are_removed_before_others_are_written() -> None:
    assert by_urgency({"a": -1, "b": None, "c": -9, "d": -1, "e": None}) == ["b", "e", "c", "a", "d"]
