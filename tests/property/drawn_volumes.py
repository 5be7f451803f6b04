"""Worlds with volumes, and their plans."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from shiplap.kubernetes.objects import Pod
from tests.builders.nodes import node
from tests.builders.pods import pod
from tests.builders.pools import rule
from tests.conformance.catalogues import Z1, Z2, Z3, fake_type
from tests.conformance.given import Outcome, claim_volumes, csi_node, given, pv, pvc, storage_class

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
