"""Tests the bound on nodes on their way at once for an AMI with which no node has joined."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from shiplap.flows.planning.unproven import are_amis_full, within_ami_limits
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from tests.builders.claims import node_claim

SOLD: dict[str, Any] = {name: SimpleNamespace(name=name, ami=f"ami-{name}") for name in ("new", "old")}


def planned(name: str, kind: str = "new") -> NodeClaim:
    return node_claim(name=name, instance_types=(kind,))


def flying(name: str, state: ClaimState, ami: str = "ami-new") -> NodeClaim:
    return node_claim(name=name, state=state, ami=ami, instance_id="i-1")


def kept(groups: list[list[NodeClaim]], claims: list[NodeClaim], most: int) -> list[list[str]]:
    found = within_ami_limits(groups, claims, {"ami-new": most}, lambda _: SOLD)
    return [[claim.name for claim in group] for group in found]


def test_launches_of_one_ami_are_counted_together() -> None:
    groups = [[planned(f"{group}{number}") for number in range(3)] for group in "abc"]
    assert kept(groups, [], 5) == [["a0", "a1", "a2"], ["b0", "b1"]]
    assert kept(groups, [], 3) == [["a0", "a1", "a2"]]
    assert kept(groups, [], 9) == [[claim.name for claim in group] for group in groups]


def test_amis_with_proof_are_not_counted() -> None:
    groups = [[planned("a"), planned("b")], [planned("c", "old")] * 4, [planned("d")]]
    assert kept(groups, [], 1) == [["a"], ["c"] * 4]


@pytest.mark.parametrize(
    ("state", "counts"),
    [
        (ClaimState.PLANNED, True),
        (ClaimState.LAUNCHING, True),
        (ClaimState.LAUNCHED, True),
        (ClaimState.REGISTERED, False),
        (ClaimState.INITIALIZED, False),
        (ClaimState.DRAINING, False),
    ],
)
def test_nodes_on_their_way_count_until_they_join(state: ClaimState, counts: bool) -> None:
    claims = [flying("x", state), flying("y", state, ami="ami-old")]
    assert kept([[planned("a"), planned("b")]], claims, 2) == [["a"] if counts else ["a", "b"]]
    assert are_amis_full([SOLD["new"]], claims, {"ami-new": 1}) is counts


def test_a_claim_that_is_not_launched_yet_counts_for_the_ami_of_its_first_type() -> None:
    waiting = node_claim(name="w", state=ClaimState.PLANNED, instance_types=("new", "old"))
    assert kept([[planned("a"), planned("b")]], [waiting], 2) == [["a"]]


def test_nothing_can_be_launched_only_if_every_ami_is_full() -> None:
    claims = [flying("x", ClaimState.LAUNCHED)]
    assert not are_amis_full(SOLD.values(), claims, {"ami-new": 1})
    assert not are_amis_full([SOLD["new"]], claims, {"ami-new": 2})
    assert not are_amis_full([], claims, {"ami-new": 1})


def test_a_claim_without_types_is_of_no_ami() -> None:
    assert kept([[node_claim(name="odd", instance_types=())], [planned("a")]], [], 1) == [["odd"], ["a"]]


def test_the_ami_that_a_claim_was_launched_with_counts_and_not_that_of_its_types() -> None:
    claims = [node_claim(name="x", state=ClaimState.LAUNCHED, ami="ami-old", instance_types=("new",))]
    assert kept([[planned("a")]], claims, 1) == [["a"]]
