"""What a NodePool must satisfy beyond its shape: the rules of Karpenter's CRD and of its checks at run time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any

from shiplap.kubernetes import labels
from shiplap.kubernetes.names import label_key_problem, label_value_problem, subdomain_problem
from shiplap.kubernetes.objects import Taint
from shiplap.manifests import cron, durations, shiplap_annotations, tiers
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.decoding import Path, Problem
from shiplap.manifests.validation import requirement_rules
from shiplap.manifests.validation.common_rules import absent, attempt, name_problems, quantity_problems

_SPEC: Path = ("spec",)
_TEMPLATE: Path = ("spec", "template")
_CLAIM: Path = ("spec", "template", "spec")
_DISRUPTION: Path = ("spec", "disruption")
_REFERENCE: Path = (*_CLAIM, "nodeClassRef")

CONSOLIDATION_POLICIES = ("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced")
BUDGET_REASONS = ("Underutilized", "Empty", "Drifted")
TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

MOST_TIERS = 100
"""Each tier is planned as a pool of its own."""

_BUDGET_NODES = re.compile(r"(?:100|[0-9]{1,2})%|[0-9]+", re.ASCII)


def problems_of(pool: NodePool, data: Mapping[str, Any]) -> Iterator[Problem]:
    """Every rule the pool breaks. `data` is the pool as it was written, where absent and zero differ."""
    for rule in _RULES:
        yield from rule(pool)
    yield from _required(data)
    yield from _written_weight(pool, data)


def _names(pool: NodePool) -> Iterator[Problem]:
    yield from name_problems(pool.metadata)


def _annotations(pool: NodePool) -> Iterator[Problem]:
    yield from shiplap_annotations.node_pool_problems(pool.metadata.annotations, ("metadata", "annotations"))
    template = pool.spec.template.metadata.annotations
    yield from shiplap_annotations.unsupported(template, (*_TEMPLATE, "metadata", "annotations"))


def _required(data: Mapping[str, Any]) -> Iterator[Problem]:
    for path in (*((*_REFERENCE, field) for field in ("group", "kind")), (*_CLAIM, "requirements")):
        if absent(data, path):
            yield path, "required field is missing"


def _written_weight(pool: NodePool, data: Mapping[str, Any]) -> Iterator[Problem]:
    path = (*_SPEC, "weight")
    if absent(data, path):
        return
    if not 1 <= pool.spec.weight <= 100:
        yield path, f"must be from 1 to 100, is {pool.spec.weight}"
    if pool.spec.replicas is not None:
        yield path, "a pool with replicas takes no weight"


def _replicas_and_limits(pool: NodePool) -> Iterator[Problem]:
    yield from quantity_problems(pool.spec.limits, (*_SPEC, "limits"))
    if pool.spec.replicas is None:
        return
    if pool.spec.replicas < 0:
        yield (*_SPEC, "replicas"), f"must not be negative, is {pool.spec.replicas}"
    for resource in pool.spec.limits:
        if resource != "nodes":
            yield (*_SPEC, "limits", resource), "a pool with replicas may limit only nodes"


def _labels(pool: NodePool) -> Iterator[Problem]:
    path = (*_TEMPLATE, "metadata", "labels")
    written = pool.spec.template.metadata.labels
    if len(written) > 100:
        yield path, f"at most 100 labels are allowed, there are {len(written)}"
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
    if taint.effect not in TAINT_EFFECTS:
        yield (*path, "effect"), f"must be one of {', '.join(TAINT_EFFECTS)}, is {taint.effect!r}"


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


def _lifetimes(pool: NodePool) -> Iterator[Problem]:
    spec = pool.spec.template.spec
    yield from attempt(durations.seconds_or_never, spec.expire_after, (*_CLAIM, "expireAfter"))
    if spec.termination_grace_period is not None:
        yield from attempt(durations.seconds, spec.termination_grace_period, (*_CLAIM, "terminationGracePeriod"))


def _consolidation(pool: NodePool) -> Iterator[Problem]:
    disruption = pool.spec.disruption
    yield from attempt(durations.seconds_or_never, disruption.consolidate_after, (*_DISRUPTION, "consolidateAfter"))
    if disruption.consolidation_policy not in CONSOLIDATION_POLICIES:
        reason = f"must be one of {', '.join(CONSOLIDATION_POLICIES)}, is {disruption.consolidation_policy!r}"
        yield (*_DISRUPTION, "consolidationPolicy"), reason


def _budgets(pool: NodePool) -> Iterator[Problem]:
    path = (*_DISRUPTION, "budgets")
    budgets = pool.spec.disruption.budgets
    if len(budgets) > 50:
        yield path, f"at most 50 budgets are allowed, there are {len(budgets)}"
    for number, budget in enumerate(budgets):
        here = (*path, number)
        if not _BUDGET_NODES.fullmatch(budget.nodes):
            yield (*here, "nodes"), f"{budget.nodes!r} is neither a whole number nor a percentage from 0% to 100%"
        if (budget.schedule is None) != (budget.duration is None):
            yield here, "schedule and duration must be set together"
        if budget.schedule is not None:
            yield from attempt(cron.parse_cron, budget.schedule, (*here, "schedule"))
        if budget.duration is not None:
            yield from attempt(durations.budget_seconds, budget.duration, (*here, "duration"))
        yield from _budget_reasons(budget.reasons or (), (*here, "reasons"))


def _budget_reasons(reasons: tuple[str, ...], path: Path) -> Iterator[Problem]:
    if len(reasons) > 50:
        yield path, f"at most 50 reasons are allowed, there are {len(reasons)}"
    for number, reason in enumerate(reasons):
        if reason not in BUDGET_REASONS:
            yield (*path, number), f"must be one of {', '.join(BUDGET_REASONS)}, is {reason!r}"
        elif reason in reasons[:number]:
            yield (*path, number), f"{reason} is listed twice"


_RULES: tuple[Callable[[NodePool], Iterator[Problem]], ...] = (
    _names,
    _annotations,
    _replicas_and_limits,
    _labels,
    _requirements,
    _taints,
    _node_class_reference,
    _lifetimes,
    _consolidation,
    _budgets,
)
