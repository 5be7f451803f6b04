"""Variants of a template's nodes: the parts of its zones, capacity types and labels between which DaemonSets differ.

What DaemonSets take of a node depends on what is not decided before its launch: one of a single zone takes nothing in
the others. A template has one row per instance type and variant, each with what is left beside its own DaemonSets and
with the prices of its own offerings. So a pod may find room on one variant alone, and the cheapest one is chosen like a
type. Where nothing undecided makes a difference to DaemonSets, there is one variant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

import msgspec

from shiplap.kubernetes import labels
from shiplap.kubernetes.requirements import Requirement, Requirements
from shiplap.scheduling.model.bounds import BOUNDS
from shiplap.scheduling.supply.instance_arrays import TypeTable


class NodeVariants(msgspec.Struct, frozen=True):
    """`choices` are the alternatives of each label; a value of a label without known values may be in two of them.

    `all` are their combinations in the order of `itertools.product`, as requirements beside those of the template.
    """

    choices: tuple[tuple[Requirement, ...], ...] = ()
    all: tuple[Requirements, ...] = (Requirements(),)

    def places(self, chosen: Sequence[Sequence[int]]) -> list[int]:
        """The places in `all` of the combinations of these alternatives per label."""
        found = [0]
        for options, places in zip(self.choices, chosen, strict=True):
            found = [base * len(options) + place for base in found for place in places]
        return found


def variants_of(terms: Iterable[Requirements], requirements: Requirements, table: TypeTable) -> NodeVariants:
    """The variants of nodes with these requirements between which DaemonSets with these node-affinity terms differ."""
    asked: dict[str, set[Requirement]] = {}
    for term in terms:
        for key, entry in term.items():
            asked.setdefault(key, set()).add(entry)
    choices: list[tuple[Requirement, ...]] = []
    number = 1
    for key in sorted(asked):
        options = _alternatives(key, sorted(asked[key], key=str), requirements.get(key), table)
        if len(options) > 1 and number * len(options) <= BOUNDS.node_variants:
            number *= len(options)
            choices.append(options)
    return NodeVariants(tuple(choices), tuple(map(Requirements, product(*choices))))


def _alternatives(
    key: str, asked: Sequence[Requirement], known: Requirement | None, table: TypeTable
) -> tuple[Requirement, ...]:
    """The values of a label in parts for which DaemonSets ask alike, those that fewest ask for first.

    Nothing where the instance type decides, or nothing is undecided.
    """
    if not table.tells_types(key):
        return _parts(key, asked, (value for value in table.values_of(key) if known is None or known.has(value)))
    if known is None or key in table.label_keys or key in (labels.INSTANCE_TYPE, labels.HOSTNAME):
        return ()
    if not known.complement:
        return _parts(key, asked, known.values)
    named = {value for entry in asked for value in entry.values if known.has(value)}
    rest = known.intersection(Requirement(key, True, frozenset(named)))
    return (*_open_parts(rest, asked), *_parts(key, asked, named))


def _parts(key: str, asked: Sequence[Requirement], values: Iterable[str]) -> tuple[Requirement, ...]:
    parts: dict[tuple[bool, ...], list[str]] = {}
    for value in sorted(values):
        parts.setdefault(tuple(entry.has(value) for entry in asked), []).append(value)
    ordered = sorted(parts.items(), key=lambda part: (sum(part[0]), part[1]))
    return tuple(Requirement.one_of(key, *some) for _, some in ordered)


def _open_parts(rest: Requirement, asked: Sequence[Requirement]) -> tuple[Requirement, ...]:
    """Values that no DaemonSet names: in intervals where one asks for numbers, and all of them, as they may be text."""
    starts = {entry.at_least for entry in asked if entry.at_least is not None}
    starts |= {entry.at_most + 1 for entry in asked if entry.at_most is not None}
    if not starts:
        return (rest,)
    edges = sorted(starts)
    below = [None, *edges]
    above = [*(edge - 1 for edge in edges), None]
    intervals = [
        rest.intersection(Requirement(rest.key, True, at_least=least, at_most=most))
        for least, most in zip(below, above, strict=True)
    ]
    return (*(part for part in intervals if part.complement), rest)
