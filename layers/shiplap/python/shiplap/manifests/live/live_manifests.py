"""The manifests of a cluster as last read: usable manifests, refused manifests, and how long each has stood."""

from __future__ import annotations

import msgspec

from shiplap.manifests.custom_resources import Manifests

SETTLED_S = 60.0
"""How long a spec stands before nodes drift by it, in seconds: an edit that is taken back at once replaces no node."""


class RefusedManifest(msgspec.Struct, frozen=True, omit_defaults=True, order=True):
    """An object that nothing is made from, and why: each reason names a field.

    `condition_reason` is what Karpenter's condition ValidationSucceeded has for the first of them, where it has one.
    """

    kind: str
    name: str
    namespace: str = ""
    reasons: tuple[str, ...] = ()
    condition_reason: str = ""


class ObservedManifest(msgspec.Struct, frozen=True, omit_defaults=True, order=True):
    """An object as it was seen. `digest` changes with what it says, and stands since `since`, epoch seconds.

    `generation` is the API server's count of its specs: an edit that came and went between two reads shows in it.
    """

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    digest: str = ""
    generation: int = 0
    since: float = 0.0
    is_deleted: bool = False


class LiveManifests(msgspec.Struct, frozen=True, omit_defaults=True):
    """The manifests of one cluster as they were last read from it.

    `refused` and `observed` are sorted; `observed` holds every object of ours, refused ones as well.
    """

    manifests: Manifests = Manifests()
    refused: tuple[RefusedManifest, ...] = ()
    observed: tuple[ObservedManifest, ...] = ()

    def unsettled_pools(self, now: float) -> tuple[str, ...]:
        """NodePools whose spec, or whose EC2NodeClass's, stands for less than SETTLED_S, sorted by name."""
        young = {(item.kind, item.name) for item in self.observed if now < item.since + SETTLED_S}
        return tuple(
            pool.metadata.name
            for pool in self.manifests.node_pools
            if ("NodePool", pool.metadata.name) in young
            or ("EC2NodeClass", pool.spec.template.spec.node_class_ref.name) in young
        )

    def settles_at(self, now: float) -> float:
        """Return the epoch second at which the next spec will have stood for SETTLED_S; 0 if all have."""
        return min((item.since + SETTLED_S for item in self.observed if now < item.since + SETTLED_S), default=0.0)

    def with_ages(self, before: LiveManifests, now: float) -> LiveManifests:
        """The same, each object standing since it was first seen as it is: in `before`, or `now`."""
        since = {_identity(item): item.since for item in before.observed}
        aged = (msgspec.structs.replace(item, since=since.get(_identity(item), now)) for item in self.observed)
        return msgspec.structs.replace(self, observed=tuple(aged))

    def says_the_same(self, other: LiveManifests) -> bool:
        """True if both hold the same objects with the same content."""
        return tuple(map(_identity, self.observed)) == tuple(map(_identity, other.observed))


def _identity(item: ObservedManifest) -> tuple[str, str, str, str, str, int, bool]:
    return item.kind, item.namespace, item.name, item.uid, item.digest, item.generation, item.is_deleted
