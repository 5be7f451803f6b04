"""Checks the expectations of a scenario's step."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from shiplap.kubernetes.objects import Node, Pod
from shiplap.kubernetes.quantity import parse_amount
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap_lab.checks.observation import ENDED, ClusterObservation, RegionObservation
from shiplap_lab.scenarios.scenario import Expectation


def unmet(expectation: Expectation, world: RegionObservation, cluster: str) -> tuple[str, ...]:
    """Every difference from the expectation, one line each; empty when all of it holds."""
    seen = world.cluster(cluster)
    return (
        *_counts(expectation, seen),
        *_pods(expectation, seen),
        *_learned(expectation, world),
        *_untouched(expectation, seen),
    )


def _counts(expectation: Expectation, seen: ClusterObservation) -> Iterator[str]:
    misses = sum(claim.missed for claim in seen.claims)
    if expectation.launches is not None and len(seen.launched) != expectation.launches:
        yield f"{len(seen.launched)} launches, expected {expectation.launches}"
    ended = sum(instance.state in ENDED for instance in seen.instances)
    if expectation.ended is not None and ended != expectation.ended:
        yield f"{ended} instances have ended, expected {expectation.ended}"
    running = len(seen.instances) - ended
    if expectation.running is not None and running != expectation.running:
        yield f"{running} instances are running, expected {expectation.running}"
    if expectation.misses is not None and misses != expectation.misses:
        yield f"{misses} misses, expected {expectation.misses}"


def _pods(expectation: Expectation, seen: ClusterObservation) -> Iterator[str]:
    if not expectation.pods:
        return
    group = tuple(pod for pod in seen.workload if pod.metadata.name.rpartition("-")[0] == expectation.pods)
    if not group:
        yield f"no pods {expectation.pods}-*"
    elif expectation.held_back or expectation.unschedulable:
        yield from _pending(expectation, seen, group)
    elif waiting := [pod.key for pod in group if not pod.spec.node_name]:
        yield f"not bound: {', '.join(waiting[:5])}"
    else:
        yield from _nodes(expectation, seen, group)


def _pending(expectation: Expectation, seen: ClusterObservation, group: tuple[Pod, ...]) -> Iterator[str]:
    for pod in group:
        if pod.spec.node_name:
            yield f"{pod.key} is bound to {pod.spec.node_name}"
        told = [event.message for event in seen.events if event.involved_object.name == pod.metadata.name]
        if expectation.unschedulable and not any(expectation.unschedulable in message for message in told):
            yield f"{pod.key}: no event says {expectation.unschedulable!r}; events: {told}"


def _nodes(expectation: Expectation, seen: ClusterObservation, group: tuple[Pod, ...]) -> Iterator[str]:
    names = sorted({pod.spec.node_name for pod in group})
    nodes = {node.metadata.name: node for node in seen.nodes}
    claims = {claim.node_name: claim for claim in seen.claims if claim.node_name}
    if expectation.nodes is not None and len(names) != expectation.nodes:
        yield f"{expectation.pods} runs on {len(names)} nodes, expected {expectation.nodes}"
    for name in names:
        yield from _claim(expectation, name, claims.get(name))
        yield from _capacity(expectation, name, nodes.get(name))


def _claim(expectation: Expectation, name: str, claim: NodeClaim | None) -> Iterator[str]:
    if claim is None:
        if expectation.node_pool or expectation.instance_types or expectation.tier is not None or expectation.amis:
            yield f"{name} is not a node of ours"
        return
    if expectation.node_pool and claim.plan.node_pool != expectation.node_pool:
        yield f"{name} is of pool {claim.plan.node_pool}, expected {expectation.node_pool}"
    if expectation.tier is not None and claim.plan.tier != expectation.tier:
        yield f"{name} is of tier {claim.plan.tier}, expected {expectation.tier}"
    if expectation.instance_types and not any(
        fnmatchcase(claim.known_instance.type, glob) for glob in expectation.instance_types
    ):
        yield f"{name} is a {claim.known_instance.type}, expected {' or '.join(expectation.instance_types)}"
    if expectation.amis and claim.known_instance.ami not in expectation.amis:
        yield f"{name} runs {claim.known_instance.ami}, expected {' or '.join(expectation.amis)}"


def _capacity(expectation: Expectation, name: str, node: Node | None) -> Iterator[str]:
    if expectation.pod_capacity is None:
        return
    pods = parse_amount("pods", node.status.capacity.get("pods", 0)) if node else 0
    if pods != expectation.pod_capacity:
        yield f"{name} takes {pods} pods, expected {expectation.pod_capacity}"


def _learned(expectation: Expectation, world: RegionObservation) -> Iterator[str]:
    known = {f"{entry.ami}/{entry.instance_type}": entry for entry in world.learned}
    for key, quantity in expectation.learned.items():
        entry = known.get(key)
        seen = min((observation.capacity.get("memory", 0) for observation in entry.recent), default=0) if entry else 0
        if seen != parse_amount("memory", quantity):
            yield f"{key}: learned {seen} bytes of memory, expected {quantity}"


def _untouched(expectation: Expectation, seen: ClusterObservation) -> Iterator[str]:
    nodes = {node.metadata.name: node for node in seen.nodes}
    for name in expectation.untouched:
        node = nodes.get(name)
        if node is None:
            yield f"foreign node {name} is gone"
        elif node.spec.unschedulable or node.metadata.deletion_timestamp:
            yield f"foreign node {name} was cordoned or deleted"
