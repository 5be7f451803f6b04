"""What DaemonSets will take of a node that does not exist yet, per NodePool tier and instance type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from shiplap.kubernetes.objects import Pod, Taint, Toleration
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.quantity import add_resources
from shiplap.kubernetes.requirements import Requirements
from shiplap.kubernetes.taints import untolerated
from shiplap.scheduling.model.planned_pods import owner_kind, running
from shiplap.scheduling.model.pod_classes import HostPort, InvalidPod, host_ports, node_terms
from shiplap.scheduling.model.resources import Axis, Bools, Ints
from shiplap.scheduling.model.snapshot import ClusterView
from shiplap.scheduling.supply.instance_arrays import TypeTable

OwnerName = tuple[str, str]
"""Namespace and name of a DaemonSet."""


class Daemon(msgspec.Struct, frozen=True):
    """One DaemonSet as the planner sees it."""

    owner: OwnerName
    requests: dict[str, int]
    terms: tuple[Requirements, ...]
    tolerations: tuple[Toleration, ...]
    ports: frozenset[HostPort]


class DaemonLoad(msgspec.Struct, frozen=True, eq=False):
    """What daemons take per instance type: `overhead` [types, resources]; `ports` is None when none are taken."""

    overhead: Ints
    ports: tuple[frozenset[HostPort], ...] | None


def daemons_of(view: ClusterView) -> tuple[Daemon, ...]:
    """The DaemonSets to reckon with, by namespace and name.

    Requests come from the newest running pod of the set, since a webhook or an autoscaler may have changed them, and
    from the template when there is none; the node affinity is always the template's, because the controller pins its
    pods. A set that cannot be understood or that needs dynamic resources is left out: its pods would not run on new
    nodes either.
    """
    newest = view.of_pods(_newest) if view.daemon_sets else {}
    result = []
    for daemon_set in view.daemon_sets:
        requirements = daemon_set.spec.template
        owner = (daemon_set.metadata.namespace or "default", daemon_set.metadata.name)
        pattern = newest.get(owner) or Pod(metadata=daemon_set.metadata, spec=requirements.spec)
        try:
            terms = node_terms(requirements.spec, strict=False)
            requests = pod_requests(pattern)
        except (InvalidPod, ValueError):
            continue
        if not pattern.spec.resource_claims:
            result.append(Daemon(owner, requests, terms, requirements.spec.tolerations, host_ports(pattern.spec)))
    return tuple(sorted(result, key=lambda daemon: daemon.owner))


def _newest(view: ClusterView) -> dict[OwnerName, Pod]:
    """The youngest running pod of each DaemonSet."""
    newest: dict[OwnerName, Pod] = {}
    for on_node in view.of_pods(running).values():
        for pod in on_node:
            owner = daemon_owner(pod)
            if owner is not None:
                known = newest.get(owner)
                if known is None or _born(known) < _born(pod):
                    newest[owner] = pod
    return newest


def daemon_owner(pod: Pod) -> OwnerName | None:
    """The DaemonSet a pod belongs to."""
    if not pod.metadata.owner_references or owner_kind(pod) != "DaemonSet":
        return None
    name = next(owner.name for owner in pod.metadata.owner_references if owner.kind == "DaemonSet")
    return (pod.metadata.namespace or "default", name)


def load_of(
    daemons: Sequence[Daemon],
    requirements: Requirements,
    taints: Sequence[Taint],
    given: frozenset[str],
    table: TypeTable,
    allow_undefined: frozenset[str],
) -> DaemonLoad:
    """What daemons take on each type of a NodePool tier. Startup taints do not count, and preferences are tolerated."""
    overhead = np.zeros((len(table.types), len(table.axis)), np.int64)
    ports: list[frozenset[HostPort]] = [frozenset()] * len(table.types)
    for daemon in daemons:
        if untolerated(taints, daemon.tolerations, ignore_preferences=True) is not None:
            continue
        runs = _types_that_run(daemon, requirements, given, table, allow_undefined)
        overhead[runs] += table.axis.vector(daemon.requests)
        if daemon.ports:
            for place in np.flatnonzero(runs).tolist():
                ports[place] |= daemon.ports
    return DaemonLoad(overhead, tuple(ports) if any(ports) else None)


def expected_on_node(
    daemons: Sequence[Daemon],
    runs: Iterable[bool],
    bound: Sequence[Mapping[str, int]],
    axis: Axis,
) -> Ints:
    """Requests [resources] of daemons that will still come to a node; never negative, whatever is bound already."""
    expected = add_resources(*(daemon.requests for daemon, here in zip(daemons, runs, strict=True) if here))
    coming: Ints = np.maximum(axis.vector(expected) - axis.vector(add_resources(*bound)), 0)
    return coming


def _types_that_run(
    daemon: Daemon, requirements: Requirements, given: frozenset[str], table: TypeTable, allow_undefined: frozenset[str]
) -> Bools:
    runs = np.zeros(len(table.types), np.bool_)
    for term in daemon.terms:
        if requirements.compatible(term, allow_undefined):
            runs |= table.offered(requirements.and_(term.values()), given).suits
    return runs


def _born(pod: Pod) -> tuple[str, str]:
    return (pod.metadata.creation_timestamp or "", pod.metadata.name)
