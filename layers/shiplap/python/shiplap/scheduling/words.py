"""The words of refusals: what stands in a lane's way, as far as one lane and one attempt tell."""

from __future__ import annotations

import numpy as np

from shiplap.kubernetes.quantity import CPU
from shiplap.kubernetes.taints import untolerated
from shiplap.scheduling.classes import ports_collide
from shiplap.scheduling.lanes import Lane
from shiplap.scheduling.nearest import amount, unmet
from shiplap.scheduling.open_claims import Refusal, Want

_MILLION_CORES_M = 10**9


def conflicting(lane: Lane, want: Want) -> dict[str, str]:
    """The labels by which a class cannot go to a lane, with the conflict in words; by name."""
    found = {}
    for key in sorted(want.term):
        words = lane.template.conflict({key: want.term[key]}, lane.allow_undefined)
        if words is not None:
            found[key] = words
    return found


def filtered_out(lane: Lane) -> str:
    """Which of its own requirements leave a NodePool without types, or that none of them can be bought."""
    words = unmet(lane, lane.template)
    if words or not lane.table.names:
        return words or "its EC2NodeClass offers no types"
    suits = lane.table.offered(lane.template, lane.given).suits
    sold = (lane.table.sold & lane.table.cells(lane.template))[suits].any()
    number = int(suits.sum())
    if sold:
        return f"no offering of its {number} types is available now"
    return f"none of its {number} types is sold in the zones and capacity types it asks for"


def from_volumes(want: Want, conflicts: dict[str, str]) -> str:
    """Whether it is the volumes of the pods that bring the conflict."""
    item = want.item
    own = item.own_terms[item.terms.index(want.term)] if want.term in item.terms and item.own_terms else want.term
    keys = [key for key in conflicts if own.get(key) != want.term[key]]
    return f" (asked for by its volumes: {', '.join(keys)})" if keys else ""


def ports_taken(lane: Lane, want: Want) -> str:
    """Whether DaemonSets take a host port that a class needs; empty when they do not."""
    if lane.daemons.ports is None or not any(ports_collide(want.item.ports, taken) for taken in lane.daemons.ports):
        return ""
    ports = ", ".join(f"{port}/{protocol}" for port, protocol, _ in sorted(want.item.ports))
    return f"host port {ports} is taken by a DaemonSet on every type that suits"


def limits_left(refusal: Refusal) -> str:
    """What the limits of the NodePool left when it refused."""
    budget = refusal.lane.budget
    left = np.maximum(refusal.left, 0).tolist()
    parts = [
        f"{resource} {amount(resource, left[column])} of {amount(resource, budget.limits[resource])} left"
        for column, resource in zip(budget.columns.tolist(), budget.resources(), strict=True)
    ]
    return f" ({', '.join(parts)})" if parts else ""


def cpu_hint(want: Want) -> str:
    """A question for those who wrote cores and meant millicores."""
    return (
        ' (cpu request >= 1 million cores; was "m" meant?)'
        if want.item.requests.get(CPU, 0) >= _MILLION_CORES_M
        else ""
    )


def untolerated_taints(refusal: Refusal) -> list[str]:
    """The taints of a lane that a class does not tolerate."""
    return [
        f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
        for taint in refusal.lane.pool.spec.template.spec.taints
        if untolerated((taint,), refusal.want.item.tolerations, ignore_preferences=refusal.want.soft) is not None
    ]
