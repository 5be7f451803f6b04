"""Priority: who is placed when limits or capacity are short, and that nothing else depends on it."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.builders.pods import pod, pods
from tests.builders.pools import pool
from tests.conformance.catalogues import fake_type
from tests.conformance.given import given
from tests.conformance.sold_reservations import APART

TYPES = [fake_type("four", cpu="4", memory="8Gi", pods="50", price=1.0)]


def placed(plan: Any) -> dict[str, int]:
    """Pods in claims by the first part of their name."""
    counts: dict[str, int] = {}
    for claim in plan.claims:
        for entry in claim.pods:
            kind = entry.name.partition("-")[0]
            counts[kind] = counts.get(kind, 0) + 1
    return counts


def test_of_a_class_that_is_placed_in_part_the_rest_goes_before_less_important_pods() -> None:
    limited = [pool(limits={"cpu": "8"})]
    waiting = [*pods(2, "large", cpu="3"), *pods(6, "vital", cpu="1", priority=9)]
    plan = given(*waiting, pools=limited, types=TYPES)
    assert placed(plan)["vital"] == 6
    assert {entry.pod.name for entry in plan.plan.unschedulable} == {"large-0", "large-1"}


def test_important_pods_that_could_never_be_placed_change_nothing() -> None:
    limited = [pool(limits={"cpu": "8"})]
    others = [*pods(2, "large", cpu="3"), *pods(3, "small", cpu="1")]
    plain = given(*others, pools=limited, types=TYPES).plan
    hopeless = given(*others, pod("giant", cpu="64", priority=9), pools=limited, types=TYPES).plan
    assert msgspec.json.encode(plain.node_claims) == msgspec.json.encode(hopeless.node_claims)


def test_part_of_a_class_that_its_own_constraints_leave_out_changes_nothing() -> None:
    limited = [pool(limits={"nodes": "2"})]
    alone = pods(3, "alone", cpu="1", priority=9, **APART)
    others = [*pods(2, "large", cpu="2"), *pods(2, "small", cpu="500m")]
    plan = given(*alone, *others, pools=limited, types=TYPES)
    assert placed(plan) == {"alone": 2, "large": 2, "small": 2}
    assert [entry.pod.name for entry in plan.plan.unschedulable] == ["alone-2"]


def test_several_priorities_are_served_in_their_order() -> None:
    limited = [pool(limits={"cpu": "4"})]
    waiting = [
        *pods(2, "low", cpu="1900m"),
        *pods(2, "middle", cpu="1800m", priority=5),
        pod("high-0", cpu="1700m", priority=9),
    ]
    plan = given(*waiting, pools=limited, types=TYPES)
    assert placed(plan) == {"high": 1, "middle": 1}


def test_an_important_pod_that_follows_another_is_not_forgotten() -> None:
    """Alone it would have no place, but with the pods it follows it has."""
    limited = [pool(limits={"nodes": "1"})]
    follows = {
        "affinity": {
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}}}
                ]
            }
        }
    }
    waiting = [
        pod("large-0", cpu="3"),
        pod("leader-0", cpu="1", priority=9, metadata={"labels": {"app": "db"}}),
        pod("follower-0", cpu="1", priority=9, spec=follows),
    ]
    plan = given(*waiting, pools=limited, types=TYPES)
    assert placed(plan) == {"leader": 1, "follower": 1}


def test_priority_changes_nothing_while_there_is_room() -> None:
    plain = given(*pods(3, "a", cpu="3"), *pods(5, "b", cpu="1"), types=TYPES).plan
    ranked = given(*pods(3, "a", cpu="3"), *pods(5, "b", cpu="1", priority=5), types=TYPES).plan
    assert [claim.pods for claim in plain.node_claims] == [claim.pods for claim in ranked.node_claims]
