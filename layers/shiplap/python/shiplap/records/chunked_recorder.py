"""Records decisions in a store of documents: chunks first, then the record that names them.

A function that dies in between leaves chunks that nobody names, and no record that names a missing chunk. A chunk is
named by the day of its record and expires a day after it, so no record outlives its chunks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from shiplap.disruption.commands import Decision
from shiplap.disruption.disruption_snapshot import DisruptionSnapshot
from shiplap.records import scheduling_record as records
from shiplap.records.record_chunks import LEAST_BYTES, ChunkMemory, chunked, whole
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot

_CHUNKS_KEPT = 8
"""Chunks that were read and are kept: successive records name the same."""


class ChunkedRecorder(ABC):
    """A FlightRecorder, and the part of FlightRecords that reads one record.

    Parts of fewer than `least_bytes` bytes stay in their record.
    """

    def __init__(self) -> None:
        self.least_bytes = LEAST_BYTES
        self._memory = ChunkMemory()
        self._read: dict[str, bytes] = {}

    @abstractmethod
    def _write(self, record_id: str, document: bytes) -> None:
        """Store a record. Raises StoreError."""

    @abstractmethod
    def _write_chunk(self, name: str, document: bytes) -> None:
        """Store a chunk unless it is there. Raises StoreError."""

    @abstractmethod
    def _read_chunk(self, name: str) -> bytes:
        """Raises StoreError when there is none of this name."""

    @abstractmethod
    def stored(self, record_id: str) -> bytes:
        """Read a record as it is stored. Raises StoreError when there is none of this id."""

    def record(self, snapshot: Snapshot, plan: Plan) -> str:
        recorded = self._with_chunks(records.recorded_snapshot(snapshot), snapshot)
        return self._keep(snapshot, records.packed({"snapshot": recorded, "plan": plan}))

    def record_disruption(self, snapshot: DisruptionSnapshot, decision: Decision) -> str:
        from shiplap.records import disruption_record as disruptions  # noqa: PLC0415 - only `disrupt` decides so

        looked_at = self._with_chunks(records.recorded_snapshot(snapshot.scheduling), snapshot.scheduling)
        document = records.packed(disruptions.parts(snapshot, looked_at, decision))
        return self._keep(snapshot.scheduling, document, disruptions.MARK)

    def document(self, record_id: str) -> bytes:
        """Read a record, whole. Raises StoreError when there is none of this id, or a chunk of it is missing."""
        return self.whole(self.stored(record_id))

    def whole(self, document: bytes) -> bytes:
        """Return a record that was read as it is stored, whole. Raises StoreError."""
        return whole(document, self._chunk)

    def _with_chunks(self, recorded: Any, snapshot: Snapshot) -> Any:
        """The snapshot with references to chunks that are stored by now."""
        made = chunked(recorded, records.day_of(snapshot.now), self._memory, least_bytes=self.least_bytes)
        for chunk in made.chunks:
            self._write_chunk(chunk.name, chunk.document)
        self._memory = made.memory  # only now: what it remembers is stored
        return made.recorded

    def _keep(self, snapshot: Snapshot, document: bytes, mark: str = "") -> str:
        name = records.id_of(snapshot, document, mark)
        self._write(name, document)
        return name

    def _chunk(self, name: str) -> bytes:
        if name not in self._read:
            document = self._read_chunk(name)
            self._read = dict([*self._read.items(), (name, document)][-_CHUNKS_KEPT:])
        return self._read[name]
