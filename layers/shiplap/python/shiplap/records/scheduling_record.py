"""One recorded decision, so that it can be replayed and explained later: a snapshot and the plan made of it."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from typing import Any

import msgspec
from msgspec.structs import fields

from shiplap import __version__
from shiplap.disruption.disruption_snapshot import DisruptionInput
from shiplap.errors import InvalidInput
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.manifests.stored_form import StoredForm, fields_of, with_fields, with_types
from shiplap.policies.registry import planning_inputs
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import PolicyInput, Snapshot


class SchedulingRecord(msgspec.Struct, frozen=True):
    """The snapshot that a scheduling decision looked at, and the plan that it made."""

    snapshot: Snapshot
    plan: Plan


_CLAIMS = StoredForm(NodeClaim)


def types_of_inputs(kinds: Iterable[type[PolicyInput] | type[DisruptionInput]]) -> dict[str, Any]:
    """Return the types of what policies put into records, by the names of the fields."""
    return {kind.recorded_as: fields(kind)[0].type for kind in kinds}


def recorded_inputs(inputs: Iterable[PolicyInput | DisruptionInput]) -> dict[str, Any]:
    """Return what policies put into a record, by the names of the fields."""
    return {item.recorded_as: item.recorded for item in inputs}


RECORDED_SNAPSHOT = with_fields(
    Snapshot,
    "policies",
    types_of_inputs(planning_inputs()),
    {"claims": tuple[_CLAIMS.flat_type, ...]},  # type: ignore[name-defined]
)
"""A snapshot as records of all releases hold it: with its claims in their flat form, and a field for each policy."""


@cache
def _decoder() -> msgspec.msgpack.Decoder[Any]:
    """Made when it is first needed: functions record and never read, and it takes a twentieth of their cold start."""
    return msgspec.msgpack.Decoder(with_types(SchedulingRecord, {"snapshot": RECORDED_SNAPSHOT}))


def recorded_snapshot(snapshot: Snapshot) -> msgspec.Struct:
    """A snapshot as it is recorded."""
    values = fields_of(snapshot) | recorded_inputs(snapshot.policies)
    del values["policies"]
    return RECORDED_SNAPSHOT(**values | {"claims": tuple(map(_CLAIMS.flat, snapshot.claims))})


def snapshot_of(recorded: Any) -> Snapshot:
    """The inverse of `recorded_snapshot`."""
    values = fields_of(recorded)
    found = [(kind, values.pop(kind.recorded_as)) for kind in planning_inputs()]
    values |= {"claims": tuple(map(_CLAIMS.nested, recorded.claims))}
    return Snapshot(**values).with_policies(kind(known) for kind, known in found if known is not None)


def encode(record: SchedulingRecord) -> bytes:
    """MessagePack, zlib-compressed; equal records give equal bytes."""
    return packed({"snapshot": recorded_snapshot(record.snapshot), "plan": record.plan})


def packed(parts: dict[str, Any]) -> bytes:
    """Any record as it is stored: `version` is Shiplap's own, of who decided."""
    written = {**parts, "version": __version__}
    return zlib.compress(msgspec.msgpack.encode(written, order="deterministic"), level=3)


def unpacked(plain: bytes) -> SchedulingRecord:
    """The record in what `packed` compressed. Raises msgspec.DecodeError."""
    read = _decoder().decode(plain)
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
    return f"{snapshot.cluster}/{day_of(snapshot.now)}/{moment:%H%M%S}-{snapshot.epoch}-{mark}{digest}"


def day_of(at: float) -> str:
    """The day of epoch seconds in UTC, as ids have it."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}"


def written_at(name: str) -> float:
    """Epoch seconds, whole, of a record's id. Raises ValueError for what is none."""
    _, date, rest = name.rsplit("/", 2)
    return datetime.strptime(f"{date} {rest[:6]}", "%Y-%m-%d %H%M%S").replace(tzinfo=UTC).timestamp()
