"""Pods whose node turned out too small: whatever else is planned beside them, they rely on no estimate again."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes.objects import Pod
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import ClusterView, SchedulingSettings, Snapshot
from shiplap.scheduling.planner import plan
from tests.builders.pods import pods
from tests.builders.pools import pool, rule
from tests.conformance import given as case
from tests.conformance.catalogues import Z1, Z2, fake_type
from tests.strategies import sampled_from
from tests.thoroughness import draws

ZONE, TYPE = "topology.kubernetes.io/zone", "node.kubernetes.io/instance-type"
REQUIRED, PREFERRED = (f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred"))
GI = 2**30
SETTINGS = settings(
    derandomize=True, deadline=None, max_examples=draws(300), suppress_health_check=[HealthCheck.too_slow]
)


def _unverified(name: str, cpu: int, memory_gi: int, price: float, careful: float) -> InstanceType:
    item = fake_type(name, cpu=str(cpu), memory=f"{memory_gi}Gi", pods="20", price=price)
    return msgspec.structs.replace(
        item,
        verified=False,
        careful=item.capacity | {"memory": int(memory_gi * GI * careful)},
        ami="ami-1",
        kubelet_hash="k",
        sources={"memory": "formula"},
    )


def _soft(draw: st.DrawFn) -> dict[str, Any]:
    """Preferences that keep a pod out of the bulk stage, or none."""
    node = [
        {"weight": weight, "preference": {"matchExpressions": [rule(key, "In", value)]}}
        for weight, (key, value) in enumerate(
            draw(
                st.lists(
                    sampled_from([(ZONE, Z1), (ZONE, Z2), (ZONE, "nowhere"), (TYPE, "a"), (TYPE, "b")]), max_size=2
                )
            ),
            1,
        )
    ]
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": draw(sampled_from("ab"))}}}
    near = [{"weight": 1, "podAffinityTerm": term}] if draw(st.integers(0, 3)) == 0 else []
    required = [term] if draw(st.integers(0, 3)) == 0 else []
    return {"affinity": {"nodeAffinity": {PREFERRED: node}, "podAffinity": {PREFERRED: near, REQUIRED: required}}}


@st.composite
def batches(draw: st.DrawFn) -> Snapshot:
    waiting: list[Pod] = []
    for kind in range(draw(st.integers(2, 4))):
        waiting += pods(
            draw(sampled_from([1, 1, 2, 5])),
            f"k{kind}",
            cpu=draw(sampled_from(["100m", "1", "2"])),
            memory=draw(sampled_from(["100Mi", "1Gi", "2.5Gi", "6.8Gi", "7.5Gi", "13Gi", "15.5Gi"])),
            metadata={"labels": {"app": draw(sampled_from("ab"))}},
            spec=_soft(draw) if draw(st.booleans()) else {},
        )
    types = (
        _unverified("a", 4, 8, 1.0, draw(sampled_from([0.8, 0.9]))),
        _unverified("b", 8, 16, draw(sampled_from([1.5, 2.5])), draw(sampled_from([0.8, 0.9]))),
        fake_type("known", cpu="16", memory="32Gi", pods="20", price=draw(sampled_from([1.2, 4.0]))),
    )
    limits = draw(sampled_from([{}, {}, {"memory": "40Gi"}, {"cpu": "17"}]))
    return case.snapshot_of(
        waiting,
        pools=[pool("default", limits=limits)],
        types=types,
        missed_pods=frozenset(p.metadata.uid for p in waiting if draw(st.integers(0, 2)) == 0),
        settings=SchedulingSettings(improve_s=draw(sampled_from([0.0, 0.0, 0.005]))),
    )


def hopeful(snapshot: Snapshot, result: Plan) -> list[str]:
    """The missed pods that were put where an estimate is counted on, by the figures of the catalogue alone."""
    types = {item.name: item for item in snapshot.catalogs[0].instance_types}
    uid = {(pod.metadata.namespace, pod.metadata.name): pod.metadata.uid for pod in snapshot.view.pods}
    found = []
    for claim in result.node_claims:
        missed = [pod.name for pod in claim.pods if uid[pod.namespace, pod.name] in snapshot.missed_pods]
        beyond = [
            name
            for name in claim.instance_types
            for kind in [types[name]]
            if not kind.verified and claim.requests["memory"] > kind.careful_allocatable["memory"]
        ]
        if missed and (claim.relies_on_estimate or beyond):
            found.append(f"{missed} on {claim.name}, which counts on {claim.relies_on_estimate or beyond}")
    relying = {flight.name for flight in snapshot.claims if flight.plan.relies_on_estimate}
    for place in result.existing_nodes:
        missed = [pod.name for pod in place.pods if uid[pod.namespace, pod.name] in snapshot.missed_pods]
        if missed and place.name in relying:
            found.append(f"{missed} on {place.name}, which is in flight and counts on an estimate")
    return found


@SETTINGS
@given(batches())
def test_missed_pods_rely_on_no_estimate(snapshot: Snapshot) -> None:
    assert hopeful(snapshot, plan(snapshot)) == []


@SETTINGS
@given(batches(), st.integers(0, 2))
def test_nor_do_they_while_claims_are_in_flight(snapshot: Snapshot, parted: int) -> None:
    """A first plan without the missed pods; its claims are in flight when the missed pods come back."""
    pods = snapshot.view.pods
    fresh = tuple(pod for pod in pods if pod.metadata.uid not in snapshot.missed_pods)
    first = plan(msgspec.structs.replace(snapshot, view=ClusterView(fresh[parted:])))
    flight = tuple(case.in_flight(claim) for claim in first.node_claims)
    piloted = frozenset(f"ami-1/{name}#k" for claim in first.node_claims for name in claim.relies_on_estimate)
    again = msgspec.structs.replace(snapshot, claims=flight, epoch=1, piloted=piloted)
    assert hopeful(again, plan(again)) == []
