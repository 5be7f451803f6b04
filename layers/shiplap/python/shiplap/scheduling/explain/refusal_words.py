"""The words of refusals: what stands in a lane's way, as far as one lane and one attempt tell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shiplap.kubernetes.quantity import CPU
from shiplap.kubernetes.taints import untolerated
from shiplap.scheduling.explain.nearest import above_ceiling, amount, some, unmet
from shiplap.scheduling.model.pod_classes import ports_collide
from shiplap.scheduling.model.preferences import given_up
from shiplap.scheduling.model.topology_constraints import Term
from shiplap.scheduling.supply.limits import Budget
from shiplap.scheduling.supply.open_claims import Refusal, Want
from shiplap.scheduling.supply.templates import Lane

_MILLION_CORES_M = 10**9
_NAMED_RESERVATIONS = 5


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
    dear = above_ceiling(lane, np.flatnonzero(suits).tolist())
    if dear:
        return f"no offering within its price ceilings is available now; {dear}"
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


def reservations_before(lane: Lane) -> str:
    """How many instances each reservation of a lane had left before the plan."""
    had = {name: lane.units.get(name, 0) for name in sorted(lane.reservations)}
    return some([f"{name} had {number} left" for name, number in had.items() if number], _NAMED_RESERVATIONS)


def share_of_spot(budget: Budget) -> str:
    """How much of a NodePool must not be spot, and how much is not once the plan is carried out."""
    least = (budget.spot_bound or 0) / 100
    return f"at least {least:g} % must not be; {budget.steady} of {budget.nodes} are not with this plan"


def preferences_lost(want: Want, lane: Lane, terms: Sequence[Term]) -> list[str]:
    """What an attempt no longer holds to of what its class prefers."""
    lost = given_up(want.item.preferences, want.level)
    words = [f"pod affinity over {terms[term].key}" for term in lost.topology.affinity]
    words += [f"pod anti-affinity over {terms[term].key}" for term in lost.topology.anti]
    words += [f"node affinity {', '.join(str(entry) for _, entry in sorted(term.items()))}" for term in lost.node]
    words += [f"topology spread over {spread.key} (maxSkew {spread.max_skew})" for spread in lost.topology.spreads]
    for taint in lane.pool.spec.template.spec.taints if want.soft else ():
        if taint.effect == "PreferNoSchedule" and untolerated((taint,), want.item.tolerations) is not None:
            words.append(f"keeping off taint {taint.key}={taint.value}:{taint.effect}".replace("=:", ":"))
    return words


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
