"""The smallest cluster that still breaks a law: options are left out, then single objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as with_changes
from typing import Any

from msgspec.structs import replace

from shiplap.errors import ShiplapError
from shiplap.scheduling.model.snapshot import Snapshot
from tests.combinations.drawn_clusters import DrawnCluster, with_options
from tests.combinations.laws import Decided, Law
from tests.combinations.played_laws import verdict

_VIEW = ("pods", "nodes", "daemon_sets", "pod_disruption_budgets", "persistent_volume_claims", "persistent_volumes")
_MANIFESTS = ("node_pools", "node_overlays", "capacity_buffers")
_MOST_TRIES = 400
"""Clusters tried for one failure: some ten seconds."""


class Shrinking:
    """A search for a smaller cluster that breaks the same law."""

    def __init__(self, law: Law, most_tries: int = _MOST_TRIES) -> None:
        self._law = law
        self._tries_left = most_tries

    def shrunk(self, cluster: DrawnCluster) -> tuple[DrawnCluster, str]:
        """The smallest cluster that was found, and what is wrong with it."""
        found, problem = cluster, self._problem(cluster)
        found, problem = self._with_fewer_options(found, problem)
        while smaller := self._with_one_object_less(found):
            found, problem = smaller
        return found, problem

    def _problem(self, cluster: DrawnCluster) -> str:
        self._tries_left -= 1
        try:
            return verdict(self._law, cluster, Decided(cluster.snapshot)) or ""
        except ShiplapError:
            return ""  # what cannot be read breaks no law

    def _with_fewer_options(self, cluster: DrawnCluster, problem: str) -> tuple[DrawnCluster, str]:
        for name in cluster.options:
            rest = [other for other in cluster.options if other != name]
            smaller = with_options(cluster.seed, cluster.number, rest)
            if self._tries_left > 0 and (wrong := self._problem(smaller)):
                return self._with_fewer_options(smaller, wrong)
        return cluster, problem

    def _with_one_object_less(self, cluster: DrawnCluster) -> tuple[DrawnCluster, str] | None:
        for smaller in _each_without_one(cluster.snapshot):
            if self._tries_left <= 0:
                return None
            candidate = with_changes(cluster, snapshot=smaller)
            if wrong := self._problem(candidate):
                return candidate, wrong
        return None


def _each_without_one(snapshot: Snapshot) -> list[Snapshot]:
    made: list[Snapshot] = []
    for part, names in (("view", _VIEW), ("manifests", _MANIFESTS)):
        for name in names:
            made += _without_each(snapshot, part, name)
    return made


def _without_each(snapshot: Snapshot, part: str, name: str) -> list[Snapshot]:
    owner = getattr(snapshot, part)
    items: tuple[Any, ...] = getattr(owner, name)
    with_items: Callable[[tuple[Any, ...]], Snapshot] = lambda kept: replace(  # noqa: E731 - said once
        snapshot, **{part: replace(owner, **{name: kept})}
    )
    return [with_items((*items[:place], *items[place + 1 :])) for place in range(len(items))]
