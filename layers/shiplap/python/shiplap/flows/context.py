"""All ports that a flow may use, in one bundle. A flow that takes a FlowContext has effects; the others have none."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import cast

import msgspec

from shiplap.errors import ShiplapError
from shiplap.flows.optional.optional_calls import EVENTS, TIMERS, OptionalCalls, OptionalPart, Port, limited
from shiplap.flows.optional.policy_port import P, PolicyPort
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.ports import (
    BusEvent,
    CapacityStore,
    CatalogSource,
    CatalogStore,
    Clock,
    ClusterApi,
    Compute,
    DryRunStore,
    EventBus,
    FlightRecorder,
    HealthSource,
    JoinLog,
    ManifestStore,
    MemoryStore,
    Meter,
    SnapshotStore,
    StateStore,
    StatusStore,
    Timers,
)

_LOG = logging.getLogger(__name__)

TypesFor = Callable[[NodeClaim], Mapping[str, InstanceType]]
"""The instance types that are sold to a claim now, by name."""


class FlowContext(msgspec.Struct, frozen=True, kw_only=True):
    """The ports of one cluster's flows. A port that may be None is None where a function may not ask it."""

    clock: Clock

    cluster: ClusterApi
    """The Kubernetes API of the cluster."""

    compute: Compute
    """EC2: launches, instances, and the answers to the selectors of EC2NodeClasses."""

    state: StateStore
    """Claims, commands and the epoch."""

    capacity: CapacityStore
    """Learned capacity, and leases of nodes that explore an estimate."""

    catalog: CatalogStore
    """Instance types and prices of the Region."""

    bus: EventBus
    """Publishes events for users and other functions."""

    timers: Timers
    """Wakes the lifecycle function for a claim."""

    recorder: FlightRecorder
    """Keeps decisions for replay."""

    meter: Meter
    """Counts metrics."""

    source: CatalogSource | None = None
    """Refreshes the catalogue."""

    health: HealthSource | None = None
    """Finds sick instances, and zones that traffic was shifted away from."""

    joins: JoinLog | None = None
    """How nodes have joined."""

    status: StatusStore | None = None
    """The result of the last inspection of EC2NodeClasses."""

    dry_runs: DryRunStore | None = None
    """EC2's answers to dry-run launches."""

    snapshots: SnapshotStore | None = None
    """The bound pods of large clusters."""

    manifests: ManifestStore | None = None
    """The manifests that were last read from the cluster."""

    memory: MemoryStore | None = None
    """What disruption remembers of nodes between its decisions."""

    optional: OptionalCalls | None = None
    """Bounds calls that no decision needs; without it nothing is bounded."""

    policies: tuple[str, ...] = ()
    """Names of the optional features that are on, in the order of the registry."""

    policy_ports: Mapping[str, object] = {}
    """Ports of optional features, by the names of their `PolicyPort`."""

    def within(self, part: OptionalPart, port: Port) -> Port:
        """A port of this context, for calls that no decision waits for longer than the part may last."""
        return port if self.optional is None else self.optional.within(part, port, self.clock)

    def policy_port(self, key: PolicyPort[P], limit_s: float | None = None) -> P | None:
        """Return a port of an optional feature, its calls bounded; None where the feature is off.

        With `limit_s` each call may last so many seconds, however many the part has: for what is no decision's.
        """
        port = self.policy_ports.get(key.name)
        if port is None:
            return None
        known = cast("P", port)
        return self.within(key.part, known) if limit_s is None else limited(self.optional, known, limit_s)

    def publish(self, *events: BusEvent) -> None:
        """Publish, but go on when the bus refuses: events inform others, and the sweep makes up for a lost hint."""
        try:
            self.within(EVENTS, self.bus).publish(events)
        except ShiplapError as error:
            self.meter.count("EventsNotPublished", len(events))
            _LOG.warning("events not published: %s", error, extra={"events": [event.detail_type for event in events]})

    def set_timer(self, cluster: str, claim: str, step: str, delay_s: float) -> None:
        """Set a timer, but go on when that fails: the sweep finds overdue claims."""
        try:
            self.within(TIMERS, self.timers).remind(cluster, claim, step, max(0, int(delay_s)))
        except ShiplapError as error:
            self.meter.count("TimersNotSet")
            _LOG.warning("timer not set: %s", error, extra={"cluster": cluster, "claim": claim, "step": step})
