"""Pods that require each other move only where kube-scheduler can place all of them, whichever it binds first."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.kubernetes.objects import Pod
from tests.builders.pods import pod_on
from tests.builders.pools import pool
from tests.conformance.catalogues import Z1, Z2
from tests.conformance.disruptions import BOTH, ON_DEMAND, Standing, disrupted, large, small

ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def of_series(name: str, node: str, cpu: str, key: str, app: str = "db") -> Pod:
    """A pod that has to be in one domain with all pods of its app."""
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return pod_on(name, node, cpu=cpu, metadata={"labels": {"app": app}}, spec={"affinity": affinity})


def two_sizes(key: str, app: str = "db") -> list[Pod]:
    return [of_series("first", "a", "500m", key, app), of_series("second", "a", "1", key, app)]


def in_zones(
    key: str,
    *,
    room: dict[str, str],
    more: tuple[Pod, ...] = (),
    series: list[Pod] | None = None,
    pool_of_c: str = "default",
) -> set[str]:
    """The nodes that go of `a`, which holds a series, `b` in its zone and `c` in another, with so much CPU in use."""
    others: list[Standing] = [small("b", zone=Z1), small("c", zone=Z2, pool=pool_of_c)]
    kept: dict[str, Any] = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}
    filling = [pod_on(f"on-{name}", name, cpu=cpu, **kept) for name, cpu in room.items()]
    moving = two_sizes(key) if series is None else series
    verdict = disrupted(
        small("a", zone=Z1),
        *others,
        pods=[*moving, *filling, *more],
        pools=[pool("default", ON_DEMAND), pool("second", ON_DEMAND)],
        types=BOTH,
    )
    return verdict.removed


@pytest.mark.parametrize("key", [ZONE, HOSTNAME])
@pytest.mark.parametrize("pool_of_c", ["default", "second"])
@pytest.mark.parametrize(
    ("used_on_c", "gone"),
    [("3200m", set()), ("2800m", set()), ("3500m", {"a"}), ("1", {"a"})],
    ids=["room for the small one", "room for either", "room for none", "room for both"],
)
def test_a_series_moves_only_where_every_order_of_binding_places_it(
    key: str, pool_of_c: str, used_on_c: str, gone: set[str]
) -> None:
    """b has room for both pods: it is all the plan needs. kube-scheduler may begin on c."""
    assert in_zones(key, room={"b": "1", "c": used_on_c}, pool_of_c=pool_of_c) == gone


@pytest.mark.parametrize("key", [ZONE, HOSTNAME])
@pytest.mark.parametrize(
    ("used_on_c", "gone"),
    [("3200m", set()), ("3500m", {"a"})],
    ids=["room for the small one", "room for none"],
)
def test_a_series_gets_a_cheaper_node_only_where_it_cannot_begin_on_one_of_another_pool_and_zone(
    key: str, used_on_c: str, gone: set[str]
) -> None:
    kept: dict[str, Any] = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}
    verdict = disrupted(
        large("a", zone=Z1),
        small("c", zone=Z2, pool="second"),
        pods=[*two_sizes(key), pod_on("on-c", "c", cpu=used_on_c, **kept)],
        pools=[pool("default", ON_DEMAND), pool("second", ON_DEMAND)],
        types=BOTH,
    )
    assert verdict.removed == gone
    assert [len(command.replacements) for command in verdict.commands] == [1] * len(gone)


def test_a_peer_that_stays_leaves_no_choice() -> None:
    peer = of_series("peer", "b", "100m", ZONE)
    assert in_zones(ZONE, room={"b": "1", "c": "3200m"}, more=(peer,)) == {"a"}


def test_one_pod_alone_and_pods_of_other_apps_are_no_series() -> None:
    alone = [of_series("one", "a", "1", ZONE, "x"), of_series("two", "a", "500m", ZONE, "y")]
    assert in_zones(ZONE, room={"b": "1", "c": "3200m"}, series=alone) == {"a"}


def test_a_series_of_another_namespace_is_judged_by_itself() -> None:
    """Both ask for the same, and only one of them could be torn apart."""
    small_ones = [of_series(f"small-{place}", "a", "100m", ZONE) for place in range(2)]
    for moved, series in enumerate(([*small_ones, *two_sizes(ZONE)], [*two_sizes(ZONE), *small_ones])):
        of_web = [replace(item, metadata=replace(item.metadata, namespace="web")) for item in series[2:]]
        assert in_zones(ZONE, room={"b": "500m", "c": "2900m"}, series=[*series[:2], *of_web]) == set(), moved
