"""Commands that do not depend on each other: removed nodes belong together only if their pods share a replacement."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from shiplap.api.nodeclaim import PodReference
from shiplap.disruption.candidates import Candidate
from shiplap.disruption.simulation import Relocation
from shiplap.scheduling.plan import Placement, PlannedClaim


class Component(msgspec.Struct, frozen=True, eq=False):
    """Nodes to remove, by name, the nodes that stay and take pods of theirs, and the claims that take the others."""

    nodes: tuple[Candidate, ...]
    claims: tuple[PlannedClaim, ...]
    placements: tuple[Placement, ...]

    @property
    def paid(self) -> float:
        """USD per hour of the nodes to remove."""
        return sum(candidate.price for candidate in self.nodes)

    @property
    def moved(self) -> int:
        """Pods that lose their node."""
        return sum(len(candidate.pods) for candidate in self.nodes)


def split(relocation: Relocation, removed: Collection[Candidate]) -> list[Component]:
    """The components of a relocation, sorted by their first node; nodes with a stuck pod are in none.

    A claim that also serves a stuck node is left to the others it serves: they need it all the same.
    """
    by_name = {candidate.name: candidate for candidate in removed if candidate.name not in relocation.stuck}
    leader: dict[str, str] = {name: name for name in by_name}
    for served in relocation.serves:
        names = sorted(name for name in served if name in by_name)
        for name in names[1:]:
            _join(leader, names[0], name)
    nodes: dict[str, list[Candidate]] = {}
    for name in sorted(by_name):
        nodes.setdefault(_find(leader, name), []).append(by_name[name])
    claims: dict[str, list[PlannedClaim]] = {}
    for claim, served in zip(relocation.claims, relocation.serves, strict=True):
        names = sorted(name for name in served if name in by_name)
        if names:
            claims.setdefault(_find(leader, names[0]), []).append(claim)
    return [
        Component(tuple(members), tuple(claims.get(first, ())), _placements(relocation, members))
        for first, members in sorted(nodes.items())
    ]


def _placements(relocation: Relocation, members: Iterable[Candidate]) -> tuple[Placement, ...]:
    merged: dict[str, list[PodReference]] = {}
    for member in members:
        for name, pods in relocation.housed.get(member.name, {}).items():
            merged.setdefault(name, []).extend(pods)
    return tuple(Placement(name, tuple(sorted(pods))) for name, pods in sorted(merged.items()))


def _find(leader: Mapping[str, str], name: str) -> str:
    while leader[name] != name:
        name = leader[name]
    return name


def _join(leader: dict[str, str], one: str, other: str) -> None:
    first, second = sorted((_find(leader, one), _find(leader, other)))
    leader[second] = first
