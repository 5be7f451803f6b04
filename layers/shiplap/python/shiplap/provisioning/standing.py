"""The bound pods of a large cluster, from the compact snapshot in the bucket and the changes since, without a list.

Only bound pods come from there. Pending pods, nodes, DaemonSets, volumes and PodDisruptionBudgets are always listed
fresh, the pods of a node that is emptied or about to be chosen for it as well. So what is out of date here can put a
pod where it does not fit, or launch a node too many or too late: the next minute's decision mends both.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from shiplap.errors import ClusterError, InvalidInput, ResourceVersionGone, StoreError
from shiplap.kubernetes.compact import pods_of
from shiplap.kubernetes.lean import lean
from shiplap.kubernetes.objects import Pod
from shiplap.ports import WatchEvent
from shiplap.provisioning.world import World

_LOG = logging.getLogger(__name__)

FEWEST_NODES = 30
"""A cluster of fewer nodes has few pages of pods: to list them is quicker than to catch up."""

OLDEST_S = 600.0
"""A snapshot that is older was left behind by its keeper, in seconds."""

_CATCH_UP_S = 1.0
"""How long changes are waited for where none says that there are no more, in seconds; API servers know no less."""

_OWN_S = 30.0
"""For how long what was caught up before is gone on from, in seconds."""


class StandingPods:
    """What one invocation knows of a cluster's bound pods: loaded once, caught up at each look (`ports.KnownPods`)."""

    def __init__(self, cluster: str, world: World) -> None:
        self._cluster, self._world = cluster, world
        self._pods: dict[str, Pod] = {}
        self._version = ""
        self._seen_at = 0.0

    def __call__(self, nodes: int, version: str) -> Sequence[Pod] | None:
        """The bound pods, lean, at least as of `version` where the API server shows so; None if they must be listed.

        Whatever goes wrong with the snapshot is logged and counted, and means a list.
        """
        if nodes < FEWEST_NODES or self._world.snapshots is None:
            return None
        known = self._caught_up(version) or (self._load() and self._caught_up(version))
        if not known:
            self._version = ""
            return None
        return tuple(self._pods.values())

    def _load(self) -> bool:
        """Begin from the snapshot in the bucket; whether there is one that serves."""
        about = {"cluster": self._cluster}
        self._version = ""
        snapshots = self._world.snapshots
        try:
            document = snapshots.load(self._cluster) if snapshots is not None else None
            if document is None:
                return False
            standing, pods = pods_of(document)
        except (StoreError, InvalidInput) as error:
            self._world.meter.count("SnapshotsNotRead")
            _LOG.warning("snapshot not read, pods are listed: %s", error, extra=about)
            return False
        age = self._world.clock.now() - standing.taken_at
        if standing.cluster != self._cluster or not standing.complete:
            return False
        if age > OLDEST_S:
            _LOG.info("snapshot is %d s old, pods are listed", age, extra=about)
            return False
        self._pods = {pod.metadata.uid: pod for pod in pods}
        self._version, self._seen_at = standing.version, self._world.clock.now()
        return True

    def _caught_up(self, version: str) -> bool:
        """Apply what has changed since; whether there was something to go on from."""
        if not self._version or self._world.clock.now() - self._seen_at > _OWN_S:
            return False
        try:
            for event in self._world.cluster.watch("bound", self._version, _CATCH_UP_S):
                self._apply(event)
                if _reached(event.resource_version, version):
                    break
        except ResourceVersionGone as error:
            _LOG.info("snapshot is too old to catch up: %s", error, extra={"cluster": self._cluster})
            return False
        except ClusterError as error:
            self._world.meter.count("SnapshotsNotCaughtUp")
            _LOG.warning("not caught up with the snapshot: %s", error, extra={"cluster": self._cluster})
            return False
        self._seen_at = self._world.clock.now()
        return True

    def _apply(self, event: WatchEvent) -> None:
        self._version = event.resource_version
        pod = event.object
        if event.type == "BOOKMARK" or not isinstance(pod, Pod):
            return
        if event.type == "DELETED":
            self._pods.pop(pod.metadata.uid, None)
        else:
            self._pods[pod.metadata.uid] = lean(pod)


def _reached(version: str, wanted: str) -> bool:
    """Whether a version is no older than another; the API promises an order only where both are numbers."""
    return version.isdecimal() and wanted.isdecimal() and int(version) >= int(wanted)
