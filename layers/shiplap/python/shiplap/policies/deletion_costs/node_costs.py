"""Gives each node that may go one number, the deletion cost of its pods: the lower, the sooner the node should go.

The number depends on the node alone, so that a change of one node writes no pods of another one. Its digits are

    -D WW NNNN

* D, the departure: 3 the node leaves, 2 it will be replaced (drifted, or near its expiration), 1 it may be consolidated
* WW, its worth: dollars per hour for the cost of its pods' evictions, four steps for each doubling. Consolidation adds
  the cost of the node itself, which a ReplicaSet does not pay: a small node with one pod goes before a large one
* NNNN, a digest of its name. Nodes of equal worth need different numbers: among pods of equal cost a ReplicaSet deletes
  those first that share their node, which empties no node.

A node keeps the number that its pods have until its departure differs or its worth has doubled or halved. While a node
empties, each of its pods is therefore written again once for each halving: twice on average, whatever the node held.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum
from math import log2
from zlib import crc32

from shiplap.disruption.candidates import Candidate, find_candidates
from shiplap.disruption.commands import Decision
from shiplap.disruption.current_prices import market_of
from shiplap.disruption.disruption_snapshot import DisruptionSnapshot
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node
from shiplap.manifests.nodeclaim import LEAVING, NodeClaim
from shiplap.manifests.times import seconds_or_never
from shiplap.policies.deletion_costs.pod_costs import written_cost
from shiplap.scheduling.model.planned_pods import pair
from shiplap.scheduling.model.protected_pods import PdbLimits

LEAVING_S = 60.0
"""How long a node has been leaving when its pods are written, in seconds: most pods are gone by then."""
EXPIRES_SOON_S = 24 * 3600.0
"""How long before its expiration a node counts as one that will be replaced, in seconds."""

_OF_NODE = 1.0  # of `Candidate.cost`
_STEPS = 4  # of a doubling
_MIDDLE, _MOST = 50, 99
_CENT = 0.01
_NAMES = 10_000
_DEPARTURE = 100 * _NAMES


class Departure(IntEnum):
    """How a node would go."""

    IF_IT_PAYS = 1
    REPLACED = 2
    UNDER_WAY = 3


def node_costs(snapshot: DisruptionSnapshot, decision: Decision) -> dict[str, int | None]:
    """Return the deletion cost of the pods of each node that may go, None for each that stays.

    A node that is neither for now, such as one that is not initialized, is left out: its pods stay as they are.
    """
    no_budgets = PdbLimits({}, {})  # which a ReplicaSet does not ask
    scheduling = snapshot.scheduling
    found = find_candidates(snapshot, market_of(scheduling), no_budgets, frozenset())
    costs: dict[str, int | None] = {}
    # A decision does not look whether a node drifts that pods are on their way to: what was seen before still counts.
    drifted = {*decision.drifted, *(history.node for history in snapshot.histories if history.drifted_at)}
    called = drifted.union(decision.overdue)
    for item in found.candidates:
        departure = None if item.protected else _departure(item, scheduling.now, called)
        costs[item.name] = None if departure is None else _number(departure, _worth(item), item.name)
    paired, _ = pair(scheduling.view.nodes, scheduling.claims)
    for node in scheduling.view.nodes:
        name = node.metadata.name
        if name in costs:
            continue
        claim = paired.get(name)
        if _stays(node, claim):
            costs[name] = None
        elif claim is not None and claim.state in LEAVING and scheduling.now >= claim.changed_at + LEAVING_S:
            costs[name] = _number(Departure.UNDER_WAY, _MOST, name)
    held = {
        name: {known for pod in scheduling.view.by_node.get(name, ()) if (known := written_cost(pod)) is not None}
        for name in costs
    }
    return {name: cost if cost is None else _kept(cost, held[name]) for name, cost in costs.items()}


def _stays(node: Node, claim: NodeClaim | None) -> bool:
    return claim is None or node.metadata.annotations.get(labels.DO_NOT_DISRUPT) == "true"


def _departure(item: Candidate, now: float, called: Collection[str]) -> Departure | None:
    """Return how a candidate would go; None if it is worth nothing to empty it."""
    if item.pool.spec.replicas is not None:
        return None  # its NodePool would launch another one
    expires_s = seconds_or_never(item.expire_after)
    if item.name in called or (expires_s is not None and now >= item.born_at + expires_s - EXPIRES_SOON_S):
        return Departure.REPLACED
    never = seconds_or_never(item.pool.spec.disruption.consolidate_after) is None
    return None if never or item.history.said_to_stay else Departure.IF_IT_PAYS


def _worth(item: Candidate) -> int:
    """Return dollars per hour for the cost of evictions as a step from 0 to 99; 50 is a cent for each usual pod."""
    if item.price <= 0:
        return 0
    of_pods = max(item.cost - _OF_NODE, 1.0)
    return min(max(_MIDDLE + round(_STEPS * log2(item.price / of_pods / _CENT)), 0), _MOST)


def _number(departure: Departure, worth: int, name: str) -> int:
    return -(departure * _DEPARTURE + worth * _NAMES + crc32(name.encode()) % _NAMES)


def _kept(wanted: int, held: Collection[int]) -> int:
    """Return the number among `held` that still serves, or the wanted one."""
    departure, worth = divmod(-wanted // _NAMES, 100)

    def distance(known: int) -> int:
        return abs(-known // _NAMES % 100 - worth)

    near = [known for known in held if -known // _DEPARTURE == departure and distance(known) < _STEPS]
    return min(near, key=lambda known: (distance(known), known), default=wanted)


def by_urgency(costs: Mapping[str, int | None]) -> list[str]:
    """Return nodes in the order in which their pods are written: those that stay first, then those that go first."""
    return sorted(costs, key=lambda name: (costs[name] is not None, costs[name] or 0, name))
