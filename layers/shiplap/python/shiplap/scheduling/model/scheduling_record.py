"""One recorded decision, so that it can be replayed and explained later: a snapshot and the plan made of it."""

from __future__ import annotations

import hashlib
import zlib
from datetime import UTC, datetime
from typing import Any

import msgspec

from shiplap import __version__
from shiplap.errors import InvalidInput
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.manifests.stored_form import StoredForm, fields_of, with_types
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot


class SchedulingRecord(msgspec.Struct, frozen=True):
    """What was looked at and what was concluded."""

    snapshot: Snapshot
    plan: Plan


_CLAIMS = StoredForm(NodeClaim)

RECORDED_SNAPSHOT = with_types(Snapshot, {"claims": tuple[_CLAIMS.flat_type, ...]})  # type: ignore[name-defined]
"""A snapshot as records of all releases hold it: with its claims in their flat form."""

_RECORD = with_types(SchedulingRecord, {"snapshot": RECORDED_SNAPSHOT})
_DECODER = msgspec.msgpack.Decoder(_RECORD)


def recorded_snapshot(snapshot: Snapshot) -> msgspec.Struct:
    """A snapshot as it is recorded."""
    return RECORDED_SNAPSHOT(**fields_of(snapshot) | {"claims": tuple(map(_CLAIMS.flat, snapshot.claims))})


def snapshot_of(recorded: Any) -> Snapshot:
    """The inverse of `recorded_snapshot`."""
    return Snapshot(**fields_of(recorded) | {"claims": tuple(map(_CLAIMS.nested, recorded.claims))})


def encode(record: SchedulingRecord) -> bytes:
    """MessagePack, zlib-compressed; equal records give equal bytes."""
    return packed({"snapshot": recorded_snapshot(record.snapshot), "plan": record.plan})


def packed(parts: dict[str, Any]) -> bytes:
    """Any record as it is stored: `version` is Shiplap's own, of who decided."""
    written = {**parts, "version": __version__}
    return zlib.compress(msgspec.msgpack.encode(written, order="deterministic"), level=3)


def unpacked(plain: bytes) -> SchedulingRecord:
    """The record in what `packed` compressed. Raises msgspec.DecodeError."""
    read: Any = _DECODER.decode(plain)
    return SchedulingRecord(snapshot_of(read.snapshot), read.plan)


def decode(document: bytes, source: str = "record") -> SchedulingRecord:
    """The inverse of `encode`. Raises InvalidInput, which names `source`."""
    try:
        return unpacked(zlib.decompress(document))
    except (zlib.error, msgspec.DecodeError) as error:
        raise InvalidInput(source, f"not a recorded decision: {error}") from error


def record_id(record: SchedulingRecord, document: bytes) -> str:
    """`<cluster>/<date>/<time>-<epoch>-<digest>` in UTC, from the record alone: the same decision has the same id."""
    return id_of(record.snapshot, document)


def id_of(snapshot: Snapshot, document: bytes, mark: str = "") -> str:
    """As `record_id`, for any kind of decision; a `mark` before the digest tells kinds apart."""
    moment = datetime.fromtimestamp(snapshot.now, UTC)
    digest = hashlib.sha256(document).hexdigest()[:12]
    return f"{snapshot.cluster}/{moment:%Y-%m-%d}/{moment:%H%M%S}-{snapshot.epoch}-{mark}{digest}"


def written_at(name: str) -> float:
    """Epoch seconds, whole, of a record's id. Raises ValueError for what is none."""
    _, date, rest = name.rsplit("/", 2)
    return datetime.strptime(f"{date} {rest[:6]}", "%Y-%m-%d %H%M%S").replace(tzinfo=UTC).timestamp()
