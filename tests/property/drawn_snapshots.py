"""Snapshots that Hypothesis draws."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.requirements import requirement
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import SchedulingSettings, Snapshot
from tests.builders.nodes import node
from tests.builders.pods import pods
from tests.builders.pools import pool, rule
from tests.conformance import given as case
from tests.conformance.catalogues import Z1, Z2, Z3, fake_type
from tests.strategies import sampled_from

ZONE, ARCH, KIND = "topology.kubernetes.io/zone", "kubernetes.io/arch", "karpenter.sh/capacity-type"


FAMILY, TYPE, TEAM = "example.com/family", "node.kubernetes.io/instance-type", "example.com/team"


TAINT = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}


SOFT = {"key": "soft", "value": "", "effect": "PreferNoSchedule"}


OFFERINGS = [(kind, zone) for kind in ("on-demand", "spot") for zone in (Z1, Z2, Z3)]


@st.composite
def instance_types(draw: st.DrawFn) -> tuple[InstanceType, ...]:
    types = []
    for place in range(draw(st.integers(1, 7))):
        cpu, memory = draw(sampled_from([1, 2, 4, 8, 16])), draw(sampled_from([1, 2, 4, 8, 32]))
        offered = draw(st.lists(sampled_from(OFFERINGS), min_size=1, max_size=5, unique=True))
        gone = draw(st.lists(sampled_from(offered), max_size=2))
        item = fake_type(
            f"t{place}",
            cpu=str(cpu),
            memory=f"{memory}Gi",
            pods=str(draw(sampled_from([2, 5, 20]))),
            offerings=offered,
            unavailable=gone,
            arch=draw(sampled_from(["amd64", "arm64"])),
            os=("linux",) if draw(st.booleans()) else ("linux", "windows"),
            price=draw(sampled_from([0.5, 1.0, 1.0, 2.0, 3.0])),
        )
        family = requirement(FAMILY, "In", (draw(sampled_from(["a", "b", "c"])),))
        item = msgspec.structs.replace(item, requirements=(*item.requirements, family))
        if draw(st.integers(0, 3)) == 0:
            careful = item.capacity | {"memory": int(item.capacity["memory"] * draw(sampled_from([0.6, 0.9, 1.0])))}
            item = msgspec.structs.replace(item, verified=False, careful=careful, ami="ami", kubelet_hash="k")
        types.append(item)
    return tuple(types)


@st.composite
def node_pools(draw: st.DrawFn) -> tuple[NodePool, ...]:
    pools = []
    for place in range(draw(st.integers(1, 3))):
        choices: list[dict[str, Any]] = [
            rule(ZONE, "In", *draw(st.lists(sampled_from([Z1, Z2, Z3]), min_size=1, unique=True))),
            rule(ARCH, "In", draw(sampled_from(["amd64", "arm64"]))),
            rule(FAMILY, "In", "a", "*"),
            rule(FAMILY, "NotIn", "c"),
            rule("integer", "Gt", draw(sampled_from(["1", "2"]))),
            rule(TYPE, "Exists", min_values=draw(st.integers(1, 3))),
            rule(TEAM, "In", "red", "blue"),
        ]
        limits = draw(
            sampled_from([{}, {}, {"cpu": "6"}, {"cpu": "17", "memory": "20Gi"}, {"nodes": "2"}, {"nodes": "0"}])
        )
        pools.append(
            pool(
                f"pool-{place}",
                *draw(st.lists(sampled_from(choices), max_size=3, unique_by=lambda rule: rule["key"])),
                labels={"tier": str(place)},
                taints=draw(sampled_from([[], [], [TAINT], [SOFT]])),
                limits=limits,
                weight=draw(st.integers(0, 2)),
            )
        )
    return tuple(pools)


@st.composite
def pending_pods(draw: st.DrawFn) -> list[Pod]:
    waiting: list[Pod] = []
    for kind in range(draw(st.integers(1, 5))):
        selectors: list[dict[str, str]] = [{}, {}, {ZONE: Z1}, {ARCH: "arm64"}, {TEAM: "red"}, {KIND: "spot"}]
        terms: list[list[list[dict[str, Any]]]] = [
            [],
            [],
            [[rule(ZONE, "In", Z3)], [rule(ZONE, "NotIn", Z3)]],
            [[rule(TEAM, "DoesNotExist")]],
            [[rule("tier", "Gt", "0")]],
            [[rule(FAMILY, "In", "b", "c"), rule(ARCH, "NotIn", "arm64")]],
        ]
        tolerations = [[], [{"key": "dedicated", "operator": "Exists"}], [{"operator": "Exists"}]]
        shape = {
            "cpu": draw(sampled_from(["0", "100m", "900m", "1", "2500m", "7"])),
            "memory": draw(sampled_from(["0", "100Mi", "900Mi", "1500Mi", "3Gi"])),
            "selector": draw(sampled_from(selectors)),
            "requires": draw(sampled_from(terms)),
            "tolerations": draw(sampled_from(tolerations)),
            "ports": draw(sampled_from([[], [], [], [80], [81]])),
            "priority": draw(sampled_from([0, 0, 10])),
        }
        waiting += pods(draw(st.integers(1, 6)), f"k{kind}", **shape)
    return waiting


@st.composite
def daemon_shapes(draw: st.DrawFn) -> list[dict[str, Any]]:
    """DaemonSets for any node, and for those of a zone, a capacity type or a label."""
    fields: dict[str, Any] = {"cpu": "500m", "memory": "100Mi", "tolerations": [{"operator": "Exists"}]}
    choosing: list[dict[str, Any]] = [
        {},
        {"selector": {ARCH: "amd64"}},
        {"selector": {ZONE: Z1}},
        {"selector": {ZONE: Z2, KIND: "spot"}},
        {"selector": {KIND: "on-demand"}, "tolerations": []},
        {"selector": {TEAM: "red"}},
        {"requires": [[rule(ZONE, "NotIn", Z1)]], "cpu": "1900m"},
        {"requires": [[rule(TEAM, "DoesNotExist")], [rule(KIND, "In", "spot")]]},
        {"requires": [[rule("tier", "Gt", "0"), rule(TEAM, "NotIn", "blue")]]},
        {"selector": {KIND: "spot"}, "ports": [80]},
    ]
    some = draw(st.lists(sampled_from(choosing), max_size=3, unique_by=str))
    return [{**fields, **choice} for choice in some]


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    waiting = draw(pending_pods())
    nodes = []
    bound = []
    for place in range(draw(st.integers(0, 3))):
        name = f"n{place}"
        nodes.append(
            node(
                name,
                cpu=draw(sampled_from(["1", "4"])),
                memory=draw(sampled_from(["2Gi", "8Gi"])),
                pods="5",
                labels={ZONE: draw(sampled_from([Z1, Z2])), ARCH: "amd64", KIND: "spot"},
                taints=draw(sampled_from([[], [], [TAINT]])),
                pool=draw(sampled_from(["", "pool-0"])),
                cordoned=draw(st.integers(0, 4)) == 0,
                deleting=draw(st.integers(0, 4)) == 0,
            )
        )
        bound += pods(draw(st.integers(0, 2)), f"bound-{place}", cpu="500m", node=name, owner="set")
    daemons = [case.daemon_set(f"d{n}", **shape) for n, shape in enumerate(draw(daemon_shapes()))]
    missed = draw(st.lists(sampled_from([pod.metadata.uid for pod in waiting]), max_size=2))
    return case.snapshot_of(
        (*waiting, *bound),
        nodes,
        pools=draw(node_pools()),
        types=draw(instance_types()),
        daemon_sets=daemons,
        missed_pods=frozenset(missed),
        piloted=frozenset(draw(sampled_from([[], [], ["ami/t0#k"]]))),
        settings=SchedulingSettings(min_values_policy=draw(sampled_from(["Strict", "BestEffort"]))),
    )


def flying(result: Plan) -> tuple[NodeClaim, ...]:
    return tuple(case.in_flight(claim) for claim in result.node_claims)
