"""The bucket's contents and table `capacity` in memory, held to the same contracts as the adapters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from threading import Lock

import msgspec

from shiplap.disruption.decision_memory import DecisionMemory
from shiplap.errors import StoreError
from shiplap.instances.capacity.learned_capacity import merged_capacity
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.instances.catalog.type_catalog import LearnedCapacity, Observation, pilot_key
from shiplap.instances.readiness.nodeclass_status import DryRuns, InstallStatus
from shiplap.manifests.live.live_manifests import LiveManifests
from shiplap.ports import PILOT_LEASE_S
from shiplap.records import scheduling_record as records
from shiplap.records.chunked_recorder import ChunkedRecorder
from shiplap_lab.fakes.faults import Faults


class FakeCatalog:
    """A CatalogStore; `on_save` is called with each catalogue that is stored."""

    def __init__(self, catalog: Catalog | None = None, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self.on_save: list[Callable[[Catalog], object]] = []
        self._catalog = catalog

    def load(self) -> Catalog:
        with self.faults.effect("catalog.load"):
            if self._catalog is None:
                raise StoreError("there is no catalogue yet")
            return self._catalog

    def save(self, catalog: Catalog) -> None:
        with self.faults.effect("catalog.save"):
            self._catalog = catalog
            for listener in self.on_save:
                listener(catalog)


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


class FakeManifests:
    """A ManifestStore."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self._kept: dict[str, LiveManifests] = {}

    def load(self, cluster: str) -> LiveManifests:
        with self.faults.effect("manifests.load"):
            return self._kept.get(cluster, LiveManifests())

    def save(self, cluster: str, manifests: LiveManifests) -> None:
        with self.faults.effect("manifests.save"):
            self._kept[cluster] = manifests


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
    """A MemoryStore that keeps what it was given, encoded, by cluster. `changes` counts saves of something else."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self.changes = 0
        self._documents: dict[str, bytes] = {}

    def load(self, cluster: str) -> DecisionMemory:
        with self.faults.effect("memory.load"):
            document = self._documents.get(cluster)
            return DecisionMemory() if document is None else msgspec.msgpack.decode(document, type=DecisionMemory)

    def save(self, cluster: str, memory: DecisionMemory) -> None:
        document = msgspec.msgpack.encode(memory)
        with self.faults.effect("memory.save"):
            self.changes += self._documents.get(cluster) != document
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


class FakeRecorder(ChunkedRecorder):
    """A FlightRecorder, and FlightRecords, that keep what they were given as a bucket would: `records` by id, and
    `chunks` by name.
    """

    def __init__(self, faults: Faults | None = None) -> None:
        super().__init__()
        self.faults = faults or Faults()
        self.records: dict[str, bytes] = {}
        self.chunks: dict[str, bytes] = {}

    def ids(self, cluster: str, first_at: float, last_at: float) -> tuple[str, ...]:
        """By the time in the id."""
        of_cluster = sorted(name for name in self.records if name.rsplit("/", 2)[0] == cluster)
        return tuple(name for name in of_cluster if int(first_at) <= records.written_at(name) <= last_at)

    def stored(self, record_id: str) -> bytes:
        if record_id not in self.records:
            raise StoreError(f"no decision is recorded under {record_id!r}")
        return self.records[record_id]

    def _write(self, record_id: str, document: bytes) -> None:
        with self.faults.effect("recorder.record"):
            self.records[record_id] = document

    def _write_chunk(self, name: str, document: bytes) -> None:
        with self.faults.effect("recorder.chunk"):
            self.chunks.setdefault(name, document)

    def _read_chunk(self, name: str) -> bytes:
        if name not in self.chunks:
            raise StoreError(f"chunk {name} is gone, so a record that names it cannot be read")
        return self.chunks[name]


_DECODER = msgspec.json.Decoder(LearnedCapacity)
_Key = tuple[str, str, str]


def _stored(entry: LearnedCapacity) -> LearnedCapacity:
    """As it is read back: nothing survives here that would not survive in a table."""
    return _DECODER.decode(msgspec.json.encode(entry))


class FakeCapacity:
    """A CapacityStore; keys are (AMI, instance type, kubelet hash)."""

    def __init__(self, faults: Faults | None = None, *, learned: Iterable[LearnedCapacity] = ()) -> None:
        """`learned`: what is known from the start."""
        self.faults = faults or Faults()
        self._lock = Lock()
        self._learned = {(entry.ami, entry.instance_type, entry.kubelet_hash): _stored(entry) for entry in learned}
        self._pilots: dict[_Key, tuple[str, float]] = {}

    def learned(self, amis: Sequence[str]) -> tuple[LearnedCapacity, ...]:
        with self._effect("capacity.learned"):
            return tuple(entry for key, entry in sorted(self._learned.items()) if key[0] in amis)

    def all(self) -> tuple[LearnedCapacity, ...]:
        with self._effect("capacity.all"):
            return tuple(entry for _, entry in sorted(self._learned.items()))

    def observe(self, observation: Observation) -> LearnedCapacity:
        key = (observation.ami, observation.instance_type, observation.kubelet_hash)
        return self.merge(LearnedCapacity(*key, recent=(observation,)))

    def merge(self, entry: LearnedCapacity) -> LearnedCapacity:
        key = (entry.ami, entry.instance_type, entry.kubelet_hash)
        with self._effect("capacity.observe"):
            learned = merged_capacity(self._learned.get(key), entry)
            self._learned[key] = _stored(learned)
        return learned

    def forget(self, ami: str, instance_type: str = "", kubelet_hash: str = "") -> int:
        with self._effect("capacity.forget"):
            doomed = [
                key
                for key in self._learned
                if key[0] == ami and instance_type in ("", key[1]) and kubelet_hash in ("", key[2])
            ]
            for key in doomed:
                del self._learned[key]
        return len(doomed)

    def acquire_pilot(self, ami: str, instance_type: str, kubelet_hash: str, holder: str, now: float) -> bool:
        key = (ami, instance_type, kubelet_hash)
        with self._effect("capacity.acquire_pilot"):
            held_by, until = self._pilots.get(key, ("", 0.0))
            if until > now and held_by != holder:
                return False
            self._pilots[key] = (holder, now + PILOT_LEASE_S)
        return True

    def release_pilot(self, ami: str, instance_type: str, kubelet_hash: str, holder: str) -> None:
        key = (ami, instance_type, kubelet_hash)
        with self._effect("capacity.release_pilot"):
            if key in self._pilots and self._pilots[key][0] == holder:
                del self._pilots[key]

    def pilots(self, amis: Sequence[str], now: float) -> frozenset[str]:
        with self._effect("capacity.pilots"):
            return frozenset(
                pilot_key(*key) for key, (_, until) in self._pilots.items() if key[0] in amis and until > now
            )

    def _effect(self, name: str) -> AbstractContextManager[None]:
        return self.faults.locked_effect(name, self._lock)
