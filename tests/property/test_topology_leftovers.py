"""Random small clusters with topology constraints and preferences: a pod is left out only if no node could hold it."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shiplap.kubernetes.objects import Pod
from shiplap.scheduling.model.snapshot import SchedulingSettings, Snapshot
from shiplap.scheduling.planner import plan
from tests.builders.nodes import node
from tests.builders.pods import pod, pods
from tests.builders.pools import pool, rule
from tests.checker import violations
from tests.conformance import given as case
from tests.conformance.catalogues import Z1, Z2, Z3, fake_type
from tests.strategies import sampled_from
from tests.thoroughness import draws
from tests.topology_checker import topology_violations
from tests.topology_leftovers import missed_chances

ZONE, HOST, KIND = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "karpenter.sh/capacity-type"
RACK = "example.com/rack"
REQUIRED, PREFERRED = (f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred"))
APPS = ("a", "b")
SETTINGS = settings(
    derandomize=True,
    deadline=None,
    max_examples=draws(300),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def term(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "topologyKey": draw(sampled_from([ZONE, ZONE, HOST, KIND, RACK])),
        "labelSelector": {"matchLabels": {"app": draw(sampled_from(APPS))}},
    }


def terms(draw: st.DrawFn, *numbers: int) -> list[dict[str, Any]]:
    return [term(draw) for _ in range(draw(sampled_from(numbers)))]


def spreads(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Several at once, over different labels as on an API server, some of them soft."""
    found = {}
    for _ in range(draw(sampled_from([0, 0, 1, 1, 2]))):
        how = draw(sampled_from(["DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"]))
        least = {"minDomains": draw(sampled_from([1, 2, 3]))} if how == "DoNotSchedule" else {}
        item = {**term(draw), "maxSkew": draw(st.integers(1, 2)), "whenUnsatisfiable": how, **least}
        item["nodeAffinityPolicy"] = draw(sampled_from(["Honor", "Honor", "Ignore"]))
        item["nodeTaintsPolicy"] = draw(sampled_from(["Honor", "Ignore"]))
        found[item["topologyKey"]] = item
    return list(found.values())


def wishes(draw: st.DrawFn) -> dict[str, Any]:
    """The part of a pod's spec that constrains its topology or prefers something."""

    def preferred(*numbers: int) -> list[dict[str, Any]]:
        return [{"weight": draw(st.integers(1, 9)), "podAffinityTerm": one} for one in terms(draw, *numbers)]

    zones = [
        {"weight": 1, "preference": {"matchExpressions": [rule(ZONE, "In", zone)]}}
        for zone in draw(st.lists(sampled_from([Z1, Z2, Z3, "nowhere"]), max_size=1))
    ]
    return {
        "topologySpreadConstraints": spreads(draw),
        "affinity": {
            "nodeAffinity": {PREFERRED: zones},
            "podAffinity": {REQUIRED: terms(draw, 0, 0, 0, 1, 2), PREFERRED: preferred(0, 0, 1)},
            "podAntiAffinity": {REQUIRED: terms(draw, 0, 0, 0, 1), PREFERRED: preferred(0, 0, 1)},
        },
    }


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    waiting: list[Pod] = []
    for kind in range(draw(st.integers(1, 3))):
        zone = draw(sampled_from(["", "", "", Z1, Z3]))
        waiting += pods(
            draw(sampled_from([1, 2, 3, 4, 5, 25])),
            f"k{kind}",
            cpu=draw(sampled_from(["100m", "500m", "1500m"])),
            selector={ZONE: zone} if zone else {},
            tolerations=draw(sampled_from([[], [{"operator": "Exists"}]])),
            metadata={"labels": {"app": draw(sampled_from([*APPS, "c"]))}},
            spec=wishes(draw),
        )
    nodes, bound = [], []
    for place in range(draw(st.integers(0, 2))):
        labels = {ZONE: draw(sampled_from([Z1, Z2])), KIND: "spot"}
        nodes.append(
            node(
                f"n{place}",
                cpu=draw(sampled_from(["1", "4"])),
                labels=labels | draw(sampled_from([{}, {RACK: "r1"}])),
                cordoned=draw(st.integers(0, 4)) == 0,
            )
        )
        for number in range(draw(st.integers(0, 2))):
            spec = wishes(draw) if draw(st.booleans()) else {}
            metadata = {"labels": {"app": draw(sampled_from([*APPS, "c"]))}}
            bound.append(pod(f"b{place}-{number}", node=f"n{place}", metadata=metadata, spec=spec))
    rules = [
        rule(ZONE, "In", *draw(st.lists(sampled_from([Z1, Z2, Z3]), min_size=1, unique=True))),
        rule(RACK, "In", "r1", "r2"),
    ]
    pools = [pool("default", *draw(sampled_from([[], rules[:1], rules[1:], rules])), limits={})]
    if draw(st.booleans()):
        taint = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
        pools.append(pool("other", taints=[taint], limits={}))
    types = [fake_type("small", cpu="2", pods="4"), fake_type("large", cpu="8", memory="16Gi", pods="20")]
    return case.snapshot_of((*waiting, *bound), nodes, pools=pools, types=types)


@SETTINGS
@given(clusters())
def test_no_node_could_have_held_a_pod_that_was_left_out(snapshot: Snapshot) -> None:
    result = plan(snapshot)
    assert missed_chances(snapshot, result) == []
    assert violations(snapshot, result) == []
    assert topology_violations(snapshot, result) == []


@SETTINGS
@given(clusters())
def test_without_preferences_the_same_holds(snapshot: Snapshot) -> None:
    ignoring = msgspec.structs.replace(snapshot, settings=SchedulingSettings(preference_policy="Ignore"))
    assert missed_chances(ignoring, plan(ignoring)) == []
