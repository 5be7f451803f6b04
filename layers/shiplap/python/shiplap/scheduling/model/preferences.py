"""Preferences: what a pod would like of its place, and the order in which it is given up.

A preference binds like a requirement until a pod cannot be placed with it. Then one is dropped after the other, as
Karpenter does: the heaviest preferred pod affinity, the heaviest preferred pod anti-affinity, the heaviest preferred
node affinity, the first ScheduleAnyway spread, each kind to its end. What one class gave up binds it no longer; what
others demand of it still does.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from shiplap.kubernetes.objects import Affinity, NodeSelectorTerm
from shiplap.kubernetes.requirements import Requirements, contradiction, requirement
from shiplap.scheduling.model.topology_constraints import UNCONSTRAINED, Constraints


class Preferences(msgspec.Struct, frozen=True):
    """The preferences of a pod: node affinity terms, heaviest first, and topology constraints in their dropping order.

    Of `node` only the first that is left is held to; of `topology` all that are left.
    """

    node: tuple[Requirements, ...] = ()
    topology: Constraints = UNCONSTRAINED


NO_PREFERENCES = Preferences()


class Level(msgspec.Struct, frozen=True):
    """Holds what binds after `step` steps of relaxation: required and preferred topology, one node preference."""

    step: int
    constraints: Constraints
    node: Requirements | None = None


def levels(required: Constraints, preferences: Preferences) -> Iterator[Level]:
    """The levels of relaxation in turn, from everything preferred to nothing but what is required."""
    if preferences == NO_PREFERENCES:
        yield Level(0, required)
        return
    node, held = preferences.node, preferences.topology
    step = 0
    while True:
        yield Level(step, _both(required, held), node[0] if node else None)
        step += 1
        if held.affinity:
            held = Constraints(held.spreads, held.affinity[1:], held.anti)
        elif held.anti:
            held = Constraints(held.spreads, (), held.anti[1:])
        elif node:
            node = node[1:]
        elif held.spreads:
            held = Constraints(held.spreads[1:])
        else:
            return


def given_up(preferences: Preferences, steps: int) -> Preferences:
    """Return the preferences that no longer bind after so many steps of relaxation."""
    topology = preferences.topology
    affinity = topology.affinity[:steps]
    steps -= len(affinity)
    anti = topology.anti[:steps]
    steps -= len(anti)
    node = preferences.node[:steps]
    steps -= len(node)
    return Preferences(node, Constraints(topology.spreads[:steps], affinity, anti))


def _both(required: Constraints, held: Constraints) -> Constraints:
    if held == UNCONSTRAINED:
        return required
    return Constraints(
        required.spreads + held.spreads,
        required.affinity + held.affinity,
        required.anti + held.anti,
        required.volumes,
    )


def preferred_nodes(affinity: Affinity | None) -> tuple[Requirements, ...]:
    """The preferred node-affinity terms, heaviest first; those that nothing can meet are left out.

    Unlike requirements, preferences that make no sense are no reason to refuse the pod.
    """
    if affinity is None or affinity.node_affinity is None or not affinity.node_affinity.preferred:
        return ()
    weighed = sorted(affinity.node_affinity.preferred, key=lambda entry: -entry.weight)
    terms = (_preferred_term(entry.preference) for entry in weighed)
    return tuple(term for term in terms if term is not None)


def _preferred_term(term: NodeSelectorTerm) -> Requirements | None:
    if term.match_fields or not term.match_expressions:
        return None
    try:
        entries = [requirement(item.key, item.operator, item.values) for item in term.match_expressions]
    except ValueError:  # an operator or value that no label can be compared with
        return None
    return None if contradiction(entries) is not None else Requirements(entries)
