"""What the volumes of a pod ask of a node, and how many volumes the nodes that exist still take.

Most pods with claims are alike in this: only claims that several pods use keep their names, the others are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from shiplap.kubernetes.requirements import Requirements
from shiplap.scheduling.resources import PLENTY

ANYWHERE: tuple[Requirements, ...] = (Requirements(),)
"""The alternatives of volumes that may be used on any node."""

ATTACHED = "volumes of "
"""With a driver's name: stands on the axis like a resource, for nodes that are yet to be launched."""

Attachment = tuple[str, str]
"""A volume as a node's driver counts it: driver, and namespace/name of the claim."""


class VolumeNeeds(msgspec.Struct, frozen=True):
    """What the volumes of a pod ask of a node.

    One of the `alternatives` must be met, and there is none when the volumes contradict each other. `private` counts
    volumes by driver that no other pod uses; `shared` ones are attached once, however many pods on the node use them.
    """

    alternatives: tuple[Requirements, ...] = ANYWHERE
    private: tuple[tuple[str, int], ...] = ()
    shared: frozenset[Attachment] = frozenset()

    @property
    def attaches(self) -> bool:
        """Whether any driver has something to attach."""
        return bool(self.private or self.shared)


NO_VOLUMES = VolumeNeeds()


class Attachments(msgspec.Struct):
    """The volumes on one node: how many each driver allows, which claims are there and how many that makes.

    A driver without an entry in `limits` sets none, or none that is known.
    """

    limits: Mapping[str, int]
    claims: set[Attachment]
    counts: Counter[str]

    def copy(self) -> Attachments:
        """The same node, filled independently."""
        return Attachments(self.limits, set(self.claims), self.counts.copy())

    def room(self, needs: VolumeNeeds) -> int:
        """How many pods with these volumes the node still takes."""
        coming = Counter(driver for driver, _ in needs.shared - self.claims)
        many = PLENTY
        for driver, number in sorted((coming + Counter(dict(needs.private))).items()):
            if driver not in self.limits:
                continue
            left = self.limits[driver] - self.counts[driver] - coming[driver]
            each = number - coming[driver]
            if left < 0:
                return 0
            if each:
                many = min(many, left // each)
        return many

    def add(self, needs: VolumeNeeds, pods: int) -> None:
        """Attach the volumes of this many pods."""
        fresh = needs.shared - self.claims
        self.claims |= fresh
        self.counts.update(driver for driver, _ in fresh)
        for driver, each in needs.private:
            self.counts[driver] += each * pods
