"""What is kept outside table `state`: learned capacity, the catalogue, statuses, memory, recorded decisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from shiplap.disruption.commands import Decision
from shiplap.disruption.decision_memory import DecisionMemory
from shiplap.disruption.disruption_snapshot import DisruptionSnapshot
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.instances.catalog.type_catalog import LearnedCapacity, Observation
from shiplap.instances.readiness.nodeclass_status import DryRuns, InstallStatus
from shiplap.manifests.live_manifests import LiveManifests
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot

PILOT_LEASE_S = 15 * 60
"""How long the right to explore an unverified estimate is held without a sign of life, in seconds."""


class KnownCapacity(Protocol):
    """What a decision reads of table `capacity`."""

    def learned(self, amis: Sequence[str]) -> tuple[LearnedCapacity, ...]:
        """Everything known about these AMIs; consistent."""
        ...

    def pilots(self, amis: Sequence[str], now: float) -> frozenset[str]:
        """`ami/instance type#kubelet hash` keys that are being explored."""
        ...


class CapacityStore(KnownCapacity, Protocol):
    """Table `capacity`: learned capacity, shared by all clusters of the account."""

    def all(self) -> tuple[LearnedCapacity, ...]: ...

    def observe(self, observation: Observation) -> LearnedCapacity:
        """Add an observation; concurrent observers lose nothing."""
        ...

    def merge(self, entry: LearnedCapacity) -> LearnedCapacity:
        """Add everything an exported entry holds, its smallest amounts included; nothing is written if all is known."""
        ...

    def forget(self, ami: str, instance_type: str = "", kubelet_hash: str = "") -> int:
        """Remove entries; returns how many."""
        ...

    def acquire_pilot(self, ami: str, instance_type: str, kubelet_hash: str, holder: str, now: float) -> bool:
        """Claim the right to launch the one node that relies on an unverified estimate; False if another holds it.

        Re-acquiring as the same holder succeeds. A lease lapses after 15 minutes.
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
    """What is known of the clusters' EC2NodeClasses and NodePools, in the bucket."""

    def load(self) -> InstallStatus:
        """Empty before the first inspection. Raises StoreError."""
        ...

    def save(self, status: InstallStatus) -> None:
        """Raises StoreError."""
        ...


class ManifestStore(Protocol):
    """The manifests of clusters as they were last read from their API servers, in the bucket.

    Functions that reach no API server decide on them.
    """

    def load(self, cluster: str) -> LiveManifests:
        """Empty when there is nothing, or nothing that can be read: the cluster has it. Raises StoreError."""
        ...

    def save(self, cluster: str, manifests: LiveManifests) -> None:
        """Raises StoreError."""
        ...


class DryRunStore(Protocol):
    """What EC2 said to launches that were only tried out, by cluster, in the bucket."""

    def load(self, cluster: str) -> DryRuns:
        """Empty when there is nothing, or nothing that can be read: then it is tried out again. Raises StoreError."""
        ...

    def save(self, cluster: str, rehearsals: DryRuns) -> None:
        """Raises StoreError."""
        ...


class MemoryStore(Protocol):
    """What the disrupt function remembers of each cluster, written by it alone."""

    def load(self, cluster: str) -> DecisionMemory:
        """Empty when there is nothing, or nothing that can be read: memory is only patience. Raises StoreError."""
        ...

    def save(self, cluster: str, memory: DecisionMemory) -> None:
        """Raises StoreError."""
        ...


class SnapshotStore(Protocol):
    """The compact snapshot of each cluster's bound pods (`kubernetes.compact_pods`), in the bucket.

    Its keeper is the watch function; who keeps it since when is told with it, so that one that has a successor stops.
    """

    def load(self, cluster: str) -> bytes | None:
        """The document last saved, as it is; None when there is none. Raises StoreError."""
        ...

    def save(self, cluster: str, document: bytes, kept_since: float) -> None:
        """Replace the document. `kept_since` is when its keeper began, epoch seconds. Raises StoreError."""
        ...

    def kept_since(self, cluster: str) -> float:
        """When the keeper of the document last saved began; 0 when there is none. Raises StoreError."""
        ...


class CatalogSource(Protocol):
    """Where the catalogue comes from: EC2's types and offerings, its spot prices, the Pricing API."""

    def fetch(self, previous: Catalog | None) -> Catalog:
        """A fresh catalogue; prices that cannot be had are kept from `previous`. Raises AwsThrottled, AwsError."""
        ...


class FlightRecorder(Protocol):
    def record(self, snapshot: Snapshot, plan: Plan) -> str:
        """Store a decision; returns its record id. The same decision recorded twice is one record."""
        ...

    def record_disruption(self, snapshot: DisruptionSnapshot, decision: Decision) -> str:
        """As `record`, of a decision that begins commands."""
        ...


class FlightRecords(Protocol):
    """The recorded decisions, for those who look back."""

    def ids(self, cluster: str, first_at: float, last_at: float) -> tuple[str, ...]:
        """Ids of a cluster's records between two epoch seconds, both included, oldest first. Raises StoreError."""
        ...

    def document(self, record_id: str) -> bytes:
        """A record as it was written. Raises StoreError when there is none of this id."""
        ...
