"""Many pods per class, so that the bulk stage places them: plans keep every rule, whatever order pods bind in."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shiplap.kubernetes.objects import Pod
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import SchedulingSettings, Snapshot
from shiplap.scheduling.packing import strategies
from shiplap.scheduling.packing.bulk_stage import BulkStage
from shiplap.scheduling.packing.pack import Packing, Way
from shiplap.scheduling.packing.strategies import Batch
from shiplap.scheduling.planner import plan
from tests.builders.nodes import node
from tests.builders.pods import pod, pods
from tests.builders.pools import pool, rule
from tests.checker import violations
from tests.conformance import given as case
from tests.conformance.catalogues import Z1, Z2, Z3, fake_type
from tests.strategies import sampled_from
from tests.thoroughness import draws
from tests.topology_checker import affinity_violations, topology_violations

ZONE, HOST, KIND = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "karpenter.sh/capacity-type"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TAINT = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
SIZES = ("100m", "250m", "700m", "1500m")
SETTINGS = settings(
    derandomize=True,
    deadline=None,
    max_examples=draws(60),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@st.composite
def constraints(draw: st.DrawFn) -> dict[str, Any]:
    """One kind of constraint over one label, which is what the bulk stage settles in closed form."""
    term = {
        "topologyKey": draw(sampled_from([ZONE, ZONE, HOST, HOST, KIND])),
        "labelSelector": {"matchLabels": {"app": draw(sampled_from(["a", "b"]))}},
    }
    match draw(sampled_from(["none", "spread", "spread", "near", "away"])):
        case "spread":
            skew = draw(st.integers(1, 3))
            return {"topologySpreadConstraints": [{**term, "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule"}]}
        case "near":
            return {"affinity": {"podAffinity": {REQUIRED: [term]}}}
        case "away":
            return {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}}
    return {}


@st.composite
def workloads(draw: st.DrawFn) -> Snapshot:
    waiting: list[Pod] = []
    for kind in range(draw(st.integers(1, 4))):
        zone = draw(sampled_from(["", "", "", Z2]))
        ports = draw(sampled_from([0, 0, 0, 0, 8080]))
        metadata = {"labels": {"app": draw(sampled_from(["a", "b", "c"]))}}
        spec = draw(constraints())
        tolerations = draw(sampled_from([[], [{"operator": "Exists"}]]))
        for cpu in draw(st.lists(sampled_from(SIZES), min_size=1, max_size=2, unique=True)):
            waiting += pods(
                draw(st.integers(3, 12)),
                f"k{kind}-{cpu}",
                cpu=cpu,
                selector={ZONE: zone} if zone else {},
                tolerations=tolerations,
                metadata=metadata,
                spec=spec,
                ports=(ports,) if ports else (),
            )
    nodes = [
        node(f"n{place}", cpu=draw(sampled_from(["1", "4"])), labels={ZONE: draw(sampled_from([Z1, Z2]))})
        for place in range(draw(sampled_from([0, 0, 2])))
    ]
    pools = []
    for place in range(draw(st.integers(1, 2))):
        zones = draw(st.lists(sampled_from([Z1, Z2, Z3]), min_size=2, unique=True))
        pools.append(
            pool(
                f"pool-{place}",
                *draw(sampled_from([(), (rule(ZONE, "In", *zones),)])),
                taints=draw(sampled_from([[], [], [TAINT]])),
                limits=draw(sampled_from([{}, {}, {"cpu": "20"}, {"nodes": "4"}])),
                weight=draw(sampled_from([0, 10])),
            )
        )
    types = [
        fake_type("small", cpu="2", pods="5", price=0.2),
        fake_type("medium", cpu="4", memory="16Gi", pods="20", price=0.45),
        fake_type("large", cpu="16", memory="32Gi", pods="40", price=1.5),
    ]
    return case.snapshot_of(
        waiting,
        nodes,
        pools=pools,
        types=types,
        settings=SchedulingSettings(improve_s=draw(sampled_from([0.0, 0.002]))),
    )


@SETTINGS
@given(workloads())
def test_a_plan_keeps_every_rule(snapshot: Snapshot) -> None:
    result = plan(snapshot)
    assert violations(snapshot, result) == []
    # Which domains a spread compares changes while limits run out, so that order alone cannot explain such a plan.
    limited = any(pool.spec.limits for pool in snapshot.manifests.node_pools)
    judge = affinity_violations if limited else topology_violations
    assert judge(snapshot, result) == []


@SETTINGS
@given(workloads(), sampled_from([0.0005, 0.002, 0.01, 0.1, 1.0]))
def test_the_cost_search_keeps_every_rule_and_is_never_dearer(snapshot: Snapshot, improve_s: float) -> None:
    plain, improved = (
        msgspec.structs.replace(snapshot, settings=msgspec.structs.replace(snapshot.settings, improve_s=seconds))
        for seconds in (0.0, improve_s)
    )
    before, after = plan(plain), plan(improved)
    assert violations(improved, after) == []
    limited = any(pool.spec.limits for pool in snapshot.manifests.node_pools)
    assert (affinity_violations if limited else topology_violations)(improved, after) == []
    assert len(after.unschedulable) <= len(before.unschedulable)
    if len(after.unschedulable) == len(before.unschedulable):
        assert after.hourly <= before.hourly + 1e-6


@SETTINGS
@given(workloads(), st.integers(0, 1000))
def test_the_order_of_pods_does_not_matter(snapshot: Snapshot, seed: int) -> None:
    pods = list(snapshot.view.pods)
    random.Random(seed).shuffle(pods)  # noqa: S311 - a shuffle for a test
    other = msgspec.structs.replace(snapshot, view=msgspec.structs.replace(snapshot.view, pods=tuple(pods)))
    assert msgspec.json.encode(plan(other)) == msgspec.json.encode(plan(snapshot))


@settings(SETTINGS, max_examples=draws(25))
@given(workloads(), st.lists(st.tuples(sampled_from(SIZES), st.integers(0, 2)), min_size=1, max_size=12))
def test_namespaces_that_no_term_sees_change_only_names(snapshot: Snapshot, others: list[tuple[str, int]]) -> None:
    def planned(namespaces: tuple[str, ...]) -> tuple[int, float, list[object], list[str]]:
        added = [
            pod(f"other-{place}", cpu=cpu, metadata={"labels": {"app": "a"}, "namespace": namespaces[number]})
            for place, (cpu, number) in enumerate(others)
        ]
        view = msgspec.structs.replace(snapshot.view, pods=(*snapshot.view.pods, *added))
        result = plan(msgspec.structs.replace(snapshot, view=view))
        nodes = [
            (claim.node_pool, claim.instance_types, sorted(pod.name for pod in claim.pods))
            for claim in result.node_claims
        ]
        nodes += [(node.name, sorted(pod.name for pod in node.pods)) for node in result.existing_nodes]
        left = sorted(entry.pod.name for entry in result.unschedulable)
        return result.stats.classes, result.hourly, sorted(nodes, key=str), left

    assert planned(("one", "two", "three")) == planned(("one", "one", "one"))


@pytest.mark.parametrize("improve_s", [0.0, 0.01])
def test_the_bulk_stage_places_everything_and_zones_end_even(improve_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    run = BulkStage.run

    def counted(self: BulkStage, waiting: Any) -> Any:
        found = run(self, waiting)
        left.append(sum(len(pods) for _, pods in found))
        return found

    monkeypatch.setattr(BulkStage, "run", counted)
    result = _diverse(improve_s)
    assert set(left) == {0}
    zones = Counter(claim.launch.zone for claim in result.node_claims for pod in claim.pods if "even" in pod.name)
    assert max(zones.values()) - min(zones.values()) <= 1
    near = {claim.launch.zone for claim in result.node_claims for pod in claim.pods if "near" in pod.name}
    assert len(near) == 1
    alone = [sum("alone" in pod.name for pod in claim.pods) for claim in result.node_claims]
    assert max(alone) == 1
    # A node for each of the pods that keep apart is the least possible, and enough; more are only bought to save.
    assert len(result.node_claims) == sum(alone) or result.hourly < _diverse(0.0).hourly


def _diverse(improve_s: float) -> Plan:
    def selecting(app: str, key: str) -> dict[str, Any]:
        return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}

    even = {
        "topologySpreadConstraints": [{**selecting("even", ZONE), "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]
    }
    near = {"affinity": {"podAffinity": {REQUIRED: [selecting("near", ZONE)]}}}
    alone = {"affinity": {"podAntiAffinity": {REQUIRED: [selecting("alone", HOST)]}}}
    waiting: list[Pod] = []
    for app, spec in (("even", even), ("near", near), ("alone", alone), ("free", {})):
        for cpu in SIZES:
            waiting += pods(10, f"{app}-{cpu}", cpu=cpu, metadata={"labels": {"app": app}}, spec=spec)
    types = [
        fake_type(f"t{cpu}", cpu=str(cpu), memory=f"{4 * cpu}Gi", pods="100", price=0.1 * cpu) for cpu in range(1, 17)
    ]
    snapshot = case.snapshot_of(waiting, types=types, settings=SchedulingSettings(improve_s=improve_s, explore=False))
    result = plan(snapshot)
    assert violations(snapshot, result) == []
    assert topology_violations(snapshot, result) == []
    return result


@settings(SETTINGS, max_examples=draws(30))
@given(workloads())
def test_a_way_that_is_given_up_because_it_is_too_dear_would_not_have_been_chosen(snapshot: Snapshot) -> None:
    giving_up = plan(snapshot)
    begun = strategies.pack_once

    def to_the_end(batch: Batch, ordered: Sequence[PodClass], way: Way) -> Packing:
        return begun(batch, ordered, replace(way, most_hourly=np.inf))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strategies, "pack_once", to_the_end)
        assert plan(snapshot) == giving_up
