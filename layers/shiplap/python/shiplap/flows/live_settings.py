"""The settings of a cluster whose manifests are those of its API server, with the manifests as they are now.

Nothing that cannot be read is taken for deleted: where the lists fail, are empty, or their CRDs are being deleted,
nothing is launched and no node is disrupted until they can be read again. The same holds while Karpenter holds its
lease, because it launches for the same pods. What was read is kept in the bucket, for functions that reach no API
server.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from shiplap.errors import ClusterError
from shiplap.flows import claim_events
from shiplap.flows.context import FlowContext
from shiplap.flows.optional.optional_calls import CLAIM_OBJECTS, INSPECTION, SHOWN_OBJECTS
from shiplap.instances.readiness.nodeclass_status import InstallStatus
from shiplap.kubernetes.objects import Node, RawObject
from shiplap.manifests.live.live_manifests import LiveManifests
from shiplap.manifests.standalone_claims import StandaloneClaim
from shiplap.settings import ClusterSettings

if TYPE_CHECKING:
    from shiplap.instances.readiness.object_statuses import PoolNodes
    from shiplap.manifests.validation.live_objects import CheckedManifest
    from shiplap.scheduling.model.scheduling_plan import BufferState

_LOG = logging.getLogger(__name__)

LEASE_MARGIN_S = 60.0
"""For how long after its end a lease still counts, in seconds: a Karpenter that is being replaced takes it again."""

STORED_S = 60.0
"""How long a process trusts what it knows of the bucket, in seconds: other processes write there, too."""

INSPECTION_S = 30.0
"""How often an inspection of the same new EC2NodeClasses is asked for at most, in seconds."""

NO_NODE_POOL = "the cluster has no NodePool of EC2NodeClasses"
"""Why a cluster without NodePools is suspended. NodeClaims that users have deleted are drained even then."""

_NODE_POOL = "NodePool"


class ManifestState(msgspec.Struct, frozen=True):
    """The state of a cluster's manifests as one invocation has found it, beside the settings of deploy time."""

    suspended: str = ""
    """Why nothing is launched and no node is disrupted for now; empty while the cluster is served."""

    unsettled_pools: tuple[str, ...] = ()
    """Names of NodePools whose spec may still be taken back: no node drifts by it yet."""

    settles_at: float = 0.0
    """When the next of these specs has stood for long enough, epoch seconds; 0 while all have."""

    standalone_claims: tuple[StandaloneClaim, ...] = ()
    """NodeClaims that users wrote, sorted by name. Only sweeps, and hints of changed manifests, read them."""

    @property
    def shows_claims(self) -> bool:
        """True if NodeClaim objects may be read and written: a cluster that only lacks NodePools has them as well."""
        return self.suspended in ("", NO_NODE_POOL)


def state_of_ages(aged: LiveManifests, now: float) -> ManifestState:
    """Return the state of manifests whose objects say since when each stands as it is."""
    return ManifestState(unsettled_pools=aged.unsettled_pools(now), settles_at=aged.settles_at(now))


AS_DEPLOYED = ManifestState()
"""The state of manifests that are those of the deployment: nothing of them is found out at run time."""


class KnownManifests:
    """The manifests of clusters that a process remembers: most are the same in the next invocation."""

    def __init__(self) -> None:
        self._checked: dict[str, dict[tuple[str, str], CheckedManifest]] = {}
        self._objects: dict[str, tuple[RawObject, ...]] = {}
        self._asked: dict[str, tuple[float, tuple[str, ...]]] = {}
        self._stored: dict[str, tuple[float, LiveManifests]] = {}
        self._buffers: dict[str, tuple[BufferState, ...]] = {}

    def read(self, settings: ClusterSettings, context: FlowContext) -> LiveManifests:
        """The manifests as the API server has them; each version of an object is checked once. Raises ClusterError."""
        from shiplap.manifests.validation.live_objects import (  # noqa: PLC0415 - only for live manifests
            check_live_object,
            live_manifests,
            own_objects,
        )

        before = self._checked.get(settings.name, {})
        checked: dict[tuple[str, str], CheckedManifest] = {}
        objects = tuple(own_objects(context.cluster.manifest_objects().all()))
        for item in objects:
            key = _version_of(item)
            checked[key] = before.get(key) or check_live_object(item, settings.allowed)
        self._checked[settings.name], self._objects[settings.name] = checked, objects
        return live_manifests(checked.values())

    def objects(self, cluster: str) -> tuple[RawObject, ...]:
        """The objects of a cluster as they were read last, statuses included."""
        return self._objects.get(cluster, ())

    def note_buffers(self, cluster: str, buffers: tuple[BufferState, ...] | None) -> bool:
        """Keep what the last plan found of CapacityBuffers, None if it was not made. Returns whether it is new."""
        if buffers is None or buffers == self._buffers.get(cluster, ()):
            return False
        self._buffers[cluster] = buffers
        return True

    def write_statuses(
        self,
        settings: ClusterSettings,
        context: FlowContext,
        count: Callable[[Sequence[Node]], Mapping[str, PoolNodes]] = lambda _: {},
    ) -> None:
        """Write the statuses of the objects that were read last, where they are not what they should be.

        Nothing depends on a status, so whatever refuses one is counted, and the next sweep tries again. `count` counts
        the nodes of NodePools.
        """
        from shiplap.instances.readiness.object_statuses import (  # noqa: PLC0415 - only for live manifests
            BufferCapacity,
            status_updates,
            uninspected,
        )
        from shiplap.manifests.validation.live_objects import live_manifests  # noqa: PLC0415 - as above

        live = live_manifests(self._checked[settings.name].values())
        inspected = InstallStatus()
        if context.status is not None:
            inspected = context.within(INSPECTION, context.status).load()
        of_cluster = next((item for item in inspected.clusters if item.cluster == settings.name), None)
        nodes, now = context.within(SHOWN_OBJECTS, context.cluster).nodes(), context.clock.now()
        new, (asked_at, asked) = uninspected(live, of_cluster), self._asked.get(settings.name, (0.0, ()))
        if new and (now >= asked_at + INSPECTION_S or not {*new} <= {*asked}):
            self._asked[settings.name] = (now, new)
            context.publish(claim_events.inspection_due(settings.name, now))
        buffers = [
            BufferCapacity(item.namespace, item.name, item.replicas, item.new, item.missing, item.reason)
            for item in self._buffers.get(settings.name, ())
        ]
        cluster = context.within(CLAIM_OBJECTS, context.cluster)
        objects = self._objects[settings.name]
        for update in status_updates(objects, live, of_cluster, nodes, now, buffers, count(nodes)):
            try:
                cluster.write_status(update.kind, update.namespace, update.name, update.status, update.resource_version)
            except ClusterError as error:
                context.meter.count("StatusesNotWritten")
                about = {"cluster": settings.name, "kind": update.kind, "manifest": update.name}
                _LOG.warning("status not written: %s", error, extra=about)

    def with_ages(self, live: LiveManifests, settings: ClusterSettings, context: FlowContext) -> LiveManifests:
        """The same with the time since when each object says what it says; written to the bucket if that is news.

        Raises:
            StoreError: the bucket cannot be read or written.
        """
        assert context.manifests is not None  # noqa: S101 - whoever keeps manifests has the store
        now = context.clock.now()
        known_at, stored = self._stored.get(settings.name, (float("-inf"), LiveManifests()))
        if now >= known_at + STORED_S or not live.says_the_same(stored):
            stored = context.manifests.load(settings.name)
            if not live.says_the_same(stored):
                stored = live.with_ages(stored, now)
                context.manifests.save(settings.name, stored)
            self._stored[settings.name] = (now, stored)
        return live.with_ages(stored, now)


def listed_settings(
    settings: ClusterSettings, context: FlowContext, known: KnownManifests, *, keep: bool = False
) -> tuple[ClusterSettings, ManifestState]:
    """Return the settings with the manifests that the cluster has now, and their state; while suspended, the last ones.

    Args:
        settings: the cluster as it was deployed; without live manifests it is returned as it is.
        context: `cluster` and `manifests` are used.
        known: what this process remembers.
        keep: whether what was read is to be written to the bucket.

    Raises:
        StoreError: the bucket cannot be read or written.
    """
    if not settings.live_manifests:
        return settings, AS_DEPLOYED
    try:
        live = known.read(settings, context)
        reason = _suspension(live, settings, context)
    except ClusterError as error:
        reason = f"manifests cannot be read: {error}"
        return stored_settings(settings, context), _suspended(AS_DEPLOYED, reason, settings.name, context)
    now = context.clock.now()
    aged = known.with_ages(live, settings, context) if keep else live.with_ages(_stored(settings, context), now)
    for refused in live.refused:
        context.meter.count("ManifestsRefused")
        _LOG.warning(
            "%s %s is not used: %s", refused.kind, refused.name, refused.reasons[0], extra={"cluster": settings.name}
        )
    state = state_of_ages(aged, now)
    if reason:
        state = _suspended(state, reason, settings.name, context)
    return replace(settings, manifests=live.manifests), state


def stored_settings(settings: ClusterSettings, context: FlowContext) -> ClusterSettings:
    """The settings with the manifests that were read last. Raises StoreError."""
    if not settings.live_manifests:
        return settings
    return replace(settings, manifests=_stored(settings, context).manifests)


def _stored(settings: ClusterSettings, context: FlowContext) -> LiveManifests:
    return context.manifests.load(settings.name) if context.manifests is not None else LiveManifests()


def _suspended(state: ManifestState, reason: str, cluster: str, context: FlowContext) -> ManifestState:
    context.meter.count("ClustersSuspended")
    _LOG.warning("nothing is launched and no node is disrupted: %s", reason, extra={"cluster": cluster})
    return replace(state, suspended=reason)


def _suspension(live: LiveManifests, settings: ClusterSettings, context: FlowContext) -> str:
    """Return why nothing is to be launched or disrupted by these manifests; empty if nothing speaks against it."""
    there_are_pools = any(item.kind == _NODE_POOL and not item.is_deleted for item in live.observed)
    if not there_are_pools or any(item.is_deleted for item in live.observed):
        ending = context.cluster.ending_definitions()
        if ending:
            return f"CRDs are being deleted: {', '.join(ending)}"
    if not there_are_pools:
        return NO_NODE_POOL
    return lease_held(settings, context)


def lease_held(settings: ClusterSettings, context: FlowContext) -> str:
    """Return who holds Karpenter's Lease, or held it within LEASE_MARGIN_S; empty if nobody. Raises ClusterError."""
    namespace, _, name = settings.karpenter_lease.partition("/")
    lease = context.cluster.lease(namespace, name)
    try:
        held = lease is not None and lease.is_fresh(context.clock.now(), LEASE_MARGIN_S)
    except ValueError as error:
        return f"the lease {settings.karpenter_lease} cannot be read: {error}"
    holder = lease.spec.holder_identity if lease is not None else ""
    return f"Karpenter holds the lease {settings.karpenter_lease}: {holder or 'nobody'}" if held else ""


def _version_of(item: RawObject) -> tuple[str, str]:
    metadata = item.get("metadata")
    about = metadata if isinstance(metadata, dict) else {}
    return str(about.get("uid", "")), str(about.get("resourceVersion", ""))
