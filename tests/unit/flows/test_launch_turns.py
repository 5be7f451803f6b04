"""Budgets launch some of a plan's claims: as many of each zone as of the others."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.flows.planning.planned_launches import in_turns
from shiplap.flows.planning.unproven import UnprovenPodLimit, windows, within_ami_limits, within_limit
from shiplap.manifests.nodeclaim import NodeClaim, PodReference
from shiplap.scheduling.model.snapshot import ClusterView
from tests.builders.claims import node_claim

ZONE = "topology.kubernetes.io/zone"
ZONES = ("a", "b", "c")


def planned(zone: str, number: int, *, pods: int = 1, kind: str = "k") -> NodeClaim:
    claim = node_claim(name=f"{zone}-{number}", instance_types=("new",))
    held = tuple(
        PodReference("default", f"{zone}-{number}-{place}", f"u-{zone}-{number}-{place}") for place in range(pods)
    )
    return replace(claim, plan=replace(claim.plan, labels={ZONE: zone}, pods=held, unproven=(kind,)))


def by_zone(claims: list[NodeClaim]) -> Counter[str]:
    return Counter(claim.plan.labels[ZONE] for claim in claims)


@pytest.mark.parametrize("number", range(1, 13))
def test_each_beginning_is_level(number: int) -> None:
    claims = [planned(zone, place) for zone in ZONES for place in range(4)]
    found = by_zone(in_turns(claims)[:number])
    assert max(found.values()) - min(found[zone] for zone in ZONES) <= 1


def test_a_zone_with_larger_nodes_has_fewer_turns() -> None:
    claims = [*(planned("a", place, pods=3) for place in range(2)), *(planned("b", place) for place in range(6))]
    assert [claim.name for claim in in_turns(claims)][:4] == ["a-0", "b-0", "b-1", "b-2"]


def test_claims_of_one_zone_keep_their_order() -> None:
    claims = [planned("a", place) for place in (2, 0, 1)]
    assert in_turns(claims) == claims


@pytest.mark.parametrize("most", [1, 2, 3, 5, 7])
def test_an_ami_without_proof_starts_in_all_zones(most: int) -> None:
    groups = [[planned(zone, place) for place in range(4)] for zone in ZONES]
    sold: dict[str, Any] = {"new": SimpleNamespace(name="new", ami="ami")}
    found = by_zone(
        [claim for group in within_ami_limits(groups, [], {"ami": most}, lambda _: sold) for claim in group]
    )
    assert sum(found.values()) == most
    assert max(found.values()) - min(found[zone] for zone in ZONES) <= 1


@pytest.mark.parametrize("most", [2, 3, 6])
def test_pods_without_proof_get_their_first_nodes_in_all_zones(most: int) -> None:
    claims = [planned(zone, place) for zone in ZONES for place in range(10)]
    kept, told = within_limit(claims, UnprovenPodLimit(windows(most)), ClusterView(), 1_000.0)
    found = by_zone(kept)
    assert 0 < len(kept) < len(claims)
    assert len(told) == len(claims) - len(kept)
    assert max(found.values()) - min(found[zone] for zone in ZONES) <= 1
