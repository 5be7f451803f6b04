"""The inspections of all clusters in one invocation: each has a share of the time, and findings are stored soon."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import inf

from shiplap.flows import claim_events, cluster_metrics
from shiplap.flows.catalog.inspect import due_classes, inspect, is_silent, waits_since
from shiplap.flows.context import FlowContext
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.instances.readiness.nodeclass_status import ClusterStatus, InstallStatus, is_news
from shiplap.ports import Clock, StatusStore
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)

STORE_S = 10.0
"""What was found is stored so many seconds later at the latest. Stored after each cluster, it would cost 0.05 USD a
month and cluster.
"""

SILENT_CLUSTERS = 2
"""So many clusters without an answer show that their Region does not answer. One alone may have a slow selector."""


def inspect_all(
    contexts: Sequence[tuple[ClusterSettings, FlowContext]],
    catalogs: Mapping[str, Catalog],
    store: StatusStore,
    *,
    until: float = inf,
) -> InstallStatus:
    """Look at the EC2NodeClasses of every cluster whose Region has a catalogue, store what is found, and tell of news.

    Clusters come in the order in which they have waited. A cluster is left once AWS does not answer, and a Region once
    it does not answer for SILENT_CLUSTERS of them. What is left keeps its status and is first the next time.

    Args:
        contexts: all clusters of the install, with their ports.
        catalogs: by Region.
        store: keeps what is found. The status of clusters that are not inspected stays, that of removed ones goes.
        until: no further inspection begins then, epoch seconds.

    Raises:
        StoreError: the status could not be read or stored.
    """
    known = {status.cluster: status for status in store.load().clusters}
    served = [(settings, context) for settings, context in contexts if settings.region in catalogs]
    served.sort(key=lambda item: (waits_since(item[0], known.get(item[0].name)), item[0].name))
    for settings, context in served:
        cluster_metrics.measure_catalog(catalogs[settings.region], context.clock.now(), context.meter)
    found, silent = _Findings(store, {settings.name: context for settings, context in contexts}), Counter[str]()
    for place, (settings, context) in enumerate(served):
        now, status = context.clock.now(), known.get(settings.name)
        if silent[settings.region] < SILENT_CLUSTERS and not (place and now >= until):
            ends_at = now + (until - now) / (len(served) - place)
            for newer in _inspections(settings, catalogs[settings.region], context, status, ends_at):
                found.add(newer, now, context.clock)
                status = newer
            silent[settings.region] += _fell_silent(status, now)
        if left := due_classes(settings, status, now):
            context.meter.count("NodeClassesNotInspected", len(left))
            about = {"cluster": settings.name, "region": settings.region}
            _LOG.warning("%d EC2NodeClasses are inspected the next time", len(left), extra=about)
    return found.write()


def _inspections(
    settings: ClusterSettings, catalog: Catalog, context: FlowContext, status: ClusterStatus | None, ends_at: float
) -> Iterator[ClusterStatus]:
    """The status of a cluster every STORE_S seconds, until all is inspected, time is up, or AWS does not answer.

    What one cluster's manifests bring down must not stop the others.
    """
    since = context.clock.now()
    while True:
        until = min(ends_at, context.clock.now() + STORE_S)
        try:
            status = inspect(settings, catalog, context, before=status, since=since, until=until)
        except Exception as error:  # noqa: BLE001 - see above; a bug is logged with its traceback
            context.meter.count("UnexpectedErrors")
            _LOG.exception("an inspection broke down", extra={"cluster": settings.name, "error": type(error).__name__})
            return
        yield status
        is_over = not due_classes(settings, status, since) or context.clock.now() >= ends_at
        if is_over or _fell_silent(status, since):
            return


def _fell_silent(status: ClusterStatus | None, since: float) -> bool:
    """True if AWS has left an EC2NodeClass without an answer since a moment."""
    classes = status.node_classes if status is not None else ()
    return any(is_silent(item) and item.checked_at >= since for item in classes)


class _Findings:
    """Statuses that were found, and are stored together; then the functions are told which clusters have news.

    The stored status is read again each time: another invocation may have inspected other clusters.
    """

    def __init__(self, store: StatusStore, contexts: Mapping[str, FlowContext]) -> None:
        self._store, self._contexts = store, contexts
        self._unstored: dict[str, ClusterStatus] = {}
        self._due_at = inf

    def add(self, status: ClusterStatus, began_at: float, clock: Clock) -> None:
        """Keep the status of a cluster whose inspection began at a moment; store all if due. Raises StoreError."""
        self._unstored[status.cluster] = status
        self._due_at = min(self._due_at, began_at + STORE_S)
        if clock.now() >= self._due_at:
            self.write()

    def write(self) -> InstallStatus:
        """Store what is not stored yet; returns the status of all clusters. Raises StoreError."""
        stored = self._store.load()
        if not self._unstored:
            return stored
        before = {item.cluster: item for item in stored.clusters if item.cluster in self._contexts}
        kept = before | self._unstored
        status = InstallStatus(tuple(kept[name] for name in sorted(kept)))
        self._store.save(status)
        for name in sorted(name for name, found in self._unstored.items() if is_news(found, before.get(name))):
            context = self._contexts[name]
            context.publish(claim_events.inspected(name, context.clock.now()))
        self._unstored, self._due_at = {}, inf
        return status
