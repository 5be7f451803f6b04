"""Clusters whose pods have constraints of topology."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from shiplap.kubernetes.objects import Pod
from shiplap.scheduling.model.snapshot import Snapshot
from tests.builders.nodes import node
from tests.builders.pods import pod, pods
from tests.builders.pools import pool, rule
from tests.conformance import given as case
from tests.conformance.catalogues import Z1, Z2, Z3, fake_type
from tests.strategies import sampled_from

ZONE, HOST, KIND = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "karpenter.sh/capacity-type"


RACK, REQUIRED = "example.com/rack", "requiredDuringSchedulingIgnoredDuringExecution"


TAINT = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}


APPS = ("a", "b")


@st.composite
def constraints(draw: st.DrawFn) -> dict[str, Any]:
    """The part of a pod's spec that constrains its topology."""

    def term() -> dict[str, Any]:
        return {
            "topologyKey": draw(sampled_from([ZONE, ZONE, HOST, KIND, RACK])),
            "labelSelector": {"matchLabels": {"app": draw(sampled_from(APPS))}},
        }

    def spread() -> dict[str, Any]:
        return {
            **term(),
            "maxSkew": draw(st.integers(1, 3)),
            "whenUnsatisfiable": "DoNotSchedule",
            "minDomains": draw(sampled_from([1, 1, 2, 3])),
            "nodeAffinityPolicy": draw(sampled_from(["Honor", "Honor", "Ignore"])),
            "nodeTaintsPolicy": draw(sampled_from(["Honor", "Ignore"])),
        }

    spreads = [spread() for _ in range(draw(sampled_from([0, 0, 1, 1, 2])))]
    near = [term() for _ in range(draw(sampled_from([0, 0, 0, 1])))]
    away = [term() for _ in range(draw(sampled_from([0, 0, 0, 1])))]
    affinity = {"podAffinity": {REQUIRED: near}, "podAntiAffinity": {REQUIRED: away}}
    return {"topologySpreadConstraints": spreads, "affinity": affinity}


def labelled(draw: st.DrawFn) -> dict[str, Any]:
    return {"labels": {"app": draw(sampled_from([*APPS, "c"]))}}


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    waiting: list[Pod] = []
    for kind in range(draw(st.integers(1, 4))):
        zone = draw(sampled_from(["", "", "", Z1, Z3]))
        waiting += pods(
            draw(st.integers(1, 7)),
            f"k{kind}",
            cpu=draw(sampled_from(["100m", "500m", "1500m"])),
            selector={ZONE: zone} if zone else {},
            tolerations=draw(sampled_from([[], [{"operator": "Exists"}]])),
            metadata=labelled(draw),
            spec=draw(constraints()) if draw(st.integers(0, 3)) else {},
        )
    nodes, bound = [], []
    for place in range(draw(st.integers(0, 3))):
        labels = {ZONE: draw(sampled_from([Z1, Z2])), KIND: "spot"}
        nodes.append(
            node(
                f"n{place}",
                cpu=draw(sampled_from(["1", "4"])),
                labels=labels | draw(sampled_from([{}, {RACK: "r1"}])),
                taints=draw(sampled_from([[], [], [TAINT]])),
                cordoned=draw(st.integers(0, 4)) == 0,
            )
        )
        for number in range(draw(st.integers(0, 2))):
            spec = draw(constraints()) if draw(st.booleans()) else {}
            bound.append(pod(f"b{place}-{number}", node=f"n{place}", metadata=labelled(draw), spec=spec))
    pools = []
    for place in range(draw(st.integers(1, 2))):
        rules = [
            rule(ZONE, "In", *draw(st.lists(sampled_from([Z1, Z2, Z3]), min_size=1, unique=True))),
            rule(RACK, "In", "r1", "r2"),
        ]
        pools.append(
            pool(
                f"pool-{place}",
                *draw(st.lists(sampled_from(rules), max_size=2, unique_by=lambda rule: rule["key"])),
                taints=draw(sampled_from([[], [], [TAINT]])),
                limits=draw(sampled_from([{}, {}, {"cpu": "9"}, {"nodes": "2"}])),
            )
        )
    types = [fake_type("small", cpu="2", pods="5"), fake_type("large", cpu="8", memory="16Gi", pods="20")]
    return case.snapshot_of((*waiting, *bound), nodes, pools=pools, types=types)
