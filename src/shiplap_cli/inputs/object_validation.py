"""Typed Kubernetes objects from files, and values in them that an API server would have refused.

Functions `…_problems` yield pairs of a field and a reason. The others raise InvalidInput with file, line and field.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from shiplap.errors import InvalidInput
from shiplap.kubernetes.lenient_json import without_nulls
from shiplap.kubernetes.objects import ContainerStatus, Event, NodeSelectorTerm, ObjectMeta, PodSpec, PodStatus
from shiplap.kubernetes.quantity import parse_quantity, parse_resources
from shiplap.kubernetes.requirements import requirement
from shiplap.kubernetes.timestamps import epoch
from shiplap.manifests.files.documents import Document

Problems = Iterator[tuple[str, str]]
_INT32 = 2**31
_INT64 = 2**63
_PORTS = 2**16
_HEAVIEST = 100
_SPREADS = ("DoNotSchedule", "ScheduleAnyway")
_POLICIES = ("Honor", "Ignore")
_TOLERATION_OPERATORS = ("", "Equal", "Exists", "Lt", "Gt")


def metadata_problems(meta: ObjectMeta) -> Problems:
    """Timestamps that are none."""
    yield from _moments({"metadata.creationTimestamp": meta.creation_timestamp})


def event_problems(event: Event) -> Problems:
    """Timestamps that are none."""
    yield from _moments({"lastTimestamp": event.last_timestamp, "eventTime": event.event_time})


def pod_spec_problems(spec: PodSpec, at: str) -> Problems:
    """Quantities, ports, node affinity, tolerations and the priority of a pod; `at` is the field of the spec."""
    for kind, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for place, container in enumerate(containers):
            where = f"{at}.{kind}[{place}]"
            yield from quantity_problems(container.resources.requests, f"{where}.resources.requests")
            yield from quantity_problems(container.resources.limits, f"{where}.resources.limits")
            for number, port in enumerate(container.ports):
                for field, value in (("hostPort", port.host_port), ("containerPort", port.container_port)):
                    if not 0 <= value < _PORTS:
                        yield f"{where}.ports[{number}].{field}", f"must be from 0 to {_PORTS - 1}, is {value}"
    yield from quantity_problems(spec.overhead, f"{at}.overhead")
    if spec.resources is not None:
        yield from quantity_problems(spec.resources.requests, f"{at}.resources.requests")
        yield from quantity_problems(spec.resources.limits, f"{at}.resources.limits")
    if not -_INT32 <= spec.priority < _INT32:
        yield f"{at}.priority", f"must fit 32 bits, is {spec.priority}"
    for place, toleration in enumerate(spec.tolerations):
        if toleration.operator not in _TOLERATION_OPERATORS:
            yield f"{at}.tolerations[{place}].operator", f"unknown operator {toleration.operator!r}"
    yield from _spread(spec, f"{at}.topologySpreadConstraints")
    yield from _node_affinity(spec, f"{at}.affinity.nodeAffinity")
    yield from _weights(spec, f"{at}.affinity")


def pod_status_problems(status: PodStatus) -> Problems:
    """Quantities that a resize left behind."""
    groups: tuple[tuple[str, Sequence[ContainerStatus]], ...] = (
        ("containerStatuses", status.container_statuses),
        ("initContainerStatuses", status.init_container_statuses),
    )
    for kind, statuses in groups:
        for place, each in enumerate(statuses):
            where = f"status.{kind}[{place}]"
            yield from quantity_problems(each.allocated_resources, f"{where}.allocatedResources")
            if each.resources is not None:
                yield from quantity_problems(each.resources.requests, f"{where}.resources.requests")
    yield from quantity_problems(status.allocated_resources, "status.allocatedResources")


def quantity_problems(quantities: Mapping[str, str | int | float], field: str) -> Problems:
    """Quantities that are malformed, negative, or numbers that no API server reads."""
    for resource, text in quantities.items():
        try:
            value = parse_quantity(text)
        except ValueError as error:
            yield field, f"{resource}: {error}"
            continue
        if value < 0:
            yield field, f"{resource}: must not be negative, is {text}"
        elif isinstance(text, int) and text >= _INT64:
            yield field, f"{resource}: a number this large must be written with a suffix"


def _spread(spec: PodSpec, at: str) -> Problems:
    for place, each in enumerate(spec.topology_spread_constraints):
        for field, number in (("maxSkew", each.max_skew), ("minDomains", each.min_domains)):
            if number is not None and not 0 < number < _INT32:
                yield f"{at}[{place}].{field}", f"must be from 1 to {_INT32 - 1}, is {number}"
        for field, text, known in (
            ("whenUnsatisfiable", each.when_unsatisfiable, _SPREADS),
            ("nodeAffinityPolicy", each.node_affinity_policy, _POLICIES),
            ("nodeTaintsPolicy", each.node_taints_policy, _POLICIES),
        ):
            if text not in known:
                yield f"{at}[{place}].{field}", f"{text!r} is none of {', '.join(known)}"


def _weights(spec: PodSpec, at: str) -> Problems:
    affinity = spec.affinity
    if affinity is None:
        return
    groups = {
        "nodeAffinity": [each.weight for each in affinity.node_affinity.preferred] if affinity.node_affinity else [],
        "podAffinity": [each.weight for each in affinity.pod_affinity.preferred] if affinity.pod_affinity else [],
        "podAntiAffinity": [each.weight for each in affinity.pod_anti_affinity.preferred]
        if affinity.pod_anti_affinity
        else [],
    }
    for kind, weights in groups.items():
        for place, weight in enumerate(weights):
            if not 1 <= weight <= _HEAVIEST:
                where = f"{at}.{kind}.preferredDuringSchedulingIgnoredDuringExecution[{place}].weight"
                yield where, f"must be from 1 to {_HEAVIEST}, is {weight}"


def _node_affinity(spec: PodSpec, at: str) -> Problems:
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is None:
        return
    if affinity.required is not None:
        where = f"{at}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
        if not affinity.required.node_selector_terms:
            yield where, "needs at least one term"
        for place, term in enumerate(affinity.required.node_selector_terms):
            yield from _term(term, f"{where}[{place}]")
    for place, preferred in enumerate(affinity.preferred):
        where = f"{at}.preferredDuringSchedulingIgnoredDuringExecution[{place}].preference"
        yield from _term(preferred.preference, where)


def _term(term: NodeSelectorTerm, at: str) -> Problems:
    for place, expression in enumerate(term.match_expressions):
        try:
            requirement(expression.key, expression.operator, expression.values)
        except ValueError as error:
            yield f"{at}.matchExpressions[{place}]", str(error)


def _moments(fields: Mapping[str, str | None]) -> Problems:
    for field, text in fields.items():
        try:
            if text:
                epoch(text)
        except ValueError as error:
            yield field, f"expected a time such as 2026-01-31T12:00:00Z: {error}"


T = TypeVar("T")


def typed_object(document: Document, kind: type[T]) -> T:
    """An object with sound metadata; a null field counts as absent. Raises InvalidInput."""
    item = convert(document, without_nulls(document.data), kind)
    name = getattr(item, "metadata").name  # noqa: B009 - every kind read here has metadata
    if not name:
        raise invalid_field(
            document, "metadata.name", "is missing; objects need a name of their own (not generateName)"
        )
    raise_first(document, metadata_problems(getattr(item, "metadata")))  # noqa: B009
    return item


def raise_first(document: Document, problems: Problems) -> None:
    """Refuse an object at the first problem found. Raises InvalidInput."""
    for field, reason in problems:
        raise invalid_field(document, field, reason)


def convert(document: Document, data: Any, kind: type[T]) -> T:
    """Data of a document as a type. Raises InvalidInput."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        reason, field = _reason_and_field(str(error))
        if str(_INT64 - 1) in reason or str(-_INT64) in reason:
            reason = "a number must fit 64 bits; a larger quantity is written with a suffix, such as 16Ei"
        raise invalid_field(document, field, reason) from error


def _reason_and_field(text: str) -> tuple[str, str]:
    """Take msgspec's "Expected `int`, got `str` - at `$.spec.x[0]`" apart."""
    match = re.fullmatch(r"(.*?)(?: - at `(?:key in )?\$\.?(.*)`)?", text, re.DOTALL)
    return (match[1].replace("`", ""), (match[2] or "").replace("[...]", "")) if match else (text, "")


def invalid_field(document: Document, field: str, reason: str) -> InvalidInput:
    """The error about a field of a document, with its line."""
    path = tuple(int(step) if step.isdigit() else step for step in re.findall(r"[^.\[\]]+", field))
    return InvalidInput(document.source, reason, document=document.name, field=field, line=document.line_of(path))


def parsed_quantities(document: Document, field: str, quantities: dict[str, str | int | float]) -> dict[str, int]:
    """Quantities in canonical units. Raises InvalidInput."""
    raise_first(document, quantity_problems(quantities, field))
    return parse_resources(quantities)
