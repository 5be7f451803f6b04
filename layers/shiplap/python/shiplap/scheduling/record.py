"""One recorded decision, so that it can be replayed and explained later: a snapshot and the plan made of it."""

from __future__ import annotations

import hashlib
import zlib
from datetime import UTC, datetime

import msgspec

from shiplap.errors import InvalidInput
from shiplap.scheduling.plan import Plan
from shiplap.scheduling.snapshot import Snapshot


class Record(msgspec.Struct, frozen=True):
    """What was looked at and what was concluded."""

    snapshot: Snapshot
    plan: Plan


_DECODER = msgspec.msgpack.Decoder(Record)


def encode(record: Record) -> bytes:
    """MessagePack, zlib-compressed; equal records give equal bytes."""
    return zlib.compress(msgspec.msgpack.encode(record, order="deterministic"), level=3)


def decode(document: bytes, source: str = "record") -> Record:
    """The inverse of `encode`. Raises InvalidInput, which names `source`."""
    try:
        return _DECODER.decode(zlib.decompress(document))
    except (zlib.error, msgspec.DecodeError) as error:
        raise InvalidInput(source, f"not a recorded decision: {error}") from error


def record_id(record: Record, document: bytes) -> str:
    """`<cluster>/<date>/<time>-<epoch>-<digest>` in UTC, from the record alone: the same decision has the same id."""
    moment = datetime.fromtimestamp(record.snapshot.now, UTC)
    digest = hashlib.sha256(document).hexdigest()[:12]
    return f"{record.snapshot.cluster}/{moment:%Y-%m-%d}/{moment:%H%M%S}-{record.snapshot.epoch}-{digest}"
