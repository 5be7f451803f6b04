"""One recorded decision, so that it can be replayed and explained later: a snapshot and the plan made of it."""

from __future__ import annotations

import hashlib
import zlib
from datetime import UTC, datetime

import msgspec

from shiplap import __version__
from shiplap.errors import InvalidInput
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot


class SchedulingRecord(msgspec.Struct, frozen=True):
    """What was looked at and what was concluded."""

    snapshot: Snapshot
    plan: Plan


class _Written(SchedulingRecord, frozen=True):
    """As it is stored: `version` is Shiplap's own, of who decided."""

    version: str = ""


_DECODER = msgspec.msgpack.Decoder(SchedulingRecord)


def encode(record: SchedulingRecord) -> bytes:
    """MessagePack, zlib-compressed; equal records give equal bytes."""
    return packed(_Written(record.snapshot, record.plan, __version__))


def packed(written: msgspec.Struct) -> bytes:
    """Any record as it is stored."""
    return zlib.compress(msgspec.msgpack.encode(written, order="deterministic"), level=3)


def decode(document: bytes, source: str = "record") -> SchedulingRecord:
    """The inverse of `encode`. Raises InvalidInput, which names `source`."""
    try:
        return _DECODER.decode(zlib.decompress(document))
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
