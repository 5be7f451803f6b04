"""Computes what DaemonSets take of a node that does not exist yet, per NodePool tier, instance type and variant.

A new node comes with the pods of its DaemonSets. So a pod that has to be near such a pod gets a node on which it runs,
and a pod that has to stay away from it, or that it keeps away, one on which it does not: `DaemonTerms` has the terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from shiplap.kubernetes import labels
from shiplap.kubernetes.labels import HOSTNAME
from shiplap.kubernetes.objects import ObjectMeta, Pod, Taint, Toleration
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.quantity import add_resources
from shiplap.kubernetes.requirements import Requirements
from shiplap.kubernetes.taints import untolerated
from shiplap.scheduling.model.planned_pods import owner_kind, running
from shiplap.scheduling.model.pod_classes import NODE_NAME, HostPort, InvalidPod, host_ports, node_terms
from shiplap.scheduling.model.resources import Axis, Bools, Ints
from shiplap.scheduling.model.snapshot import ClusterView
from shiplap.scheduling.model.topology_constraints import Constraints, Terms
from shiplap.scheduling.supply.instance_arrays import TypeTable

_NAMES = (labels.HOSTNAME, NODE_NAME)

OwnerName = tuple[str, str]
"""Namespace and name of a DaemonSet."""


class Daemon(msgspec.Struct, frozen=True):
    """One DaemonSet as the planner sees it; `pod` has the labels and constraints of its pods."""

    owner: OwnerName
    requests: dict[str, int]
    terms: tuple[Requirements, ...]
    tolerations: tuple[Toleration, ...]
    ports: frozenset[HostPort]
    pod: Pod


class DaemonLoad(msgspec.Struct, frozen=True, eq=False):
    """Holds what daemons take of a node of each row: `overhead` [rows, resources]; `ports` is None when they take none.

    `runs` [daemons, rows] marks which of `daemons` run there.
    """

    daemons: tuple[Daemon, ...]
    runs: Bools
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
            meta = ObjectMeta(name=owner[1], namespace=owner[0], labels=requirements.metadata.labels)
            pod = Pod(metadata=meta, spec=requirements.spec)
            ports = host_ports(pattern.spec)
            result.append(Daemon(owner, requests, terms, requirements.spec.tolerations, ports, pod))
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


def tolerant(daemons: Sequence[Daemon], taints: Sequence[Taint]) -> tuple[Daemon, ...]:
    """The daemons that taints of a node do not keep off. Startup taints do not count; preferences are tolerated."""
    return tuple(d for d in daemons if untolerated(taints, d.tolerations, ignore_preferences=True) is None)


def load_of(
    daemons: tuple[Daemon, ...],
    variants: Sequence[Requirements],
    given: frozenset[str],
    table: TypeTable,
    allow_undefined: frozenset[str],
) -> DaemonLoad:
    """Compute what tolerant daemons take on each row of a NodePool tier.

    Args:
        daemons: see `tolerant`.
        variants: the requirements of the tier's nodes in each variant. Rows of a type come in this order.
        given: labels that the NodePool sets on its nodes.
        table: the catalogue.
        allow_undefined: labels that a node has although the NodePool does not mention them.
    """
    runs = np.zeros((len(daemons), len(table.row_type)), np.bool_)
    for place, requirements in enumerate(variants):
        rows = slice(place, None, len(variants))
        allowed: dict[tuple[Requirements, ...], Bools] = {}
        for number, daemon in enumerate(daemons):
            possible = _types_with(daemon.requests, table)
            if not possible.any():
                continue
            if daemon.terms not in allowed:  # most DaemonSets go anywhere
                allowed[daemon.terms] = _types_allowed(daemon.terms, requirements, given, table, allow_undefined)
            runs[number, rows] = (allowed[daemon.terms] & possible)[table.row_type[rows]]
    overhead = np.zeros((len(table.row_type), len(table.axis)), np.int64)
    ports: list[frozenset[HostPort]] = [frozenset()] * len(table.row_type)
    for daemon, here in zip(daemons, runs, strict=True):
        overhead += np.where(here[:, None], table.axis.vector(daemon.requests), 0)
        if daemon.ports:
            for row in np.flatnonzero(here).tolist():
                ports[row] |= daemon.ports
    return DaemonLoad(daemons, runs, overhead, tuple(ports) if any(ports) else None)


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


def _types_allowed(
    terms: Sequence[Requirements],
    requirements: Requirements,
    given: frozenset[str],
    table: TypeTable,
    allow_undefined: frozenset[str],
) -> Bools:
    """The types [types] of nodes with these requirements that node-affinity terms allow."""
    allowed = np.zeros(len(table.types), np.bool_)
    for term in terms:
        # No new node has a name that a manifest can know.
        if not all(term[key].allows_undefined for key in _NAMES if key in term):
            continue
        rest = Requirements(entry for key, entry in term.items() if key not in _NAMES)
        if requirements.compatible(rest, allow_undefined):
            there = requirements.and_(rest.values())
            allowed |= table.offered(there, given).suits & table.is_sold(there)
    return allowed


def _types_with(requests: Mapping[str, int], table: TypeTable) -> Bools:
    """The types [types] that have some of each resource. Where one is missing a pod waits for ever, and takes nothing.

    Karpenter launches nothing of such a type: one DaemonSet that asks for a resource of its own stops all launches.
    """
    wanted = [name for name, amount in requests.items() if amount > 0]
    if not table.axis.holds(wanted):
        return np.zeros(len(table.types), np.bool_)
    asked = table.axis.vector(dict.fromkeys(wanted, 1)) > 0
    has: Bools = (table.capacity[:, asked] > 0).all(axis=1)
    return has


def _born(pod: Pod) -> tuple[str, str]:
    return (pod.metadata.creation_timestamp or "", pod.metadata.name)


class Company(msgspec.Struct, frozen=True):
    """The DaemonSets that must run on a node for a pod, and the DaemonSets that must not.

    `near` are affinity terms, each with the DaemonSets of which one meets it; `away` are DaemonSets that must not run.
    """

    near: tuple[tuple[int, frozenset[OwnerName]], ...] = ()
    away: frozenset[OwnerName] = frozenset()

    def rows(self, load: DaemonLoad) -> Bools:
        """On which rows [rows] of a template the DaemonSets that run are the right ones."""
        right = np.ones(load.runs.shape[1], np.bool_)
        for daemon, runs in zip(load.daemons, load.runs, strict=True):
            if daemon.owner in self.away:
                right &= ~runs
        for _, owners in self.near:
            meeting = [daemon.owner in owners for daemon in load.daemons]
            right &= load.runs[meeting].any(axis=0)
        return right


NO_COMPANY = Company()


class DaemonTerms(msgspec.Struct, frozen=True, eq=False):
    """The terms that count the pods of a DaemonSet (`counting`), and those by which it keeps pods away (`keeping`).

    Both have only DaemonSets with any such term. `begun` are affinity terms that count a pod on some node already.
    """

    terms: Terms = Terms()
    counting: Mapping[OwnerName, frozenset[int]] = {}
    keeping: Mapping[OwnerName, frozenset[int]] = {}
    begun: frozenset[int] = frozenset()

    def company(self, constraints: Constraints, selected: frozenset[int]) -> Company:
        """Return which DaemonSets must run, and which must not, on the node of a pod with these constraints.

        `selected` are the terms that select the pod.
        Over another label than the hostname a pod joins the DaemonSets that are there already, if there are any.
        """
        if not self.counting and not self.keeping:
            return NO_COMPANY
        near = []
        for term in constraints.affinity:
            owners = frozenset(owner for owner, counting in self.counting.items() if term in counting)
            if owners and (self.terms.all[term].key == HOSTNAME or term not in self.begun):
                near.append((term, owners))
        away = {owner for owner, counting in self.counting.items() if not counting.isdisjoint(constraints.anti)}
        away |= {owner for owner, keeping in self.keeping.items() if not keeping.isdisjoint(selected)}
        return Company(tuple(near), frozenset(away)) if near or away else NO_COMPANY


def daemon_terms(daemons: Iterable[Daemon], terms: Terms) -> DaemonTerms:
    """The terms of these daemons, only after the last term was numbered; `begun` is left out."""
    counting = {daemon.owner: terms.selecting(daemon.pod) for daemon in daemons}
    keeping = {daemon.owner: frozenset(terms.constraints_of(daemon.pod, standing=True).anti) for daemon in daemons}
    return DaemonTerms(
        terms,
        {owner: numbers for owner, numbers in counting.items() if numbers},
        {owner: numbers for owner, numbers in keeping.items() if numbers},
    )
