"""Worlds with pods that are left out."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from shiplap.kubernetes.objects import Pod, PodSpec
from shiplap.scheduling.model.snapshot import Snapshot
from tests.builders.pools import rule
from tests.conformance import given as case
from tests.conformance.catalogues import Z1, Z2, Z3
from tests.leftovers import without_topology
from tests.property.drawn_snapshots import snapshots
from tests.strategies import sampled_from

ZONE = "topology.kubernetes.io/zone"


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
            terms = [[rule(ZONE, "In", zone)] for zone in zones]
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
