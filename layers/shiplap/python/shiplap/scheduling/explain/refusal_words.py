"""The words of refusals: what stands in a template's way, as far as one template and one attempt tell."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice

import numpy as np

from shiplap.kubernetes import labels
from shiplap.kubernetes.quantity import CPU
from shiplap.kubernetes.taints import untolerated
from shiplap.manifests.validation.requirement_rules import reserved_label
from shiplap.scheduling.explain.nearest import above_ceiling, amount, some, unmet
from shiplap.scheduling.model.bounds import BOUNDS
from shiplap.scheduling.model.pod_classes import ports_collide
from shiplap.scheduling.model.preferences import given_up
from shiplap.scheduling.model.topology_constraints import Term
from shiplap.scheduling.supply.limits import PoolLimits
from shiplap.scheduling.supply.open_claims import PlacementAttempt, Refusal
from shiplap.scheduling.supply.templates import NodeClaimTemplate

_MILLION_CORES_M = 10**9
"""Millicores that nobody asks for: Kubernetes reads 1000m as one core, and 1000 as a thousand."""


def conflicting(template: NodeClaimTemplate, attempt: PlacementAttempt) -> dict[str, str]:
    """The labels by which a class cannot go to a template, with the conflict in words; by name."""
    found = {}
    for key in sorted(attempt.term):
        words = template.requirements.conflict({key: attempt.term[key]}, template.allow_undefined)
        if words is not None:
            found[key] = words
    return found


def labels_to_add(
    template: NodeClaimTemplate, attempt: PlacementAttempt, conflicts: Collection[str]
) -> Mapping[str, str]:
    """The labels that nodes of a NodePool lack for a class, with values; empty where labels alone would not do."""
    added = {}
    for key in sorted(conflicts):
        wanted, known = attempt.term[key], template.allow_undefined
        unknown = key not in template.requirements and not template.requirements.most_like(key, known)
        if not unknown or wanted.complement or not wanted.values or reserved_label(key, known):
            return {}
        added[key] = min(wanted.values)
    return added


def filtered_out(template: NodeClaimTemplate) -> str:
    """Name the requirements of a NodePool that leave it without types, or return that none of them can be bought."""
    words = unmet(template, template.requirements)
    if words or not template.table.names:
        return words or "its EC2NodeClass offers no types"
    suits = template.table.offered(template.requirements, template.given).suits
    dear = above_ceiling(template, np.flatnonzero(suits).tolist())
    if dear:
        return f"no offering within its price ceilings is available now; {dear}"
    sold = (template.table.sold & template.table.cells(template.requirements))[suits].any()
    number = int(suits.sum())
    if sold:
        return f"no offering of its {number} types is available now"
    return f"none of its {number} types is sold in the zones and capacity types it asks for"


def from_volumes(attempt: PlacementAttempt, conflicts: dict[str, str]) -> str:
    """Return in words that the volumes of the pods bring the conflict; empty when they do not."""
    pod_class = attempt.pod_class
    own = (
        pod_class.own_terms[pod_class.terms.index(attempt.term)]
        if attempt.term in pod_class.terms and pod_class.own_terms
        else attempt.term
    )
    keys = [key for key in conflicts if own.get(key) != attempt.term[key]]
    if labels.HOSTNAME in keys:
        names = ", ".join(sorted(attempt.term[labels.HOSTNAME].values))
        return f" (its volumes can be used, or are being made, on node {names} alone)"
    return f" (asked for by its volumes: {', '.join(keys)})" if keys else ""


def ports_taken(template: NodeClaimTemplate, attempt: PlacementAttempt) -> str:
    """Return in words that DaemonSets take a host port that a class needs; empty when they do not."""
    if template.daemons.ports is None or not any(
        ports_collide(attempt.pod_class.ports, taken) for taken in template.daemons.ports
    ):
        return ""
    ports = ", ".join(f"{port}/{protocol}" for port, protocol, _ in sorted(attempt.pod_class.ports))
    return f"host port {ports} is taken by a DaemonSet on every type that suits"


def unsuited_daemons(template: NodeClaimTemplate, attempt: PlacementAttempt) -> str:
    """Name DaemonSets that run where a class must not be beside them, or do not run where it must; empty for none."""
    load = template.daemons
    running = {daemon.owner for daemon, runs in zip(load.daemons, load.runs, strict=True) if runs.any()}
    parts = [
        f"anti-affinity keeps it off nodes with pods of DaemonSet {namespace}/{name}"
        for namespace, name in sorted(attempt.company.away & running)
    ]
    parts += [
        f"pod affinity holds it to nodes with pods of DaemonSet {' or '.join(map('/'.join, sorted(owners)))}"
        for _, owners in attempt.company.near
        if running.isdisjoint(owners)
    ]
    return " and ".join(parts)


def limits_left(refusal: Refusal) -> str:
    """Return in words what the limits of the NodePool left when it refused."""
    limits = refusal.template.limits
    left = np.maximum(refusal.left, 0).tolist()
    parts = [
        f"{resource} {amount(resource, left[column])} of {amount(resource, limits.amounts[resource])} left"
        for column, resource in zip(limits.columns.tolist(), limits.resources(), strict=True)
    ]
    return f" ({', '.join(parts)})" if parts else ""


def reservations_before(template: NodeClaimTemplate) -> str:
    """Return in words how many instances each reservation of a template had left before the plan."""
    had = {name: template.units.get(name, 0) for name in sorted(template.reservations)}
    return some([f"{name} had {number} left" for name, number in had.items() if number], BOUNDS.named_templates)


def share_of_spot(limits: PoolLimits) -> str:
    """Return in words how much of a NodePool must not be spot, and how much is not once the plan is carried out."""
    least = (limits.spot_bound or 0) / 100
    return f"at least {least:g} % must not be; {limits.steady} of {limits.nodes} are not with this plan"


def preferences_lost(attempt: PlacementAttempt, template: NodeClaimTemplate, terms: Sequence[Term]) -> list[str]:
    """Name the preferences of its class that an attempt no longer holds to."""
    lost = given_up(attempt.pod_class.preferences, attempt.level)
    words = [f"pod affinity over {terms[term].key}" for term in lost.topology.affinity]
    words += [f"pod anti-affinity over {terms[term].key}" for term in lost.topology.anti]
    words += [f"node affinity {', '.join(str(entry) for _, entry in sorted(term.items()))}" for term in lost.node]
    words += [f"topology spread over {spread.key} (maxSkew {spread.max_skew})" for spread in lost.topology.spreads]
    for taint in template.pool.spec.template.spec.taints if attempt.soft else ():
        if taint.effect == "PreferNoSchedule" and untolerated((taint,), attempt.pod_class.tolerations) is not None:
            words.append(f"keeping off taint {taint.key}={taint.value}:{taint.effect}".replace("=:", ":"))
    return words


def cpu_hint(attempt: PlacementAttempt) -> str:
    """A question for those who wrote cores and meant millicores."""
    return (
        ' (cpu request >= 1 million cores; was "m" meant?)'
        if attempt.pod_class.requests.get(CPU, 0) >= _MILLION_CORES_M
        else ""
    )


def untolerated_taints(refusal: Refusal) -> str:
    """The first taints of a template that a class does not tolerate, in words."""
    found = (
        f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
        for taint in refusal.template.pool.spec.template.spec.taints
        if untolerated((taint,), refusal.attempt.pod_class.tolerations, ignore_preferences=refusal.attempt.soft)
        is not None
    )
    return ", ".join(islice(found, BOUNDS.named_rules))
