"""The history of a pod, a node, a claim or a pool of a live install, from its flight recorder and table `state`.

Nothing is written. Times are those at which something happened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from shiplap.disruption.commands import Decision, DisruptionProposal
from shiplap.disruption.progress import DisruptionCommand
from shiplap.instances.catalog.type_catalog import LearnedCapacity, Observation
from shiplap.kubernetes.quantity import format_amount, format_resources
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.nodeclaim import LEAVING, ClaimState, NodeClaim
from shiplap.ports import CapacityStore, FlightRecords, StateStore
from shiplap.records.disruption_record import Recorded, RecordedDecision, is_disruption, read, read_decision
from shiplap.records.scheduling_record import SchedulingRecord, written_at
from shiplap.scheduling.model.scheduling_plan import Placement, Plan, PlannedClaim
from shiplap.scheduling.packing.compiled_snapshot import compile_snapshot
from shiplap_cli.accounts.claim_account import ClaimAccounts
from shiplap_cli.output import Printed


class HistoryEntry(Printed, frozen=True):
    """One event. `at` is RFC 3339, empty when the time is unknown; `record` is the id of the decision."""

    at: str
    what: str
    details: tuple[str, ...] = ()
    record: str = ""


def launch_reasons(claim: NodeClaim, record_id: str, decided: SchedulingRecord | Decision | None) -> Iterator[str]:
    """The alternatives that were weighed, from the record where there is one that can be read."""
    if claim.plan.pods:
        yield f"for {', '.join(pod.key for pod in claim.plan.pods[:5])}" + (
            f" and {len(claim.plan.pods) - 5} more" if len(claim.plan.pods) > 5 else ""
        )
    if claim.plan.requests:
        yield "needs " + ", ".join(f"{name} {text}" for name, text in format_resources(claim.plan.requests).items())
    yield from (f"because {reason}" for reason in claim.plan.reasons)
    if not record_id:
        yield "its decision is not among the records that are kept"
        return
    if isinstance(decided, SchedulingRecord):
        planned = next((item for item in decided.plan.node_claims if item.name == claim.name), None)
        if planned is not None:
            account = ClaimAccounts(compile_snapshot(decided.snapshot)).of(planned)
            yield account.pool
            yield account.types
            yield account.price
            yield from (f"not {cheaper}" for cheaper in account.cheaper)
    elif isinstance(decided, Decision):
        for command in decided.commands:
            if command.replacements:
                yield f"to replace {', '.join(command.nodes)}: {command.detail}"
    if claim.plan.relies_on_estimate:
        yield f"never measured before: {', '.join(claim.plan.relies_on_estimate)}"


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


def entries_of_node(node: str, record_id: str, recorded: RecordedDecision) -> Iterator[HistoryEntry]:
    """The entries of a recorded decision about a node."""
    decided = recorded.decision or Decision()
    for command in decided.commands:
        if node in command.nodes:
            yield HistoryEntry(
                rfc3339_or_empty(recorded.outline.at),
                f"to be removed: {command.reason}",
                (_proposal_text(command),),
                record_id,
            )
    for entry in decided.blocked:
        if entry.node == node:
            yield HistoryEntry(rfc3339_or_empty(recorded.outline.at), "stays", (entry.reason,), record_id)


def _proposal_text(command: DisruptionProposal) -> str:
    return f"{command.detail}; saves ${command.savings_hourly:.4f}/h, moves {command.moved} pods"


def entries_of_pool(name: str, record_id: str, recorded: RecordedDecision) -> Iterator[HistoryEntry]:
    """The launches of a decision in a pool, and why other claims passed the pool over."""
    mine = [claim for claim in recorded.outline.claims if claim.node_pool == name]
    if mine:
        counts = Counter(f"{claim.instance_type} {claim.capacity_type}" for claim in mine)
        launched = ", ".join(f"{number} {what}" for what, number in sorted(counts.items()))
        hourly = sum(claim.price for claim in mine)
        pods = sum(claim.pods for claim in mine)
        what = f"launched {launched} for {pods} pods at ${hourly:.4f}/h"
        yield HistoryEntry(rfc3339_or_empty(recorded.outline.at), what, (), record_id)
    if recorded.plan is not None:
        passed = {
            reason
            for claim in recorded.plan.node_claims
            if claim.node_pool != name
            for reason in claim.reasons
            if f"pool {name}" in reason
        }
        if passed:
            yield HistoryEntry(
                rfc3339_or_empty(recorded.outline.at), "passed over", tuple(sorted(passed)[:5]), record_id
            )


def claims_with_states(claims: Sequence[NodeClaim]) -> str:
    """Claims with their states."""
    return ", ".join(f"{claim.name} ({claim.state})" for claim in claims)


def rfc3339_or_empty(at: float) -> str:
    """RFC 3339; empty when the time is unknown."""
    return rfc3339(at) if at else ""


MOST_RECORDS = 60
"""Records that are opened for one history, newest first: each holds a whole cluster."""
_LATE_S = 900.0
"""The longest time between a decision's look at the cluster and the write of its claim, seconds."""


class History(Printed, frozen=True):
    """`state` is the present state; `entries` are in order of time; `unseen` lists sources that could not be read."""

    kind: str
    name: str
    state: str
    entries: tuple[HistoryEntry, ...] = ()
    unseen: tuple[str, ...] = ()


_LEFT_OUT = "left out"


def lacks_place(history: History) -> bool:
    """True of a pod that the newest decision about it left out, or of which no decision spoke."""
    return history.kind == "pod" and (not history.entries or history.entries[-1].what == _LEFT_OUT)


class HistorySources(msgspec.Struct, frozen=True):
    """Sources of histories: one cluster's state and records, and the learned capacity of the account."""

    cluster: str
    state: StateStore
    records: FlightRecords
    capacity: CapacityStore
    now: float
    since_s: float
    progress: Callable[[str], None]


class HistoryReader:
    """Reads histories of one cluster. Every method raises StoreError."""

    def __init__(self, sources: HistorySources) -> None:
        self._sources = sources
        self._claims = {claim.name: claim for claim in sources.state.claims(sources.cluster)}
        self._commands = sources.state.commands(sources.cluster)
        self._opened: dict[str, RecordedDecision] = {}
        self._read: dict[str, Recorded] = {}
        self._unseen: list[str] = []

    def pod(self, name: str) -> History:
        """The decisions that mention a pod, and the histories of the claims launched for it.

        Of a workload, the pod that a decision named last.
        """
        key = name if "/" in name else f"default/{name}"
        found = self._of_pod(key)
        member = self._named_last(f"{key}-") if not found.entries else ""
        return self._of_pod(member) if member else found

    def _named_last(self, beginning: str) -> str:
        """The pod of a name with this beginning that the newest decision named, the first one left out; else empty."""
        for _, recorded in self._recent_records():
            decided = recorded.plan or Plan()
            parts: tuple[PlannedClaim | Placement, ...] = (*decided.node_claims, *decided.existing_nodes)
            told = [entry.pod.key for entry in (*decided.unschedulable, *decided.ignored)]
            for keys in (told, [pod.key for part in parts for pod in part.pods]):
                if named := min((key for key in keys if key.startswith(beginning)), default=""):
                    return named
        held = (pod.key for claim in self._claims.values() for pod in claim.plan.pods)
        return min((key for key in held if key.startswith(beginning)), default="")

    def _of_pod(self, key: str) -> History:
        claims = [claim for claim in self._claims.values() if key in {pod.key for pod in claim.plan.pods}]
        entries = [entry for claim in claims for entry in self._claim_entries(claim)]
        known_records = {entry.record for entry in entries if entry.record}
        for record_id, recorded in self._recent_records():
            if record_id not in known_records:
                entries += self._pod_entries(key, record_id, recorded)
        alive = [claim for claim in claims if claim.state not in (ClaimState.FAILED, ClaimState.GONE)]
        if alive:
            state = f"planned for {claims_with_states(alive)}"
        elif claims:
            state = f"none of the nodes launched for it came: {claims_with_states(claims)}"
        else:
            state = "nothing was launched for it" if entries else "no decision of this time spoke of it"
        return self._history("pod", key, state, entries)

    def claim(self, name: str) -> History | None:
        """A claim, by its own name or that of its node or instance; None when there is none."""
        claim = next((each for each in self._claims.values() if name in _names_of(each)), None) or self._kept(name)
        if claim is None:
            return self._recorded_claim(name)
        entries = [*self._claim_entries(claim), *self._disruption_entries(claim)]
        standing = claim_status(claim, self._sources.now).removeprefix(f"{claim.name} is ")
        return self._history("claim", claim.name, standing, entries)

    def _kept(self, name: str) -> NodeClaim | None:
        """A claim that is Gone: table `state` keeps it for a while."""
        state, cluster = self._sources.state, self._sources.cluster
        found = state.claim(cluster, name) or (state.claim_of_instance(name) if name.startswith("i-") else None)
        return found if found is not None and found.cluster == cluster else None

    def _recorded_claim(self, name: str) -> History | None:
        """A claim that only records know any more, or a node by whose name table `state` does not look."""
        for record_id, recorded in self._recent_records():
            snapshot = self._whole(record_id).snapshot
            for claim in snapshot.claims if snapshot is not None else ():
                if name not in _names_of(claim):
                    continue
                if self._kept(claim.name) is not None:
                    return self.claim(claim.name)
                at = recorded.outline.at
                standing = f"gone: the decision of {rfc3339_or_empty(at)} was the last one that saw it, {claim.state}"
                entries = [*self._claim_entries(claim, at), *self._disruption_entries(claim)]
                return self._history("claim", claim.name, standing, entries)
        return None

    def pool(self, name: str) -> History | None:
        """A pool's claims, failures and decisions; None when nothing is known of it."""
        claims = [claim for claim in self._claims.values() if claim.plan.node_pool == name]
        entries = [
            HistoryEntry(rfc3339_or_empty(claim.changed_at), f"claim {claim.name} failed", (claim.failure,))
            for claim in claims
            if claim.state is ClaimState.FAILED
        ]
        for record_id, recorded in self._recent_records():
            entries += entries_of_pool(name, record_id, recorded)
        resting = self._sources.state.read(self._sources.cluster, self._sources.now).unavailable
        types = {each for claim in claims for each in claim.plan.instance_types}
        entries += (
            HistoryEntry(
                "",
                f"{offering.instance_type} {offering.capacity_type} in {offering.zone} is left alone",
                (f"EC2 said {offering.code or 'no'} {offering.failures} times; until {rfc3339(offering.until)}",),
            )
            for offering in resting
            if offering.instance_type in types
        )
        if not claims and not entries:
            return None
        states = Counter(str(claim.state) for claim in claims)
        counted = ", ".join(f"{number} {state}" for state, number in sorted(states.items())) or "no claim"
        hourly = sum(claim.hourly for claim in claims if claim.state not in (ClaimState.FAILED, ClaimState.GONE))
        return self._history("pool", name, f"{counted}; ${hourly:.4f}/h", entries)

    def names(self) -> tuple[str, ...]:
        """The names of all claims and their nodes, sorted."""
        every = self._claims.values()
        return tuple(sorted({name for claim in every for name in (claim.name, claim.node_name) if name}))

    def pools(self) -> tuple[str, ...]:
        """The names of all pools that have claims, sorted."""
        return tuple(sorted({claim.plan.node_pool for claim in self._claims.values()}))

    def _history(self, kind: str, name: str, state: str, entries: Iterable[HistoryEntry]) -> History:
        return History(kind, name, state, _in_order(entries), tuple(self._unseen))

    def _claim_entries(self, claim: NodeClaim, at: float | None = None) -> Iterator[HistoryEntry]:
        """Yield the events of a claim as it was at a moment; without one, as it is now."""
        if claim.cause.first_event_at:
            heard = (
                (f"event {claim.cause.event_id}: the functions' logs have it as event_id",)
                if claim.cause.event_id
                else ()
            )
            yield HistoryEntry(rfc3339_or_empty(claim.cause.first_event_at), "heard that pods are pending", heard)
        record_id, decided = self._decision_of(claim)
        yield HistoryEntry(
            rfc3339_or_empty(claim.created_at),
            f"decided to launch {claim.name} of pool {claim.plan.node_pool}"
            + (f" tier {claim.plan.tier}" if claim.plan.tier else ""),
            tuple(launch_reasons(claim, record_id, decided)),
            record_id,
        )
        if claim.instance_id:
            got = claim.known_instance
            place = f"{got.type} {got.capacity_type} in {got.zone} at ${claim.hourly:.4f}/h"
            yield HistoryEntry(
                "",
                f"EC2 gave {claim.instance_id}: {place}",
                (f"AMI {got.ami}",) if got.ami else (),
            )
        learned = self._learned(claim)
        if learned is not None:
            yield learned_capacity_entry(claim, learned)
        status = claim_status(claim, self._sources.now if at is None else at)
        yield HistoryEntry(rfc3339_or_empty(claim.changed_at), status)

    def _decision_of(self, claim: NodeClaim) -> tuple[str, SchedulingRecord | Decision | None]:
        """The decision that made a claim: looked for backwards from when the claim was written.

        None where it is not kept, or this version cannot read it.
        """
        ids = self._sources.records.ids(self._sources.cluster, claim.created_at - _LATE_S, claim.created_at + 1)
        of_disruption = claim.cause.event_id.endswith("/disruption")
        for record_id in reversed(ids):
            if is_disruption(record_id) != of_disruption:
                continue
            decided = self._open(record_id)
            if of_disruption:
                return record_id, decided.decision
            if any(outlined.name == claim.name for outlined in decided.outline.claims):
                record = self._whole(record_id).record
                return record_id, record if isinstance(record, SchedulingRecord) else None
        return "", None

    def _disruption_entries(self, claim: NodeClaim) -> Iterator[HistoryEntry]:
        """Commands under way and recorded decisions that take the claim's node away."""
        for command in self._commands:
            if claim.name in command.busy:
                yield command_entry(command, claim)
        for record_id, recorded in self._recent_records():
            if claim.node_name:
                yield from entries_of_node(claim.node_name, record_id, recorded)

    def _pod_entries(self, key: str, record_id: str, recorded: RecordedDecision) -> Iterator[HistoryEntry]:
        if recorded.plan is None:
            return
        decided, at = recorded.plan, rfc3339_or_empty(recorded.outline.at)
        for claim in decided.node_claims:
            if key in {pod.key for pod in claim.pods}:
                yield HistoryEntry(at, f"planned onto a new node, claim {claim.name}", tuple(claim.reasons), record_id)
        for place in decided.existing_nodes:
            if key in {pod.key for pod in place.pods}:
                yield HistoryEntry(at, f"planned onto {place.name}, which was there", (), record_id)
        for words, entries in ((_LEFT_OUT, decided.unschedulable), ("left alone", decided.ignored)):
            for entry in entries:
                if entry.pod.key == key:
                    yield HistoryEntry(at, words, (entry.message,), record_id)

    def _recent_records(self) -> Iterator[tuple[str, RecordedDecision]]:
        """The records within the time asked for, newest first, at most MOST_RECORDS."""
        ids = self._sources.records.ids(
            self._sources.cluster, self._sources.now - self._sources.since_s, self._sources.now
        )
        for record_id in reversed(ids[-MOST_RECORDS:]):
            yield record_id, self._open(record_id)
        if len(ids) > MOST_RECORDS:
            oldest = rfc3339(written_at(ids[-MOST_RECORDS]))
            self._add_note(f"of {len(ids)} decisions only the newest {MOST_RECORDS} were opened, since {oldest}")

    def _open(self, record_id: str) -> RecordedDecision:
        """A decision, read once; one of a version that cannot be read is noted, and its outline used."""
        if record_id not in self._opened:
            self._sources.progress(f"reading {record_id}")
            recorded = read_decision(self._sources.records.stored(record_id), record_id)
            self._note_problem(record_id, recorded.problem)
            self._opened[record_id] = recorded
        return self._opened[record_id]

    def _whole(self, record_id: str) -> Recorded:
        """A record with its snapshot, read once; one of a version that cannot be read is noted."""
        if record_id not in self._read:
            recorded = read(self._sources.records.document(record_id), record_id)
            self._note_problem(record_id, recorded.problem)
            self._read[record_id] = recorded
        return self._read[record_id]

    def _note_problem(self, record_id: str, problem: str) -> None:
        if problem:
            self._add_note(f"record {record_id}: {problem}")

    def _add_note(self, text: str) -> None:
        if text not in self._unseen:
            self._unseen.append(text)

    def _learned(self, claim: NodeClaim) -> LearnedCapacity | None:
        if not claim.known_instance.ami or not claim.known_instance.type:
            return None
        known = self._sources.capacity.learned([claim.known_instance.ami])
        key = (claim.known_instance.type, claim.known_instance.kubelet_hash)
        return next((entry for entry in known if (entry.instance_type, entry.kubelet_hash) == key), None)


def _names_of(claim: NodeClaim) -> frozenset[str]:
    return frozenset((claim.name, claim.node_name, claim.instance_id)) - {""}


def _in_order(entries: Iterable[HistoryEntry]) -> tuple[HistoryEntry, ...]:
    """Sorted by time; an entry without a time stays behind the entry before it."""
    timed: list[tuple[str, HistoryEntry]] = []
    for entry in entries:
        timed.append((entry.at or (timed[-1][0] if timed else ""), entry))
    return tuple(entry for _, entry in sorted(timed, key=lambda item: item[0]))
