"""Floor 3: what the flows need from the world, as Protocols.

Each port has an adapter (floor 4) and an in-memory twin (`shiplap.twins`), held to one contract test-suite under
tests/integration/contracts. Adapters translate; they decide nothing. All of them raise only `shiplap.errors`.
"""

from __future__ import annotations

from shiplap.ports.cluster import ClusterApi, WatchEvent
from shiplap.ports.compute import (
    Ailment,
    Compute,
    FleetOverride,
    FleetRequest,
    FleetResult,
    HealthSource,
    Instance,
    OfferingFailure,
)
from shiplap.ports.signals import (
    INSTALL_DIMENSION,
    LONGEST_DELAY_S,
    METRICS_NAMESPACE,
    BusEvent,
    Clock,
    DeadLetters,
    EventBus,
    Meter,
    Timers,
)
from shiplap.ports.state import (
    ADDRESSES_S,
    COMMIT_BYTES,
    COMMIT_GROUP,
    MISSED_FOR_S,
    DecisionState,
    JoinLog,
    Move,
    StateStore,
    Taken,
    UnavailableOffering,
    check_together,
    may_take,
    taken_now,
    total_addresses,
)
from shiplap.ports.stores import (
    PILOT_LEASE_S,
    CapacityStore,
    CatalogSource,
    CatalogStore,
    FlightRecorder,
    MemoryStore,
    StatusStore,
)

__all__ = [
    "ADDRESSES_S",
    "COMMIT_BYTES",
    "COMMIT_GROUP",
    "INSTALL_DIMENSION",
    "LONGEST_DELAY_S",
    "METRICS_NAMESPACE",
    "MISSED_FOR_S",
    "PILOT_LEASE_S",
    "Ailment",
    "BusEvent",
    "CapacityStore",
    "CatalogSource",
    "CatalogStore",
    "Clock",
    "ClusterApi",
    "Compute",
    "DeadLetters",
    "DecisionState",
    "EventBus",
    "FleetOverride",
    "FleetRequest",
    "FleetResult",
    "FlightRecorder",
    "HealthSource",
    "Instance",
    "JoinLog",
    "MemoryStore",
    "Meter",
    "Move",
    "OfferingFailure",
    "StateStore",
    "StatusStore",
    "Taken",
    "Timers",
    "UnavailableOffering",
    "WatchEvent",
    "check_together",
    "may_take",
    "taken_now",
    "total_addresses",
]
