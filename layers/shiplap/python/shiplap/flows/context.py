"""All ports that a flow may use, in one bundle. A flow that takes a FlowContext has effects; the others have none."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import msgspec

from shiplap.errors import ShiplapError
from shiplap.flows.optional.optional_calls import EVENTS, TIMERS, OptionalCalls, OptionalPart, Port
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.ports import (
    BusEvent,
    CapacityStore,
    CatalogSource,
    CatalogStore,
    Clock,
    ClusterApi,
    CommitmentStore,
    Compute,
    DryRunStore,
    EventBus,
    FlightRecorder,
    HealthSource,
    JoinLog,
    ManifestStore,
    MemoryStore,
    Meter,
    SleepStore,
    SnapshotStore,
    SpotEvidenceStore,
    StateStore,
    StatusStore,
    Timers,
)

_LOG = logging.getLogger(__name__)

TypesFor = Callable[[NodeClaim], Mapping[str, InstanceType]]
"""The instance types that are sold to a claim now, by name."""


class FlowContext(msgspec.Struct, frozen=True, kw_only=True):
    """The ports of one cluster's flows.

    `source` refreshes the catalogue, `health` tells of sick instances and zones, `status` holds what the last
    inspection of EC2NodeClasses found, `dry_runs` what EC2 said to launches that were tried out, `joins` how nodes
    have joined, `snapshots` the pods of large clusters, `manifests` those last read from the cluster,
    `memory` what disruption remembers, `sleep` what is remembered of its sleep, `commitments` those of the account in
    the cluster's Region, `spot_evidence`
    what is known of spot where `spotRisk` is on; None where a function may not ask. `optional` bounds what no decision
    needs; without it nothing is bounded. `policies` names the optional features that are on.
    """

    clock: Clock
    cluster: ClusterApi
    compute: Compute
    state: StateStore
    capacity: CapacityStore
    catalog: CatalogStore
    bus: EventBus
    timers: Timers
    recorder: FlightRecorder
    meter: Meter
    source: CatalogSource | None = None
    health: HealthSource | None = None
    joins: JoinLog | None = None
    status: StatusStore | None = None
    dry_runs: DryRunStore | None = None
    snapshots: SnapshotStore | None = None
    manifests: ManifestStore | None = None
    memory: MemoryStore | None = None
    sleep: SleepStore | None = None
    commitments: CommitmentStore | None = None
    spot_evidence: SpotEvidenceStore | None = None
    optional: OptionalCalls | None = None
    policies: tuple[str, ...] = ()

    def within(self, part: OptionalPart, port: Port) -> Port:
        """A port of this context, for calls that no decision waits for longer than the part may last."""
        return port if self.optional is None else self.optional.within(part, port, self.clock)

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
