"""Random clusters without topology: whoever is left out, brute force finds no node and no new node that holds them."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shiplap.kubernetes.objects import Node, Pod, PodSpec
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.planner import plan
from tests.checker import violations
from tests.conformance import given as case
from tests.conformance.catalogues import Z1, Z2, Z3
from tests.leftovers import could_be_placed, without_topology
from tests.property.test_plans import flying, snapshots
from tests.strategies import sampled_from
from tests.thoroughness import draws

ZONE = "topology.kubernetes.io/zone"
SETTINGS = settings(
    derandomize=True,
    deadline=None,
    max_examples=draws(150),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
replace = msgspec.structs.replace
VOLUMES = ("data-0", "data-1", "data-2")


def extra(draw: st.DrawFn) -> dict[str, Any]:
    """Parts of a pod's spec that change what it takes or where it may run."""
    init = {"name": "init", "resources": {"requests": {"cpu": draw(sampled_from(["1", "3"]))}}}
    sidecar = {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"memory": "700Mi"}}}
    port = {
        "name": "p",
        "ports": [{"containerPort": 80, "hostPort": 80, "hostIP": draw(sampled_from(["", "10.0.0.1"]))}],
    }
    choices: list[dict[str, Any]] = [
        {},
        {},
        {"initContainers": [init]},
        {"initContainers": [sidecar]},
        {"initContainers": [{**port, "restartPolicy": "Always"}]},
        {"overhead": {"cpu": "250m", "memory": "100Mi"}},
        {"resources": {"requests": {"cpu": "1500m"}}},
        case.claim_volumes(draw(sampled_from(VOLUMES))),
        case.claim_volumes(*draw(st.lists(sampled_from(VOLUMES), min_size=2, max_size=3, unique=True))),
    ]
    return draw(sampled_from(choices))


def changed(pod: Pod, more: dict[str, Any]) -> Pod:
    return replace(pod, spec=msgspec.convert({**msgspec.to_builtins(pod.spec), **more}, PodSpec)) if more else pod


@st.composite
def worlds(draw: st.DrawFn) -> Snapshot:
    """The clusters of the other properties, with more kinds of pods, volumes, attach limits and nodes being drained."""
    snapshot = draw(snapshots())
    kinds: dict[str, dict[str, Any]] = {}
    pods = []
    for pod in snapshot.view.pods:
        kind = pod.metadata.name.rpartition("-")[0]
        if kind not in kinds:
            kinds[kind] = extra(draw)
        pods.append(changed(pod, kinds[kind]))
    storage: dict[str, list[Any]] = {"claims": [], "volumes": [], "classes": []}
    for name in VOLUMES:
        zones = draw(st.lists(sampled_from([Z1, Z2, Z3]), max_size=2, unique=True))
        if draw(st.booleans()):
            terms = [[case.rule(ZONE, "In", zone)] for zone in zones]
            storage["claims"].append(case.pvc(name, volume=f"v-{name}"))
            storage["volumes"].append(case.pv(f"v-{name}", *terms))
        else:
            storage["claims"].append(case.pvc(name, storage_class=f"s-{name}"))
            storage["classes"].append(case.storage_class(f"s-{name}", *({ZONE: [zone]} for zone in zones)))
    limits = [
        case.csi_node(node.metadata.name, ebs_csi_aws_com=draw(st.integers(0, 2)))
        for node in snapshot.view.nodes
        if draw(st.booleans())
    ]
    view = replace(
        snapshot.view,
        pods=tuple(pods),
        persistent_volume_claims=tuple(storage["claims"]),
        persistent_volumes=tuple(storage["volumes"]),
        storage_classes=tuple(storage["classes"]),
        csi_nodes=tuple(limits),
    )
    return without_topology(replace(snapshot, view=view))


@SETTINGS
@given(worlds())
def test_plans_of_richer_clusters_keep_every_rule(snapshot: Snapshot) -> None:
    assert violations(snapshot, plan(snapshot)) == []


@SETTINGS
@given(worlds())
def test_whoever_is_left_out_fits_nowhere(snapshot: Snapshot) -> None:
    assert could_be_placed(snapshot, plan(snapshot)) == []


@SETTINGS
@given(worlds())
def test_nor_while_claims_are_in_flight(snapshot: Snapshot) -> None:
    again = replace(snapshot, claims=flying(plan(snapshot)), epoch=1)
    second = plan(again)
    assert violations(again, second) == []
    assert could_be_placed(again, second) == []


@SETTINGS
@given(worlds())
def test_the_plan_of_a_plan_carried_out_launches_nothing(snapshot: Snapshot) -> None:
    """Once every pod of a plan runs where it was put, only those left out are planned, and they stay out."""
    first = plan(snapshot)
    homes = {(e.namespace, e.name): place.name for place in first.existing_nodes for e in place.pods}
    pods = tuple(
        replace(pod, spec=replace(pod.spec, node_name=home), status=replace(pod.status, conditions=(), phase="Running"))
        if (home := homes.get((pod.metadata.namespace, pod.metadata.name)))
        else pod
        for pod in snapshot.view.pods
    )
    gone: tuple[Node, ...] = tuple(n for n in snapshot.view.nodes if not n.metadata.deletion_timestamp)
    if len(gone) != len(snapshot.view.nodes):
        return
    relied = {f"ami/{name}#k" for claim in first.node_claims for name in claim.relies_on_estimate}
    carried_out = replace(
        snapshot,
        view=replace(snapshot.view, pods=pods),
        claims=flying(first),
        piloted=snapshot.piloted | relied,
        epoch=1,
    )
    second = plan(carried_out)
    assert second.node_claims == ()
    assert {record.pod for record in second.unschedulable} <= {record.pod for record in first.unschedulable}
