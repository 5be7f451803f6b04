"""Pods grouped into classes of pods that the planner cannot tell apart.

A decision's work grows with the number of classes, not of pods. Grouping runs over every pod of the cluster, so it
works on an encoding of the few fields that matter (one C call per pod) and derives requirements and requests once per
class.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import (
    Affinity,
    ContainerPort,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodSpec,
    PodStatus,
    Toleration,
)
from shiplap.kubernetes.requests import pod_requests
from shiplap.kubernetes.requirements import Requirement, Requirements, requirement

_CAPACITY_TYPES = frozenset({labels.ON_DEMAND, labels.SPOT, labels.RESERVED})

HostPort = tuple[int, str, str]
"""Port, protocol and address; an empty address stands for all of them."""


class PodClass(msgspec.Struct, eq=False):
    """Pods with equal constraints and requests.

    `terms` are the alternatives of required node affinity joined with the node selector, in the order written; there is
    at least one. `problem` says why none of them can be planned at all; `members` are in placing order.
    """

    requests: dict[str, int]
    terms: tuple[Requirements, ...]
    tolerations: tuple[Toleration, ...] = ()
    ports: frozenset[HostPort] = frozenset()
    priority: int = 0
    missed: bool = False
    problem: str = ""
    keeps_off: bool = False
    members: list[Pod] = msgspec.field(default_factory=list)
    index: int = -1


class InvalidPod(ValueError):
    """A pod asks for something no node can have; the text says what. Never leaves this package."""


_encode = msgspec.msgpack.Encoder().encode


def signature(spec: PodSpec) -> bytes:
    """Equal bytes mean equal constraints and requests. Volumes count only when they are claims."""
    volumes = [v for v in spec.volumes if v.persistent_volume_claim or v.ephemeral] if spec.volumes else None
    return _encode(
        (
            spec.containers,
            spec.node_selector,
            spec.affinity,
            spec.tolerations,
            spec.topology_spread_constraints,
            spec.init_containers,
            spec.overhead,
            spec.resources,
            spec.priority,
            spec.resource_claims,
            volumes,
        )
    )


def encode_status(status: PodStatus) -> bytes:
    """The part of a status that changes what a pod takes: a resize under way."""
    return _encode(
        (status.resources, status.allocated_resources, status.container_statuses, status.init_container_statuses)
    )


def group(pods: Iterable[Pod], missed: Collection[str] = ()) -> list[PodClass]:
    """The classes of these pods, in placing order: cpu, then memory descending, then age and name of the first member.

    Args:
        pods: pending pods, in any order.
        missed: uids of pods that may not rely on unverified estimates.
    """
    by_signature: dict[tuple[bytes, bool], list[Pod]] = {}
    for pod in pods:
        key = (signature(pod.spec), bool(missed) and pod.metadata.uid in missed)
        members = by_signature.get(key)
        if members is None:
            by_signature[key] = [pod]
        else:
            members.append(pod)
    merged: dict[object, PodClass] = {}
    for (_, pod_missed), members in by_signature.items():
        fresh = describe(members[0], missed=pod_missed)
        known = merged.setdefault(_identity(fresh), fresh)
        known.members.extend(members)
    classes = list(merged.values())
    for item in classes:
        item.members.sort(key=_age)
    classes.sort(key=_placing_order)
    for index, item in enumerate(classes):
        item.index = index
    return classes


def describe(pod: Pod, *, missed: bool = False) -> PodClass:
    """The class of one pod, without members. What is wrong with the pod becomes its `problem`."""
    try:
        requests = pod_requests(pod)
        terms = node_terms(pod.spec, strict=True)
        problem = _unsupported(pod)
    except ValueError as error:
        return PodClass({"pods": 1}, (Requirements(),), priority=pod.spec.priority, problem=str(error))
    return PodClass(
        requests,
        terms,
        tolerations=tuple(sorted(pod.spec.tolerations, key=_encode)),
        ports=host_ports(pod.spec),
        priority=pod.spec.priority,
        missed=missed,
        problem=problem,
        keeps_off=any(_keeps_off(term) for term in terms),
    )


def node_terms(spec: PodSpec, *, strict: bool) -> tuple[Requirements, ...]:
    """Node selector joined with each required node-affinity term that can be met, in the order written; at least one.

    Args:
        spec: the pod's.
        strict: refuse labels that a pod may not select, as Karpenter does.

    Raises:
        InvalidPod: an operator, key or value cannot be used, or no term can ever be met; the message says which.
    """
    affinity = _affinity_terms(spec.affinity)
    if strict and any(term.match_fields for term in affinity):
        raise InvalidPod("matchFields in node affinity is not supported")
    try:
        selector = [requirement(key, "In", (value,)) for key, value in spec.node_selector.items()]
        written = [[*selector, *map(_requirement, term.match_expressions)] for term in affinity] or [selector]
    except ValueError as error:
        raise InvalidPod(str(error)) from error
    if strict:
        for entry in (entry for entries in written for entry in entries):
            _refuse_restricted(entry)
    possible = [entries for entries in written if _contradiction(entries) is None]
    if not possible:
        raise InvalidPod(f"contradicts itself: {_contradiction(written[0])}")
    return tuple(map(Requirements, possible))


def _requirement(expression: NodeSelectorRequirement) -> Requirement:
    return requirement(expression.key, expression.operator, expression.values)


def _contradiction(entries: Sequence[Requirement]) -> str | None:
    """Requirements on one label that no node can meet together, or None.

    In the algebra nothing left means that the label must not exist, which a node without it would satisfy although
    the pod asks for a value.
    """
    for key, merged in Requirements(entries).items():
        mine = [entry for entry in entries if entry.key == key]
        if merged.operator == "DoesNotExist" and not all(entry.forbids_nothing_defined for entry in mine):
            return " and ".join(str(entry) for entry in mine)
    return None


def host_ports(spec: PodSpec) -> frozenset[HostPort]:
    """The node's ports that a pod takes."""
    containers = (*spec.containers, *(c for c in spec.init_containers if c.restart_policy == "Always"))
    return frozenset(_host_port(port) for container in containers for port in container.ports if port.host_port)


def ports_collide(mine: Iterable[HostPort], other: Collection[HostPort]) -> bool:
    """Whether two sets claim one port: same number and protocol, and the same address or one of them all addresses."""
    return any(
        port == taken and protocol == taken_protocol and (address == taken_address or not address or not taken_address)
        for port, protocol, address in mine
        for taken, taken_protocol, taken_address in other
    )


def _affinity_terms(affinity: Affinity | None) -> Sequence[NodeSelectorTerm]:
    if affinity is None or affinity.node_affinity is None or affinity.node_affinity.required is None:
        return ()
    return affinity.node_affinity.required.node_selector_terms


def _host_port(port: ContainerPort) -> HostPort:
    address = "" if port.host_ip in ("0.0.0.0", "::") else port.host_ip  # noqa: S104 - compared, not listened on
    return (port.host_port, port.protocol or "TCP", address)


def _refuse_restricted(item: Requirement) -> None:
    """Raises InvalidPod for labels that nobody can promise before the node exists."""
    key = item.key
    if key == labels.HOSTNAME:
        raise InvalidPod(f'label "{key}" is restricted: a node that does not exist yet cannot be selected by name')
    domain = key.partition("/")[0] if "/" in key else ""
    if key not in labels.WELL_KNOWN and (domain == "karpenter.sh" or domain.endswith(".karpenter.sh")):
        raise InvalidPod(f'label "{key}" is restricted: the domain karpenter.sh is not for selecting nodes')
    if key == labels.CAPACITY_TYPE and item.operator == "In" and not item.values & _CAPACITY_TYPES:
        known = ", ".join(sorted(_CAPACITY_TYPES))
        raise InvalidPod(f'label "{key}" must be one of {known}, not {", ".join(sorted(item.values))}')


def _keeps_off(term: Requirements) -> bool:
    """Pods that demand to stay off provisioned nodes are somebody else's."""
    wanted = term.get(labels.NODE_POOL)
    return wanted is not None and wanted.operator == "DoesNotExist"


def _unsupported(pod: Pod) -> str:
    """The constraint this planner cannot keep yet; planning such a pod anyway would break a promise."""
    spec = pod.spec
    if any(item.when_unsatisfiable != "ScheduleAnyway" for item in spec.topology_spread_constraints):
        return "not supported yet: topologySpreadConstraints with DoNotSchedule"
    affinity = spec.affinity
    if affinity is not None and affinity.pod_affinity is not None and affinity.pod_affinity.required:
        return "not supported yet: required podAffinity"
    if affinity is not None and affinity.pod_anti_affinity is not None and affinity.pod_anti_affinity.required:
        return "not supported yet: required podAntiAffinity"
    if any(volume.persistent_volume_claim is not None or volume.ephemeral is not None for volume in spec.volumes):
        return "not supported yet: volumes of persistent volume claims"
    if spec.resource_claims:
        return "not supported yet: dynamic resource claims"
    return ""


def _identity(item: PodClass) -> object:
    return (
        frozenset(item.requests.items()),
        item.terms,
        item.tolerations,
        item.ports,
        item.priority,
        item.missed,
        item.problem,
    )


def _age(pod: Pod) -> tuple[str, str, str, str]:
    meta = pod.metadata
    return (meta.creation_timestamp or "", meta.uid, meta.namespace, meta.name)


def _placing_order(item: PodClass) -> tuple[int, int, tuple[str, str, str, str]]:
    return (-item.requests.get("cpu", 0), -item.requests.get("memory", 0), _age(item.members[0]))
