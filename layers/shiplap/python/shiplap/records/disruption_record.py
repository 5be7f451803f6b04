"""Recorded disruption decisions, and reading records of either kind and of any version.

This version may be unable to read the snapshot of a record that another version wrote. Its outline (time, cluster,
nodes) can be read in any case.

`headline` describes a decision in one line. It decodes the decision only and skips the snapshot, which holds a whole
cluster.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import msgspec

from shiplap import __version__
from shiplap.disruption.commands import Decision
from shiplap.disruption.decide import decide
from shiplap.disruption.disruption_snapshot import DisruptionSnapshot
from shiplap.errors import InvalidInput
from shiplap.manifests.stored_form import fields_of, with_fields, with_types
from shiplap.policies.registry import disruption_inputs
from shiplap.records import scheduling_record as scheduling
from shiplap.records.record_chunks import names_chunks
from shiplap.records.scheduling_record import SchedulingRecord, written_at
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.planner import plan

SCHEDULE, DISRUPT = "schedule", "disrupt"
MARK = "disrupt-"
"""What stands before the digest in the id of a decision to disrupt."""


class Headline(msgspec.Struct, frozen=True, omit_defaults=True):
    """A decision in a line: `at` epoch seconds; `kind` schedule, disrupt, interrupt or lifecycle.

    `record` is the id of its record; empty for what is only written into a claim.
    """

    at: float
    kind: str
    text: str
    record: str = ""


class _Lenient(msgspec.Struct, frozen=True, rename="camel"):
    """Base: the fields of a decision that a headline needs, under the names that all versions have used."""


class _Launch(_Lenient, frozen=True):
    price: float = 0.0


class _SpotRisk(_Lenient, frozen=True):
    listed: int = 0
    left_out: int = 0
    observed: bool = False


class _Claim(_Lenient, frozen=True):
    node_pool: str = ""
    launch: _Launch = _Launch()
    pods: tuple[msgspec.Raw, ...] = ()
    covered: float = 0.0
    spot_risk: _SpotRisk | None = None


class _Placement(_Lenient, frozen=True):
    pods: tuple[msgspec.Raw, ...] = ()


class _Plan(_Lenient, frozen=True):
    node_claims: tuple[_Claim, ...] = ()
    existing_nodes: tuple[_Placement, ...] = ()
    unschedulable: tuple[msgspec.Raw, ...] = ()


class _Command(_Lenient, frozen=True):
    reason: str = ""
    nodes: tuple[str, ...] = ()
    replacements: tuple[_Claim, ...] = ()
    savings_hourly: float = 0.0


class _Decision(_Lenient, frozen=True):
    commands: tuple[_Command, ...] = ()


class _Headline(msgspec.Struct, frozen=True):
    plan: _Plan | None = None
    decision: _Decision | None = None


_HEADLINE = msgspec.msgpack.Decoder(_Headline)


def is_disruption(record_id: str) -> bool:
    """True if an id is that of a decision to disrupt."""
    return f"-{MARK}" in record_id.rpartition("/")[2]


def headline(document: bytes, record_id: str) -> Headline:
    """A record in a line. The line says so if this version cannot read the record."""
    kind = DISRUPT if is_disruption(record_id) else SCHEDULE
    try:
        written = _HEADLINE.decode(zlib.decompress(document))
    except (zlib.error, msgspec.DecodeError):
        text = "this version cannot read it; `shiplap explain decision` shows what can be read"
    else:
        words = _disruption(written.decision) if written.decision is not None else _plan(written.plan or _Plan())
        text = "; ".join(words)
    return Headline(written_at(record_id), kind, text, record_id)


def _plan(plan: _Plan) -> Iterator[str]:
    if plan.node_claims:
        pods = sum(len(claim.pods) for claim in plan.node_claims)
        hourly = sum(claim.launch.price for claim in plan.node_claims)
        pools = ", ".join(sorted({claim.node_pool for claim in plan.node_claims}))
        nodes = _counted(len(plan.node_claims), "node")
        yield f"{_counted(pods, 'pod')} → {nodes}, {hourly:.2f} USD/h, {pools}"
    if covered := sum(claim.covered for claim in plan.node_claims):
        yield f"commitments pay {covered:.2f} USD/h"
    weighed = [claim.spot_risk for claim in plan.node_claims if claim.spot_risk is not None]
    if left_out := sum(risk.left_out for risk in weighed):
        verb = "would be left out" if weighed[0].observed else "left out"
        yield f"spot risk: {left_out} of {sum(risk.listed for risk in weighed)} offerings {verb}"
    placed = sum(len(place.pods) for place in plan.existing_nodes)
    if placed:
        yield f"{_counted(placed, 'pod')} on nodes that are there"
    if plan.unschedulable:
        yield f"{_counted(len(plan.unschedulable), 'pod')} without a place"
    if not (plan.node_claims or placed or plan.unschedulable):
        yield "nothing to launch"


def _disruption(decision: _Decision) -> Iterator[str]:
    for reason in dict.fromkeys(command.reason for command in decision.commands):
        commands = [command for command in decision.commands if command.reason == reason]
        nodes = sum(len(command.nodes) for command in commands)
        instead = sum(len(command.replacements) for command in commands)
        saved = sum(command.savings_hourly for command in commands)
        words = f"{reason}: {_counted(nodes, 'node')}" + (f" → {instead}" if instead else " removed")
        yield words + (f", saves {saved:.2f} USD/h" if saved > 0 else "")
    if not decision.commands:
        yield "nothing to disrupt"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


class DisruptionRecord(msgspec.Struct, frozen=True):
    """The snapshot and the decision, with the commands that began."""

    snapshot: DisruptionSnapshot
    decision: Decision


class OutlinedClaim(msgspec.Struct, frozen=True, rename="camel"):
    """A claim as any version writes it; price in USD per hour."""

    name: str = ""
    node_pool: str = ""
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    price: float = 0.0
    pods: int = 0


class Outline(msgspec.Struct, frozen=True, rename="camel"):
    """The part of a record that is readable in any version. `kind` is schedule or disrupt; `at` epoch seconds.

    `removed` names the nodes to remove.
    """

    kind: str
    cluster: str = ""
    at: float = 0.0
    epoch: int = 0
    pods: int = 0
    nodes: int = 0
    claims: tuple[OutlinedClaim, ...] = ()
    removed: tuple[str, ...] = ()
    unschedulable: int = 0


class Recorded(msgspec.Struct, frozen=True):
    """A record as found. `record` is None where this version cannot read it, and `problem` says why.

    `written` is the decision's own encoding in the record; `version` the version that decided, empty if unknown.
    `chunked` if parts of it are stored beside it.
    """

    outline: Outline
    version: str
    written: bytes
    record: SchedulingRecord | DisruptionRecord | None
    problem: str = ""
    chunked: bool = False

    @property
    def snapshot(self) -> Snapshot | None:
        """The scheduling snapshot, if this version can read it."""
        if isinstance(self.record, DisruptionRecord):
            return self.record.snapshot.scheduling
        return self.record.snapshot if self.record is not None else None


class RecordedDecision(msgspec.Struct, frozen=True):
    """A record without its snapshot: the plan or the decision to disrupt, none where `problem` says why not."""

    outline: Outline
    plan: Plan | None = None
    decision: Decision | None = None
    problem: str = ""


class _Parts(msgspec.Struct, frozen=True):
    """The decision of a record, left as it is written."""

    version: str = ""
    plan: msgspec.Raw = msgspec.Raw()
    decision: msgspec.Raw = msgspec.Raw()


_PARTS = msgspec.msgpack.Decoder(_Parts)
_SNAPSHOT = with_fields(
    DisruptionSnapshot,
    "policies",
    scheduling.types_of_inputs(disruption_inputs()),
    {"scheduling": scheduling.RECORDED_SNAPSHOT},
)


@cache
def _decoder() -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(with_types(DisruptionRecord, {"snapshot": _SNAPSHOT}))


def encode(record: DisruptionRecord) -> bytes:
    """As `scheduling.record.encode`."""
    looked_at = scheduling.recorded_snapshot(record.snapshot.scheduling)
    return scheduling.packed(parts(record.snapshot, looked_at, record.decision))


def parts(snapshot: DisruptionSnapshot, looked_at: Any, decision: Decision) -> dict[str, Any]:
    """A record for `packed`; `looked_at` is the scheduling snapshot as it is recorded."""
    values = fields_of(snapshot) | scheduling.recorded_inputs(snapshot.policies)
    del values["policies"]
    return {"snapshot": _SNAPSHOT(**values | {"scheduling": looked_at}), "decision": decision}


def _unpacked(plain: bytes) -> DisruptionRecord:
    read = _decoder().decode(plain)
    values = fields_of(read.snapshot)
    found = [(kind, values.pop(kind.recorded_as)) for kind in disruption_inputs()]
    values["policies"] = tuple(kind(known) for kind, known in found if known is not None)
    values["scheduling"] = scheduling.snapshot_of(read.snapshot.scheduling)
    snapshot = DisruptionSnapshot(**values)
    return DisruptionRecord(snapshot, read.decision)


def record_id(record: DisruptionRecord, document: bytes) -> str:
    """`<cluster>/<date>/<time>-<epoch>-disrupt-<digest>` in UTC."""
    return scheduling.id_of(record.snapshot.scheduling, document, MARK)


def read(document: bytes, source: str) -> Recorded:
    """A record of either kind and of any version.

    Raises:
        InvalidInput: it is no record at all; names `source`.
    """
    found = _open(document, source)
    if names_chunks(found.loose):
        problem = "parts of it are stored beside it: read it by its id"
        return Recorded(found.outline, found.version, found.written, None, problem, chunked=True)
    unpack = _unpacked if found.of_disruption else scheduling.unpacked
    try:
        return Recorded(found.outline, found.version, found.written, unpack(found.plain))
    except msgspec.DecodeError as error:
        return Recorded(found.outline, found.version, found.written, None, _unreadable(found, error))


def read_decision(stored: bytes, source: str) -> RecordedDecision:
    """The decision of a record as it is stored, of either kind and of any version; its snapshot is not decoded.

    Raises:
        InvalidInput: it is no record at all; names `source`.
    """
    found = _open(stored, source)
    try:
        if found.of_disruption:
            return RecordedDecision(found.outline, decision=msgspec.msgpack.decode(found.written, type=Decision))
        return RecordedDecision(found.outline, msgspec.msgpack.decode(found.written, type=Plan))
    except msgspec.DecodeError as error:
        return RecordedDecision(found.outline, problem=_unreadable(found, error))


class _Opened(NamedTuple):
    plain: bytes
    loose: dict[str, Any]
    version: str
    written: bytes
    of_disruption: bool

    @property
    def outline(self) -> Outline:
        return _outline(self.loose, of_disruption=self.of_disruption)


def _open(document: bytes, source: str) -> _Opened:
    """Raises InvalidInput."""
    try:
        plain = zlib.decompress(document)
        parts = _PARTS.decode(plain)
        loose = msgspec.msgpack.decode(plain)
    except (zlib.error, msgspec.DecodeError) as error:
        raise InvalidInput(source, f"not a recorded decision: {error}") from error
    of_disruption = bool(bytes(parts.decision))
    written = bytes(parts.decision if of_disruption else parts.plan)
    if not written or not isinstance(loose.get("snapshot"), dict):
        raise InvalidInput(source, "not a recorded decision: it holds no snapshot with a plan or commands")
    return _Opened(plain, loose, parts.version, written, of_disruption)


def _unreadable(found: _Opened, error: msgspec.DecodeError) -> str:
    by = f"version {found.version}" if found.version else "a version that did not say which"
    return f"it was written by {by} and {__version__} cannot read it: {error}"


def outline_with(document: bytes, written: bytes) -> Outline:
    """The outline of a sound record with another decision, of any version, instead of its own."""
    loose = msgspec.msgpack.decode(zlib.decompress(document))
    of_disruption = "decision" in loose
    loose["decision" if of_disruption else "plan"] = msgspec.msgpack.decode(written)
    return _outline(loose, of_disruption=of_disruption)


def decided_again(record: SchedulingRecord | DisruptionRecord) -> bytes:
    """Decide again on the recorded snapshot. It is encoded as in a record: equal bytes are an equal decision."""
    made = plan(record.snapshot) if isinstance(record, SchedulingRecord) else decide(record.snapshot)
    return msgspec.msgpack.encode(made, order="deterministic")


def _outline(loose: dict[str, Any], *, of_disruption: bool) -> Outline:
    """Read by names that every version has used; missing or malformed fields are left out."""
    looked_at = _mapping(loose.get("snapshot"))
    snapshot = _mapping(looked_at.get("scheduling")) if of_disruption else looked_at
    view = _mapping(snapshot.get("view"))
    decided = _mapping(loose.get("decision" if of_disruption else "plan"))
    commands = [_mapping(item) for item in _list(decided.get("commands"))]
    claims = _list(decided.get("nodeClaims"))
    claims += [claim for command in commands for claim in _list(command.get("replacements"))]
    at, epoch = snapshot.get("now"), snapshot.get("epoch")
    return Outline(
        kind="disrupt" if of_disruption else "schedule",
        cluster=str(snapshot.get("cluster", "")),
        at=float(at) if isinstance(at, int | float) else 0.0,
        epoch=epoch if isinstance(epoch, int) else 0,
        pods=len(_list(view.get("pods"))),
        nodes=len(_list(view.get("nodes"))),
        claims=tuple(_claim(_mapping(item)) for item in claims),
        removed=tuple(str(node) for command in commands for node in _list(command.get("nodes"))),
        unschedulable=len(_list(decided.get("unschedulable"))),
    )


def _claim(item: dict[str, Any]) -> OutlinedClaim:
    launch = _mapping(item.get("launch"))
    price = launch.get("price")
    return OutlinedClaim(
        name=str(item.get("name", "")),
        node_pool=str(item.get("nodePool", "")),
        instance_type=str(launch.get("instanceType", "")),
        zone=str(launch.get("zone", "")),
        capacity_type=str(launch.get("capacityType", "")),
        price=float(price) if isinstance(price, int | float) else 0.0,
        pods=len(_list(item.get("pods"))),
    )


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else []
