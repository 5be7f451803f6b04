"""Random pods with claims: plans keep them where their volumes are and within what drivers attach."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st

from shiplap.kubernetes.objects import Pod
from shiplap.scheduling.planner import plan
from tests.conformance.catalogues import Z1, Z2, Z3, fake_type
from tests.conformance.given import Outcome, claim_volumes, csi_node, given, node, pod, pv, pvc, rule, storage_class
from tests.thoroughness import draws

ZONE = "topology.kubernetes.io/zone"
ZONES = (Z1, Z2, Z3)
BIG = [fake_type("big", cpu="64", memory="64Gi", pods="200")]
NAMES = [f"c{number}" for number in range(6)]
LIMIT = 3

zone_sets = st.sets(st.sampled_from(ZONES), min_size=1).map(sorted)
alternatives = st.lists(zone_sets, min_size=0, max_size=2)
chosen_claims = st.lists(st.sampled_from(NAMES), max_size=3, unique=True)


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, Any]:
    """Draw the zones of each claim's volume (no alternatives: anywhere), the pods' claims, and running pods' zones."""
    return {
        "volumes": {name: draw(alternatives) for name in NAMES},
        "bound": {name: draw(st.booleans()) for name in NAMES},
        "waiting": draw(st.lists(st.tuples(chosen_claims, st.sampled_from(["100m", "1"])), min_size=1, max_size=8)),
        "running": draw(st.lists(st.tuples(chosen_claims, st.sampled_from(ZONES)), max_size=3)),
    }


def planned(world: dict[str, Any]) -> tuple[Outcome, list[Pod]]:
    storage: list[Any] = [csi_node(zone, ebs_csi_aws_com=LIMIT) for zone in ZONES]
    for name, terms in world["volumes"].items():
        if world["bound"][name]:
            storage += [pvc(name, volume=f"v-{name}"), pv(f"v-{name}", *([rule(ZONE, "In", *term)] for term in terms))]
        else:
            topologies = ({ZONE: term} for term in terms)
            storage += [pvc(name, storage_class=f"s-{name}"), storage_class(f"s-{name}", *topologies)]
    pods = [pod(f"w{n}", cpu=cpu, spec=claim_volumes(*used)) for n, (used, cpu) in enumerate(world["waiting"])]
    running = [pod(f"r{n}", node=zone, spec=claim_volumes(*used)) for n, (used, zone) in enumerate(world["running"])]
    nodes = [node(zone, cpu="16", memory="16Gi", labels={ZONE: zone}) for zone in ZONES]
    return given(*running, *pods, storage=storage, nodes=nodes, types=BIG), pods


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
