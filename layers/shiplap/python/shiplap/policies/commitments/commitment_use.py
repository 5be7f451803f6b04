"""Tracks the commitments that each cluster of an install uses on demand, so that none counts what another takes.

A cluster notes what it runs and is about to launch before it commits the launch. A note replaces all clusters' notes at
once and only if none has changed since it was read, so of two clusters that plan on the same room one plans again. What
was noted lately is not taken back before it must be visible in the cluster: a function may note a launch, and another
one, which has not seen it yet, may note what runs without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from shiplap.policies.commitments.account_commitments import InstanceUse, merged
from shiplap.policies.commitments.commitment_ledger import CommitmentLedger, CommitmentRoom

HELD_S = 180.0
"""How long after a note nothing of it is taken back, in seconds: by then what was noted is committed, or never will."""

RENEWED_S = 6 * 3600.0
"""A cluster notes what it runs at least so often, in seconds."""

FORGOTTEN_S = 24 * 3600.0
"""After so many seconds a note counts no more: the cluster has left the install."""


class ClusterUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """The instances that a cluster runs on demand, noted `at`, epoch seconds."""

    at: float
    instances: tuple[InstanceUse, ...] = ()


class SharedUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """The notes of all clusters of the install; `version` counts the writes."""

    version: int = 0
    clusters: dict[str, ClusterUse] = {}

    def of_others(self, cluster: str, now: float) -> tuple[InstanceUse, ...]:
        """Return the instances that the other clusters use at `now`, together."""
        return merged(
            *(use.instances for name, use in self.clusters.items() if name != cluster and now - use.at <= FORGOTTEN_S)
        )

    def with_cluster(self, cluster: str, use: ClusterUse, now: float) -> SharedUse:
        """The notes with a cluster's replaced, and without those that are forgotten."""
        kept = {name: known for name, known in self.clusters.items() if now - known.at <= FORGOTTEN_S}
        return SharedUse(self.version + 1, dict(sorted((kept | {cluster: use}).items())))

    def noted(
        self, cluster: str, running: Iterable[InstanceUse], planned: Iterable[InstanceUse], now: float
    ) -> ClusterUse | None:
        """Return the use that a cluster should note now; None while its note holds it already."""
        known = self.clusters.get(cluster, ClusterUse(0.0))
        base = merged(running)
        if now - known.at < HELD_S:
            base = _most(base, known.instances)
        instances = merged(base, planned)
        if instances == known.instances and now - known.at < RENEWED_S:
            return None
        return ClusterUse(now, instances)


def _most(one: tuple[InstanceUse, ...], other: tuple[InstanceUse, ...]) -> tuple[InstanceUse, ...]:
    """Of each type and zone the larger count."""
    most: dict[tuple[str, str], int] = {}
    for use in (*one, *other):
        key = (use.instance_type, use.zone)
        most[key] = max(most.get(key, 0), use.count)
    return tuple(InstanceUse(*key, count) for key, count in sorted(most.items()))


class UsedCommitments(msgspec.Struct, frozen=True, omit_defaults=True):
    """The commitments that disruption knows: the counted ones, less the account's other instances, and their users.

    `uses` are all clusters' instances. `listed` are the on-demand prices of their types, micro-dollars per hour.
    """

    counted: CommitmentRoom
    uses: tuple[InstanceUse, ...] = ()
    listed: dict[str, int] = {}

    def unpaid(self, uses: Iterable[InstanceUse], listed: Mapping[str, int] | None = None) -> int:
        """Return the cost of these instances beside the commitments, micro-dollars per hour."""
        return CommitmentLedger(self.counted).settle(uses, self.listed if listed is None else listed)

    def idle(self, removed: Iterable[InstanceUse], added: Iterable[InstanceUse], listed: Mapping[str, int]) -> int:
        """The part of a saving at list prices that would only leave commitments unused, micro-dollars per hour.

        A freed commitment counts as far as the command's own replacements, or instances that run without one, use it.
        """
        gone, come = merged(removed), merged(added)
        prices = {**self.listed, **listed}
        saved = _listed(gone, prices) - _listed(come, prices)
        less = [replace(use, count=-use.count) for use in gone]
        after = _net(self.uses, less, come)
        return max(saved - (self.unpaid(self.uses, prices) - self.unpaid(after, prices)), 0)


def _listed(uses: Iterable[InstanceUse], prices: Mapping[str, int]) -> int:
    return sum(prices.get(use.instance_type, 0) * use.count for use in uses)


def _net(*uses: Iterable[InstanceUse]) -> tuple[InstanceUse, ...]:
    """All counts added up, negative ones as well; of each type and zone at least none."""
    total: dict[tuple[str, str], int] = {}
    for use in (item for some in uses for item in some):
        key = (use.instance_type, use.zone)
        total[key] = total.get(key, 0) + use.count
    return tuple(InstanceUse(*key, count) for key, count in sorted(total.items()) if count > 0)
