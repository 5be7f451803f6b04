"""Learns from nodes that are there already, whoever launched them: a new install knows at once what its AMIs yield.

A node teaches only what holds for nodes of ours, too: it must run one of our AMIs, and keep back exactly what a kubelet
with our settings would.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from shiplap.errors import AwsError
from shiplap.flows.context import FlowContext
from shiplap.flows.learn import has_reported, instance_of
from shiplap.flows.optional.optional_calls import FOREIGN_NODES
from shiplap.instances.capacity.reported_amounts import reports_of, stored_name
from shiplap.instances.catalog.type_catalog import InstanceType, Observation
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node
from shiplap.kubernetes.quantity import CPU, MEMORY, PODS, parse_resources
from shiplap.scheduling.model.snapshot import NodeClassCatalog

_LOG = logging.getLogger(__name__)

_MOST_PER_TYPE = 8
"""Of how many nodes of a type EC2 is asked for the AMI: one that runs ours is enough, and the newest most likely do."""


def learn_from_foreign_nodes(
    cluster: str, nodes: Sequence[Node], catalogs: Sequence[NodeClassCatalog], context: FlowContext
) -> bool:
    """Store what nodes of types that nobody has verified report, one node per AMI, type and settings.

    Args:
        cluster: its name.
        nodes: all of the cluster.
        catalogs: what can be launched, with the figures as they are known now.
        context: EC2 is asked for the AMIs of such nodes; capacity is written.

    Returns:
        Whether anything was learned, so that a decision should look again.

    Raises:
        StoreError: what was learned cannot be stored.
    """
    unverified = unverified_types(catalogs)
    candidates = promising_nodes(nodes, unverified)
    known = _known(cluster, candidates, unverified, context)
    candidates = {
        instance_id: node
        for instance_id, node in candidates.items()
        if any(_report_name(kind, node) not in known for kind in unverified[node.metadata.labels[labels.INSTANCE_TYPE]])
    }
    if not candidates:
        return False
    try:
        amis = context.within(FOREIGN_NODES, context.compute).images(sorted(candidates))
    except AwsError as error:  # estimates will do
        context.meter.count("StrangersNotRead")
        _LOG.warning("nodes of others not read: %s", error, extra={"cluster": cluster, "code": error.code})
        return False
    observed = observations(cluster, candidates, amis, unverified, context.clock.now(), known)
    for observation in observed:
        context.capacity.observe(observation)
    if observed:
        context.meter.count("TypesLearnedFromOthers", len(observed))
        _LOG.info("learned from nodes of others", extra={"cluster": cluster, "nodes": [item.node for item in observed]})
    return bool(observed)


def promising_nodes(nodes: Sequence[Node], unverified: Mapping[str, Sequence[InstanceType]]) -> dict[str, Node]:
    """By instance id, the newest few nodes of each unverified type that may teach something, sorted by name."""
    newest = sorted(nodes, key=lambda node: node.metadata.name)
    newest.sort(key=lambda node: node.metadata.creation_timestamp or "", reverse=True)
    number: Counter[str] = Counter()
    chosen = []
    for node in newest:
        name = node.metadata.labels.get(labels.INSTANCE_TYPE, "")
        if number[name] == _MOST_PER_TYPE or not instance_of(node.spec.provider_id) or not has_reported(node):
            continue
        capacity, allocatable = parse_resources(node.status.capacity), parse_resources(node.status.allocatable)
        if any(has_our_settings(instance_type, capacity, allocatable) for instance_type in unverified.get(name, ())):
            number[name] += 1
            chosen.append(node)
    return {instance_of(node.spec.provider_id): node for node in sorted(chosen, key=lambda node: node.metadata.name)}


_ReportName = tuple[str, str, str, str]
"""Names a report: AMI, instance type, kubelet settings and node."""


def _known(
    cluster: str, candidates: Mapping[str, Node], unverified: Mapping[str, Sequence[InstanceType]], context: FlowContext
) -> frozenset[_ReportName]:
    """The reports of the cluster's nodes: one in doubt that is learned again each minute would not be forgotten."""
    if not candidates:
        return frozenset()
    types = {node.metadata.labels[labels.INSTANCE_TYPE] for node in candidates.values()}
    learned = context.capacity.learned(sorted({item.ami for name in types for item in unverified[name]}))
    return frozenset(
        (entry.ami, entry.instance_type, entry.kubelet_hash, node)
        for entry in learned
        for report in reports_of(entry)
        if report.cluster == cluster
        for node in report.nodes
    )


def _report_name(instance_type: InstanceType, node: Node) -> _ReportName:
    return (instance_type.ami, instance_type.name, instance_type.kubelet_hash, stored_name(node.metadata.name))


def unverified_types(catalogs: Iterable[NodeClassCatalog]) -> dict[str, list[InstanceType]]:
    """Return the types of estimated room by name, each once for every catalogue."""
    by_name: dict[str, list[InstanceType]] = {}
    for catalog in catalogs:
        for instance_type in catalog.instance_types:
            if not instance_type.verified and instance_type.ami:
                by_name.setdefault(instance_type.name, []).append(instance_type)
    return by_name


def observations(
    cluster: str,
    nodes: Mapping[str, Node],
    amis: Mapping[str, str],
    unverified: Mapping[str, Sequence[InstanceType]],
    now: float,
    known: Collection[_ReportName] = (),
) -> list[Observation]:
    """Return what nodes (by instance id) show of unverified types (by name).

    Only the first node counts for each type that is not known.
    """
    observed: dict[tuple[str, str, str], Observation] = {}
    for instance_id, node in nodes.items():
        capacity = parse_resources(node.status.capacity)
        allocatable = parse_resources(node.status.allocatable)
        for instance_type in unverified[node.metadata.labels[labels.INSTANCE_TYPE]]:
            key = (instance_type.ami, instance_type.name, instance_type.kubelet_hash)
            if (
                key in observed
                or _report_name(instance_type, node) in known
                or amis.get(instance_id) != instance_type.ami
                or not has_our_settings(instance_type, capacity, allocatable)
            ):
                continue
            observed[key] = Observation(
                ami=instance_type.ami,
                instance_type=instance_type.name,
                kubelet_hash=instance_type.kubelet_hash,
                capacity=capacity,
                allocatable=allocatable,
                observed_at=now,
                cluster=cluster,
                node=node.metadata.name,
                predicted=instance_type.allocatable,
            )
    return list(observed.values())


def has_our_settings(instance_type: InstanceType, capacity: Mapping[str, int], allocatable: Mapping[str, int]) -> bool:
    """True if the node's kubelet has our settings, as far as it shows: its pods, and the resources it keeps back.

    Thresholds in per cent depend on the memory that is really there; then nothing can be told.
    """
    if MEMORY in instance_type.overhead_fraction or capacity.get(PODS) != instance_type.capacity.get(PODS):
        return False
    return all(
        capacity.get(name, 0) - allocatable.get(name, 0) == instance_type.overhead.get(name, 0)
        for name in (CPU, MEMORY)
    )
