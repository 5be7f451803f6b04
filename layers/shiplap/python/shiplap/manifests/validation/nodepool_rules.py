"""Checks a NodePool beyond its fields: by the rules of Karpenter's CRD, and by what makes it usable.

`admission_problems` are refused by an API server with upstream's CRD. `problems_of` are not: they are found by
Karpenter's checks at run time, or only Shiplap refuses them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from math import prod
from typing import Any

from shiplap.kubernetes import labels
from shiplap.kubernetes.names import label_key_problem, label_value_problem, subdomain_problem
from shiplap.kubernetes.objects import Taint
from shiplap.manifests import shiplap_annotations, tiers, times
from shiplap.manifests.custom_resources import LABEL_KEY, NodePool
from shiplap.manifests.decoding import Path, Problem
from shiplap.manifests.validation import requirement_rules
from shiplap.manifests.validation.common_rules import absent, attempt, metadata_problems, quantity_problems

_SPEC: Path = ("spec",)
_TEMPLATE: Path = ("spec", "template")
_CLAIM: Path = ("spec", "template", "spec")
_DISRUPTION: Path = ("spec", "disruption")
_REFERENCE: Path = (*_CLAIM, "nodeClassRef")

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

MOST_TIERS = 100
"""Each tier is planned as a pool of its own."""

_TAINT_KEY = re.compile(LABEL_KEY, re.ASCII)
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?([Zz]|[-+]\d\d:\d\d)", re.ASCII)


def admission_problems(pool: NodePool, data: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems for which an API server refuses the pool.

    `data` is the pool as it was written, where absent and zero differ.
    """
    yield from metadata_problems(pool.metadata)
    yield from _static(pool, data)
    yield from _reserved_labels(pool)
    yield from _written_taints(pool, data)
    for number, budget in enumerate(pool.spec.disruption.budgets):
        if (budget.schedule is None) != (budget.duration is None):
            yield (*_DISRUPTION, "budgets", number), "schedule and duration must be set together"


def transition_problems(pool: NodePool, before: NodePool) -> Iterator[Problem]:
    """Yield the changes that an API server refuses when a pool replaces another pool of its name."""
    if (pool.spec.replicas is None) != (before.spec.replicas is None):
        yield (*_SPEC, "replicas"), "a pool cannot begin or cease to have replicas; give the new pool another name"
    reference, former = pool.spec.template.spec.node_class_ref, before.spec.template.spec.node_class_ref
    for field, value, was in (("group", reference.group, former.group), ("kind", reference.kind, former.kind)):
        if value != was:
            yield (*_REFERENCE, field), f"cannot change, is {value!r} and was {was!r}"


def problems_of(pool: NodePool, _data: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems that make a pool unusable although an API server accepts it."""
    for rule in _RULES:
        yield from rule(pool)


def _annotations(pool: NodePool) -> Iterator[Problem]:
    yield from shiplap_annotations.node_pool_problems(pool.metadata.annotations, ("metadata", "annotations"))
    template = pool.spec.template.metadata.annotations
    yield from shiplap_annotations.unsupported(template, (*_TEMPLATE, "metadata", "annotations"))


def _static(pool: NodePool, data: Mapping[str, Any]) -> Iterator[Problem]:
    if pool.spec.replicas is None:
        return
    if not absent(data, (*_SPEC, "weight")):
        yield (*_SPEC, "weight"), "a pool with replicas takes no weight"
    for resource in pool.spec.limits:
        if resource != "nodes":
            yield (*_SPEC, "limits", resource), "a pool with replicas may limit only nodes"


def _reserved_labels(pool: NodePool) -> Iterator[Problem]:
    for key in pool.spec.template.metadata.labels:
        if wrong := requirement_rules.reserved_label(key, requirement_rules.AWS_LABELS):
            yield (*_TEMPLATE, "metadata", "labels", key), wrong
    specs, path = pool.spec.template.spec.requirements, (*_CLAIM, "requirements")
    yield from requirement_rules.admission_problems(specs, path)
    for number, spec in enumerate(specs):
        if wrong := requirement_rules.reserved_label(spec.key, requirement_rules.AWS_LABELS):
            yield (*path, number, "key"), wrong
        has_globs = any(map(tiers.is_glob, spec.values))  # minValues counts what they stand for
        if spec.operator == "In" and not has_globs and len(spec.values) < (spec.min_values or 0):
            reason = f"asks for {spec.min_values} different values, but only {len(spec.values)} are listed"
            yield (*path, number, "minValues"), reason


def _limits(pool: NodePool) -> Iterator[Problem]:
    yield from quantity_problems(pool.spec.limits, (*_SPEC, "limits"))


def _labels(pool: NodePool) -> Iterator[Problem]:
    path = (*_TEMPLATE, "metadata", "labels")
    written = pool.spec.template.metadata.labels
    for key, value in written.items():
        wrong = requirement_rules.key_problem(key) or label_value_problem(value) or _contradiction(pool, key, value)
        if wrong:
            yield (*path, key), wrong


def _contradiction(pool: NodePool, key: str, value: str) -> str | None:
    """The requirement that forbids a label of the template: no node could be of the pool."""
    key = labels.NORMALIZED.get(key, key)
    for number, spec in enumerate(pool.spec.template.spec.requirements):
        is_valid = not any(requirement_rules.requirement_problems(spec, ()))
        if labels.NORMALIZED.get(spec.key, spec.key) == key and is_valid and not tiers.allows(spec, value):
            said = " ".join((spec.operator, *spec.values))
            return f"nodes get the value {value!r}, which requirements[{number}] ({said}) forbids: none could be made"
    return None


def _requirements(pool: NodePool) -> Iterator[Problem]:
    specs, path = pool.spec.template.spec.requirements, (*_CLAIM, "requirements")
    yield from requirement_rules.list_problems(specs, path)
    steps = prod(len(spec.values) for spec in specs if tiers.is_tiered(spec))
    if steps > MOST_TIERS:
        yield path, f"the ordered lists multiply to {steps} tiers, at most {MOST_TIERS} are allowed"


def _written_taints(pool: NodePool, data: Mapping[str, Any]) -> Iterator[Problem]:
    spec = pool.spec.template.spec
    for field, taints in (("taints", spec.taints), ("startupTaints", spec.startup_taints)):
        for number, (taint, written) in enumerate(
            zip(taints, data["spec"]["template"]["spec"].get(field) or (), strict=True)
        ):
            path = (*_CLAIM, field, number)
            if not _TAINT_KEY.fullmatch(taint.key):
                yield (*path, "key"), label_key_problem(taint.key) or "is not a label key"
            if not absent(written, ("value",)) and not _TAINT_KEY.fullmatch(taint.value):
                yield (*path, "value"), f"{taint.value!r} is not a taint's value; leave an empty one out"
            if taint.effect not in TAINT_EFFECTS:
                yield (*path, "effect"), f"must be one of {', '.join(TAINT_EFFECTS)}, is {taint.effect!r}"
            added = written.get("timeAdded")
            if added is not None and not (isinstance(added, str) and _is_time(added)):
                yield (*path, "timeAdded"), f"{added!r} is not a time such as 2026-01-02T03:04:05Z"


def _is_time(text: str) -> bool:
    match = _TIME.fullmatch(text)
    try:
        return match is not None and bool(date.fromisoformat(match[1]))
    except ValueError:
        return False


def _taints(pool: NodePool) -> Iterator[Problem]:
    spec = pool.spec.template.spec
    seen: set[tuple[str, str]] = set()
    for field, taints in (("taints", spec.taints), ("startupTaints", spec.startup_taints)):
        for number, taint in enumerate(taints):
            path = (*_CLAIM, field, number)
            yield from _taint(taint, path)
            if (taint.key, taint.effect) in seen:
                yield path, f"there is already a taint {taint.key}:{taint.effect} among taints and startupTaints"
            seen.add((taint.key, taint.effect))


def _taint(taint: Taint, path: Path) -> Iterator[Problem]:
    if wrong := label_key_problem(taint.key):
        yield (*path, "key"), wrong
    if wrong := label_value_problem(taint.value):
        yield (*path, "value"), wrong


def _node_class_reference(pool: NodePool) -> Iterator[Problem]:
    reference = pool.spec.template.spec.node_class_ref
    if wrong := subdomain_problem(reference.name):
        yield (*_REFERENCE, "name"), wrong
    for field, value, known in (
        ("group", reference.group, "karpenter.k8s.aws"),
        ("kind", reference.kind, "EC2NodeClass"),
    ):
        if value != known:
            yield (*_REFERENCE, field), f"must be {known}, is {value!r}"


def _budgets(pool: NodePool) -> Iterator[Problem]:
    for number, budget in enumerate(pool.spec.disruption.budgets):
        if budget.schedule is not None:
            yield from attempt(times.parse_cron, budget.schedule, (*_DISRUPTION, "budgets", number, "schedule"))


_RULES: tuple[Callable[[NodePool], Iterator[Problem]], ...] = (
    _annotations,
    _limits,
    _labels,
    _requirements,
    _taints,
    _node_class_reference,
    _budgets,
)
