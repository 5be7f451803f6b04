"""Random pods with claims: plans keep them where their volumes are and within what drivers attach."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from hypothesis import given as examples
from hypothesis import settings

from shiplap.kubernetes.objects import Pod
from shiplap.scheduling.planner import plan
from tests.property.drawn_volumes import LIMIT, ZONE, ZONES, planned, worlds
from tests.thoroughness import draws


def used_by(item: Pod) -> list[str]:
    return [v.persistent_volume_claim.claim_name for v in item.spec.volumes if v.persistent_volume_claim]


def usable_zones(item: Pod, world: dict[str, Any]) -> set[str]:
    """The zones in which every volume of a pod can be used."""
    left = set(ZONES)
    for name in used_by(item):
        terms = world["volumes"][name]
        left &= {zone for term in terms for zone in term} if terms else set(ZONES)
    return left


def made_together(world: dict[str, Any]) -> set[str]:
    """The claims without a volume that several pods use: the first pod that binds decides where all of them run."""
    users = Counter(name for used, _ in (*world["waiting"], *world["running"]) for name in used)
    return {name for name, number in users.items() if number > 1 and not world["bound"][name]}


@settings(max_examples=draws(150), derandomize=True, deadline=None)
@examples(worlds())
def test_volumes_are_kept_and_nobody_is_left_out_for_nothing(world: dict[str, Any]) -> None:
    outcome, pods = planned(world)
    attached = {zone: {name for used, place in world["running"] if place == zone for name in used} for zone in ZONES}
    before = {zone: len(names) for zone, names in attached.items()}
    together = made_together(world)
    left = {entry.pod.name for entry in outcome.plan.unschedulable}
    for item in pods:
        name, possible = item.metadata.name, usable_zones(item, world)
        home = outcome.home(name)
        if not possible:
            assert "incompatible volume requirements" in outcome.left(name).message
            continue
        if item.metadata.name in left:
            assert together.intersection(used_by(item)), "no other pod decides where this one runs"
            continue
        if home in ZONES:
            assert home in possible
            attached[home].update(used_by(item))
        else:
            entry = next((r for r in outcome.claim_of(name).requirements if r.key == ZONE), None)
            assert set(entry.values if entry is not None else ZONES) <= possible
    for zone in ZONES:
        assert len(attached[zone]) <= max(LIMIT, before[zone])


@settings(max_examples=draws(50), derandomize=True, deadline=None)
@examples(worlds())
def test_the_order_of_lists_does_not_matter(world: dict[str, Any]) -> None:
    outcome, _ = planned(world)
    view = outcome.snapshot.view
    turned = msgspec.structs.replace(
        view,
        pods=view.pods[::-1],
        nodes=view.nodes[::-1],
        persistent_volume_claims=view.persistent_volume_claims[::-1],
        persistent_volumes=view.persistent_volumes[::-1],
        storage_classes=view.storage_classes[::-1],
        csi_nodes=view.csi_nodes[::-1],
    )
    assert plan(msgspec.structs.replace(outcome.snapshot, view=turned)) == outcome.plan
