"""A recorded decision in one line, for those who watch many: what it launches or removes, not what it looked at.

A record holds a whole cluster; only its decision is decoded, and the rest is skipped. Nothing here loads the planner.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import msgspec

from shiplap.scheduling.record import written_at

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


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    """Base: of every decision only what a line says, under the names that all versions have used."""


class _Launch(_Part, frozen=True):
    price: float = 0.0


class _Claim(_Part, frozen=True):
    node_pool: str = ""
    launch: _Launch = _Launch()
    pods: tuple[msgspec.Raw, ...] = ()


class _Placement(_Part, frozen=True):
    pods: tuple[msgspec.Raw, ...] = ()


class _Plan(_Part, frozen=True):
    node_claims: tuple[_Claim, ...] = ()
    existing_nodes: tuple[_Placement, ...] = ()
    unschedulable: tuple[msgspec.Raw, ...] = ()


class _Command(_Part, frozen=True):
    reason: str = ""
    nodes: tuple[str, ...] = ()
    replacements: tuple[_Claim, ...] = ()
    savings_hourly: float = 0.0


class _Decision(_Part, frozen=True):
    commands: tuple[_Command, ...] = ()


class _Headline(msgspec.Struct, frozen=True):
    plan: _Plan | None = None
    decision: _Decision | None = None


_HEADLINE = msgspec.msgpack.Decoder(_Headline)


def is_disruption(record_id: str) -> bool:
    """Whether an id is that of a decision to disrupt."""
    return f"-{MARK}" in record_id.rpartition("/")[2]


def headline(document: bytes, record_id: str) -> Headline:
    """A record in a line. What is no record, or one of a version that wrote it otherwise, is said to be so."""
    kind = DISRUPT if is_disruption(record_id) else SCHEDULE
    try:
        written = _HEADLINE.decode(zlib.decompress(document))
    except (zlib.error, msgspec.DecodeError):
        text = "this version cannot read it; `shiplap replay` shows what can be read"
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
