"""The contents of the bucket in memory: the instance-type catalogue and the recorded decisions."""

from __future__ import annotations

import msgspec

from shiplap.disruption import record as disruptions
from shiplap.disruption.commands import Decision
from shiplap.disruption.decision_memory import DecisionMemory
from shiplap.disruption.disruption_snapshot import DisruptionSnapshot
from shiplap.disruption.record import DisruptionRecord
from shiplap.errors import StoreError
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.instances.readiness.nodeclass_status import DryRuns, InstallStatus
from shiplap.scheduling.model import scheduling_record as records
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.scheduling_record import SchedulingRecord
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap_lab.fakes.faults import Faults


class FakeCatalog:
    """A CatalogStore."""

    def __init__(self, catalog: Catalog | None = None, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self._catalog = catalog

    def load(self) -> Catalog:
        with self.faults.effect("catalog.load"):
            if self._catalog is None:
                raise StoreError("there is no catalogue yet")
            return self._catalog

    def save(self, catalog: Catalog) -> None:
        with self.faults.effect("catalog.save"):
            self._catalog = catalog


class FakeStatus:
    """A StatusStore."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self._status = InstallStatus()

    def load(self) -> InstallStatus:
        with self.faults.effect("status.load"):
            return self._status

    def save(self, status: InstallStatus) -> None:
        with self.faults.effect("status.save"):
            self._status = status


class FakeDryRuns:
    """A DryRunStore."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self._kept: dict[str, DryRuns] = {}

    def load(self, cluster: str) -> DryRuns:
        with self.faults.effect("dry_runs.load"):
            return self._kept.get(cluster, DryRuns())

    def save(self, cluster: str, rehearsals: DryRuns) -> None:
        with self.faults.effect("dry_runs.save"):
            self._kept[cluster] = rehearsals


class FakeMemory:
    """A MemoryStore that keeps what it was given, encoded, by cluster."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self._documents: dict[str, bytes] = {}

    def load(self, cluster: str) -> DecisionMemory:
        with self.faults.effect("memory.load"):
            document = self._documents.get(cluster)
            return DecisionMemory() if document is None else msgspec.msgpack.decode(document, type=DecisionMemory)

    def save(self, cluster: str, memory: DecisionMemory) -> None:
        document = msgspec.msgpack.encode(memory)
        with self.faults.effect("memory.save"):
            self._documents[cluster] = document


class FakeSnapshots:
    """A SnapshotStore."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self.documents: dict[str, tuple[bytes, float]] = {}

    def load(self, cluster: str) -> bytes | None:
        with self.faults.effect("snapshots.load"):
            return self.documents.get(cluster, (None, 0.0))[0]

    def save(self, cluster: str, document: bytes, kept_since: float) -> None:
        with self.faults.effect("snapshots.save"):
            self.documents[cluster] = (document, kept_since)

    def kept_since(self, cluster: str) -> float:
        with self.faults.effect("snapshots.kept_since"):
            return self.documents.get(cluster, (b"", 0.0))[1]


class FakeRecorder:
    """A FlightRecorder, and FlightRecords, that keep what they were given, encoded, by record id."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self.records: dict[str, bytes] = {}

    def record(self, snapshot: Snapshot, plan: Plan) -> str:
        record = SchedulingRecord(snapshot, plan)
        document = records.encode(record)
        return self._keep(records.record_id(record, document), document)

    def record_disruption(self, snapshot: DisruptionSnapshot, decision: Decision) -> str:
        record = DisruptionRecord(snapshot, decision)
        document = disruptions.encode(record)
        return self._keep(disruptions.record_id(record, document), document)

    def ids(self, cluster: str, first_at: float, last_at: float) -> tuple[str, ...]:
        """By the time in the id."""
        of_cluster = sorted(name for name in self.records if name.rsplit("/", 2)[0] == cluster)
        return tuple(name for name in of_cluster if int(first_at) <= records.written_at(name) <= last_at)

    def document(self, record_id: str) -> bytes:
        if record_id not in self.records:
            raise StoreError(f"no decision is recorded under {record_id!r}")
        return self.records[record_id]

    def replay(self, record_id: str) -> SchedulingRecord:
        """A decision recorded before. Raises StoreError when there is none of this id."""
        return records.decode(self.document(record_id), record_id)

    def _keep(self, name: str, document: bytes) -> str:
        with self.faults.effect("recorder.record"):
            self.records[name] = document
        return name
