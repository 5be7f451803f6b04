"""Entries of a history, made from claims, decisions and commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from shiplap.disruption.commands import Decision, DisruptionProposal
from shiplap.disruption.progress import DisruptionCommand
from shiplap.disruption.record import DisruptionRecord, Recorded
from shiplap.instances.catalog.type_catalog import LearnedCapacity, Observation
from shiplap.kubernetes.quantity import format_amount, format_resources
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.nodeclaim import LEAVING, ClaimState, NodeClaim
from shiplap.scheduling.model.scheduling_plan import Plan, PlannedClaim
from shiplap.scheduling.model.scheduling_record import SchedulingRecord
from shiplap.scheduling.packing.compiled_snapshot import compile_snapshot
from shiplap_cli.explain.claim_account import ClaimAccounts


class HistoryEntry(msgspec.Struct, frozen=True, rename="camel"):
    """One event. `at` is RFC 3339, empty when the time is unknown; `record` is the id of the decision."""

    at: str
    what: str
    details: tuple[str, ...] = ()
    record: str = ""


def launch_reasons(claim: NodeClaim, found: PlannedClaim | Recorded | None) -> Iterator[str]:
    """The alternatives that were weighed, from the record where there is one."""
    if claim.pods:
        yield f"for {', '.join(pod.key for pod in claim.pods[:5])}" + (
            f" and {len(claim.pods) - 5} more" if len(claim.pods) > 5 else ""
        )
    if claim.requests:
        yield "needs " + ", ".join(f"{name} {text}" for name, text in format_resources(claim.requests).items())
    yield from (f"because {reason}" for reason in claim.reasons)
    if not isinstance(found, Recorded):
        yield "its decision is not among the records that are kept"
        return
    if isinstance(found.record, SchedulingRecord):
        planned = next((item for item in found.record.plan.node_claims if item.name == claim.name), None)
        if planned is not None:
            account = ClaimAccounts(compile_snapshot(found.record.snapshot)).of(planned)
            yield account.pool
            yield account.types
            yield account.price
            yield from (f"not {cheaper}" for cheaper in account.cheaper)
    elif isinstance(found.record, DisruptionRecord):
        for command in found.record.decision.commands:
            if command.replacements:
                yield f"to replace {', '.join(command.nodes)}: {command.detail}"
    if claim.relies_on_estimate:
        yield f"never measured before: {', '.join(claim.relies_on_estimate)}"


def learned_capacity_entry(claim: NodeClaim, learned: LearnedCapacity) -> HistoryEntry:
    """The amounts that the kubelet reported, compared with the amounts the plan relied on."""
    own = [seen for seen in learned.recent if claim.node_name and seen.node == claim.node_name]
    if not own:
        return HistoryEntry("", f"{learned.instance_type} on {learned.ami} is known from {learned.count} nodes")
    seen: Observation = own[-1]
    details = tuple(
        f"{name}: {format_amount(name, seen.allocatable[name])} allocatable, "
        f"{format_amount(name, seen.predicted[name])} relied on"
        for name in sorted(seen.predicted.keys() & seen.allocatable.keys())
        if seen.predicted[name] != seen.allocatable[name]
    )
    what = "its kubelet reported less than was relied on" if claim.missed else "learned what its kubelet reported"
    return HistoryEntry(rfc3339_or_empty(seen.observed_at), what, details)


def claim_status(claim: NodeClaim, now: float) -> str:
    """The state of a claim as a sentence."""
    words = f"{claim.name} is {claim.state}"
    if claim.node_name:
        words += f", node {claim.node_name}"
    if claim.failure:
        words += f": {claim.failure}"
    if claim.cordoned:
        words += f"; takes no more pods: {claim.cordoned}"
    if claim.deadline_at and claim.state not in (ClaimState.INITIALIZED, ClaimState.FAILED, ClaimState.GONE):
        late = now - claim.deadline_at
        words += f"; overdue by {late:.0f} s" if late > 0 else f"; its next step is due within {-late:.0f} s"
    if claim.state in LEAVING:
        words += "; on its way out"
    return words


def command_entry(command: DisruptionCommand, claim: NodeClaim) -> HistoryEntry:
    """The effect of a command on a claim, and the command's state."""
    part = "goes" if claim.name in command.targets else "takes the place of what goes"
    details = (command.detail, f"saves ${command.savings_hourly:.4f}/h") if command.detail else ()
    return HistoryEntry(
        rfc3339_or_empty(command.changed_at),
        f"{part}: command {command.name} ({command.reason}) is {command.state}",
        details,
    )


def entries_of_node(node: str, record_id: str, decided: Decision, found: Recorded) -> Iterator[HistoryEntry]:
    """What a recorded decision says of a node."""
    for command in decided.commands:
        if node in command.nodes:
            yield HistoryEntry(
                rfc3339_or_empty(found.outline.at),
                f"to be removed: {command.reason}",
                (_proposal_text(command),),
                record_id,
            )
    for entry in decided.blocked:
        if entry.node == node:
            yield HistoryEntry(rfc3339_or_empty(found.outline.at), "stays", (entry.reason,), record_id)


def _proposal_text(command: DisruptionProposal) -> str:
    return f"{command.detail}; saves ${command.savings_hourly:.4f}/h, moves {command.moved} pods"


def entries_of_pool(name: str, record_id: str, found: Recorded) -> Iterator[HistoryEntry]:
    """What a decision launched of a pool, and why it passed it over where it did."""
    mine = [claim for claim in found.outline.claims if claim.node_pool == name]
    if mine:
        counts = Counter(f"{claim.instance_type} {claim.capacity_type}" for claim in mine)
        launched = ", ".join(f"{number} {what}" for what, number in sorted(counts.items()))
        hourly = sum(claim.price for claim in mine)
        pods = sum(claim.pods for claim in mine)
        what = f"launched {launched} for {pods} pods at ${hourly:.4f}/h"
        yield HistoryEntry(rfc3339_or_empty(found.outline.at), what, (), record_id)
    decided: Plan | None = found.record.plan if isinstance(found.record, SchedulingRecord) else None
    if decided is not None:
        passed = {
            reason
            for claim in decided.node_claims
            if claim.node_pool != name
            for reason in claim.reasons
            if f"pool {name}" in reason
        }
        if passed:
            yield HistoryEntry(rfc3339_or_empty(found.outline.at), "passed over", tuple(sorted(passed)[:5]), record_id)


def claims_with_states(claims: Sequence[NodeClaim]) -> str:
    """Claims with their states."""
    return ", ".join(f"{claim.name} ({claim.state})" for claim in claims)


def rfc3339_or_empty(at: float) -> str:
    """RFC 3339; empty when the time is unknown."""
    return rfc3339(at) if at else ""
