"""What an API server would never have stored, found in files before a decision stumbles over it.

Every function yields pairs of a field and what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shiplap.kubernetes.objects import Event, NodeSelectorTerm, ObjectMeta, PodSpec
from shiplap.kubernetes.quantity import parse_quantity
from shiplap.kubernetes.requirements import requirement
from shiplap.kubernetes.timestamps import epoch

Problems = Iterator[tuple[str, str]]
_INT32 = 2**31
_INT64 = 2**63
_PORTS = 2**16
_TOLERATION_OPERATORS = ("", "Equal", "Exists", "Lt", "Gt")


def metadata(meta: ObjectMeta) -> Problems:
    """Timestamps that are none."""
    yield from _moments({"metadata.creationTimestamp": meta.creation_timestamp})


def event(item: Event) -> Problems:
    """Timestamps that are none."""
    yield from _moments({"lastTimestamp": item.last_timestamp, "eventTime": item.event_time})


def pod_spec(spec: PodSpec, at: str) -> Problems:
    """Quantities, ports, node affinity, tolerations and the priority of a pod; `at` is the field of the spec."""
    for kind, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for place, container in enumerate(containers):
            where = f"{at}.{kind}[{place}]"
            yield from amounts(container.resources.requests, f"{where}.resources.requests")
            yield from amounts(container.resources.limits, f"{where}.resources.limits")
            for number, port in enumerate(container.ports):
                if not 0 <= port.host_port < _PORTS:
                    yield f"{where}.ports[{number}].hostPort", f"must be from 0 to {_PORTS - 1}, is {port.host_port}"
    yield from amounts(spec.overhead, f"{at}.overhead")
    if spec.resources is not None:
        yield from amounts(spec.resources.requests, f"{at}.resources.requests")
        yield from amounts(spec.resources.limits, f"{at}.resources.limits")
    if not -_INT32 <= spec.priority < _INT32:
        yield f"{at}.priority", f"must fit 32 bits, is {spec.priority}"
    for place, toleration in enumerate(spec.tolerations):
        if toleration.operator not in _TOLERATION_OPERATORS:
            yield f"{at}.tolerations[{place}].operator", f"unknown operator {toleration.operator!r}"
    yield from _node_affinity(spec, f"{at}.affinity.nodeAffinity")


def amounts(quantities: Mapping[str, str | int | float], field: str) -> Problems:
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
