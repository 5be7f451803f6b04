"""The ports to stores beside table `state`: learned capacity, catalogue, statuses, memory, recorded decisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from shiplap.disruption.commands import Decision
from shiplap.disruption.decision_memory import DecisionMemory
from shiplap.disruption.disruption_snapshot import DisruptionSnapshot
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.instances.catalog.type_catalog import LearnedCapacity, Observation
from shiplap.instances.readiness.nodeclass_status import DryRuns, InstallStatus
from shiplap.manifests.live.live_manifests import LiveManifests
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot

PILOT_LEASE_S = 15 * 60
"""Seconds after which the right to explore an unverified estimate lapses if it is not renewed."""


class KnownCapacity(Protocol):
    """The part of table `capacity` that decisions read."""

    def learned(self, amis: Sequence[str]) -> tuple[LearnedCapacity, ...]:
        """Read all entries of these AMIs, consistently."""
        ...

    def pilots(self, amis: Sequence[str], now: float) -> frozenset[str]:
        """Return keys `ami/instance type#kubelet hash` that are being explored."""
        ...


class CapacityStore(KnownCapacity, Protocol):
    """Table `capacity`: learned capacity, shared by all clusters of the account."""

    def all(self) -> tuple[LearnedCapacity, ...]: ...

    def observe(self, observation: Observation) -> LearnedCapacity:
        """Add an observation; concurrent writes are merged."""
        ...

    def merge(self, entry: LearnedCapacity) -> LearnedCapacity:
        """Add all content of an exported entry, with its smallest amounts; writes nothing if all is known."""
        ...

    def forget(self, ami: str, instance_type: str = "", kubelet_hash: str = "") -> int:
        """Remove entries; returns how many."""
        ...

    def acquire_pilot(self, ami: str, instance_type: str, kubelet_hash: str, holder: str, now: float) -> bool:
        """Acquire the right to launch the one node that relies on an unverified estimate; False if another has it.

        The holder may acquire it again. A lease lapses after 15 minutes.
        """
        ...

    def release_pilot(self, ami: str, instance_type: str, kubelet_hash: str, holder: str) -> None: ...


class CatalogStore(Protocol):
    """The instance-type catalogue in the bucket."""

    def load(self) -> Catalog:
        """Raises StoreError when there is none."""
        ...

    def save(self, catalog: Catalog) -> None: ...


class StatusStore(Protocol):
    """The status of the clusters' EC2NodeClasses and NodePools, in the bucket."""

    def load(self) -> InstallStatus:
        """Empty before the first inspection. Raises StoreError."""
        ...

    def save(self, status: InstallStatus) -> None:
        """Raises StoreError."""
        ...


class ManifestStore(Protocol):
    """The manifests of clusters as last read from their API servers, in the bucket.

    Functions without access to the API server use them.
    """

    def load(self, cluster: str) -> LiveManifests:
        """Empty if absent or unreadable: the cluster has them. Raises StoreError."""
        ...

    def save(self, cluster: str, manifests: LiveManifests) -> None:
        """Raises StoreError."""
        ...


class DryRunStore(Protocol):
    """EC2's answers to dry runs of launches, by cluster, in the bucket."""

    def load(self, cluster: str) -> DryRuns:
        """Empty if absent or unreadable: the dry runs are repeated then. Raises StoreError."""
        ...

    def save(self, cluster: str, rehearsals: DryRuns) -> None:
        """Raises StoreError."""
        ...


class MemoryStore(Protocol):
    """The disrupt function's memory of each cluster; no other function writes it."""

    def load(self, cluster: str) -> DecisionMemory:
        """Empty if absent or unreadable: waits start again then. Raises StoreError."""
        ...

    def save(self, cluster: str, memory: DecisionMemory) -> None:
        """Raises StoreError."""
        ...


class SnapshotStore(Protocol):
    """The compact snapshot of each cluster's bound pods (`kubernetes.compact_pods`), in the bucket.

    The watch function keeps it. `kept_since` identifies the keeper, so that a replaced keeper stops.
    """

    def load(self, cluster: str) -> bytes | None:
        """Read the last document; None if there is none. Raises StoreError."""
        ...

    def save(self, cluster: str, document: bytes, kept_since: float) -> None:
        """Replace the document. `kept_since` is when its keeper began, in epoch seconds. Raises StoreError."""
        ...

    def kept_since(self, cluster: str) -> float:
        """Return when the last document's keeper began; 0 if there is none. Raises StoreError."""
        ...


class CatalogSource(Protocol):
    """Makes the catalogue of EC2's types, offerings and spot prices and of the Pricing API."""

    def fetch(self, previous: Catalog | None) -> Catalog:
        """Fetch a catalogue; unavailable prices are taken from `previous`. Raises AwsThrottled, AwsError."""
        ...


class FlightRecorder(Protocol):
    def record(self, snapshot: Snapshot, plan: Plan) -> str:
        """Store a decision; returns its record id. Equal decisions have one record."""
        ...

    def record_disruption(self, snapshot: DisruptionSnapshot, decision: Decision) -> str:
        """As `record`, for a decision that begins commands."""
        ...


class FlightRecords(Protocol):
    """Reads recorded decisions."""

    def ids(self, cluster: str, first_at: float, last_at: float) -> tuple[str, ...]:
        """List ids of a cluster's records from `first_at` to `last_at` inclusive, oldest first. Raises StoreError."""
        ...

    def document(self, record_id: str) -> bytes:
        """Read a record, whole. Raises StoreError if there is none of this id."""
        ...

    def stored(self, record_id: str) -> bytes:
        """Read a record as it is stored, with references in the place of chunks: its decision is whole.

        Raises StoreError if there is none of this id.
        """
        ...
