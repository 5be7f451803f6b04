"""The port to table `state`: epoch, claims, commands, unavailable offerings, and addresses that launches take."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, Unpack

import msgspec

from shiplap.disruption.progress import CommandChanges, CommandState, DisruptionCommand
from shiplap.disruption.repair.kept_sick_nodes import SickNote
from shiplap.errors import ConditionFailed
from shiplap.instances.offerings.unavailability import (
    FIRST_WAIT_FOR_QUOTA_S,
    FIRST_WAIT_S,
    after_failure,
    remembered_until,
)
from shiplap.instances.readiness.joins import JoinHistory
from shiplap.manifests.nodeclaim import ClaimChanges, ClaimState, NodeClaim
from shiplap.manifests.stored_form import StoredForm
from shiplap.ports.compute import OfferingFailure
from shiplap.spending.account_counters import AccountSpending, CountChange, CountedSpending
from shiplap.spending.ledger import SpendingLedger

COMMIT_GROUP = 99
"""Claims in one transaction beside the epoch: DynamoDB allows 100 actions."""


COMMIT_BYTES = 3_000_000
"""Bytes of encoded claims in one transaction: DynamoDB takes 4 MB; names, keys and later changes need some of it."""


CLAIM_BYTES = 380_000
"""Bytes of a stored claim: an item of DynamoDB holds 400 KiB; keys and later changes need some of it."""

_PLAIN_BYTES = 300_000
"""A longer claim is stored compressed. Shorter ones stay text, which people and older versions read."""

CLAIM_FORM = StoredForm(NodeClaim, always=("schema",))
"""The flat form of stored claims. An item without `schema` is older than that field: its schema is 1."""

COMMAND_FORM = StoredForm(DisruptionCommand, always=("schema",))
"""The form of stored commands."""

_CLAIMS = msgspec.json.Decoder(CLAIM_FORM.flat_type)
_COMMANDS = msgspec.json.Decoder(COMMAND_FORM.flat_type)


def written_claim(claim: NodeClaim) -> str | bytes:
    """Encode a claim for the table: flat JSON, compressed if it is long."""
    document = msgspec.json.encode(CLAIM_FORM.flat(claim))
    return zlib.compress(document, 9) if len(document) > _PLAIN_BYTES else document.decode()


def read_claim(stored: str | bytes) -> NodeClaim:
    """The inverse of `written_claim`, also for items of other releases.

    Raises:
        msgspec.DecodeError, zlib.error: not a claim.
    """
    return CLAIM_FORM.nested(_CLAIMS.decode(stored if isinstance(stored, str) else zlib.decompress(stored)))


def written_command(command: DisruptionCommand) -> str:
    """Encode a command for the table: flat JSON."""
    return msgspec.json.encode(COMMAND_FORM.flat(command)).decode()


def read_command(stored: str) -> DisruptionCommand:
    """The inverse of `written_command`, also for items of other releases. Raises msgspec.DecodeError."""
    return COMMAND_FORM.nested(_COMMANDS.decode(stored))


def can_be_stored(claim: NodeClaim) -> bool:
    """True if a claim is small enough to be written."""
    return len(written_claim(claim)) <= CLAIM_BYTES


MISSED_FOR_S = 30 * 24 * 3600
"""Seconds for which a pod counts as missed: its node was too small."""


REFUSED_FOR_S = 7 * 24 * 3600
"""Seconds for which futile launches for a pod are remembered."""


ADDRESSES_S = 60
"""Seconds for which a launch reserves addresses: after that, DescribeSubnets includes them."""


class UnavailableOffering(msgspec.Struct, frozen=True, omit_defaults=True):
    """An offering that backs off until `until` (epoch seconds); `failures` in a row lengthen the wait, 3 min to 1 h.

    It may stand for several (see `OfferingFailure.scope`). All clusters of the account share it.
    """

    instance_type: str
    zone: str
    capacity_type: str
    until: float
    failures: int = 1
    code: str = ""

    @classmethod
    def after(cls, known: UnavailableOffering | None, failure: OfferingFailure, now: float) -> UnavailableOffering:
        """The state after `failure` at `now`; `known` itself while that still backs off."""
        if known is not None and now < known.until:
            return known
        past = (known.failures, known.until) if known is not None else (0, 0.0)
        first_s = FIRST_WAIT_FOR_QUOTA_S if failure.kind == "quota" else FIRST_WAIT_S
        failures, until = after_failure(*past, now, first_s)
        return cls(*failure.scope, until, failures, failure.code)

    @property
    def scope(self) -> tuple[str, str, str]:
        """The offerings that back off; see `OfferingFailure.scope`."""
        return self.instance_type, self.zone, self.capacity_type

    def relieved(self) -> UnavailableOffering:
        """The state after a successful launch: one failure less, so that the next launch may be twice as large."""
        return msgspec.structs.replace(self, failures=max(self.failures - 1, 0))

    def is_recovering(self, now: float) -> bool:
        """True if the back-off is over and its failures still count."""
        return self.until <= now < remembered_until(self.failures, self.until) and self.failures > 0


SICK_FOR_S = 3600.0
"""Seconds for which it is remembered that a node was sick."""


FUTILE_FOR_S = 3600.0
"""Seconds after a claim's creation for which its futile launch is remembered."""


PROVEN_FOR_S = 14 * 24 * 3600
"""Seconds after the last note for which a kind of pods counts as proven."""


class Refusals(msgspec.Struct, frozen=True):
    """Nodes that were launched for a pod and that it does not run on: the newest claims by name, noted `at`.

    `tries` counts futile launches for pods of its kind, up to this one; claims launched together count once.
    `launched_at` is when the youngest claim was created. Times are epoch seconds. `like` is equal for pods of one kind.
    Older items lack these fields.
    """

    claims: tuple[str, ...] = ()
    at: float = 0.0
    tries: int = 0
    launched_at: float = 0.0
    like: str = ""

    @property
    def number(self) -> int:
        """The number of tries."""
        return self.tries or len(self.claims)


class DecisionState(msgspec.Struct, frozen=True):
    """The stored inputs of a decision, read after the epoch.

    `recovering` offerings may be tried again and failed recently. `addresses` counts what launches in flight take from
    each subnet id, `reserved` the instances that they take from each capacity reservation, by token. `refused` holds
    pods by uid. `futile` maps futile claims to the time of their creation, `sick` those of sick nodes to their notes.
    `proven` maps kinds of pods that nodes have run to the time of the last note. `frozen_at` is when all launches of
    the install were frozen, 0 if they are not. `ledger` is None unless a feature keeps one; `counted` is what the
    cluster has added to `account_spending`.
    """

    epoch: int
    claims: tuple[NodeClaim, ...] = ()
    unavailable: tuple[UnavailableOffering, ...] = ()
    recovering: tuple[UnavailableOffering, ...] = ()
    addresses: dict[str, int] = {}
    reserved: dict[str, dict[str, int]] = {}
    missed_pods: frozenset[str] = frozenset()
    refused: dict[str, Refusals] = {}
    futile: dict[str, float] = {}
    sick: dict[str, SickNote] = {}
    proven: dict[str, float] = {}
    frozen_at: float = 0.0
    ledger: SpendingLedger | None = None
    counted: CountedSpending = CountedSpending()
    account_spending: AccountSpending = AccountSpending()


class Move(msgspec.Struct, frozen=True):
    """A change of a claim to a state."""

    claim: NodeClaim
    to: ClaimState
    changes: ClaimChanges = {}


Taken = Mapping[str, tuple[int, float]]
"""Number of instances of a capacity reservation and the epoch second until which they count, by launch token."""


def taken_now(taken: Mapping[str, Taken], now: float) -> dict[str, dict[str, int]]:
    """The numbers that still count, by reservation and token, sorted."""
    counted = {
        name: {token: number for token, (number, until) in sorted(taken[name].items()) if until > now and number}
        for name in sorted(taken)
    }
    return {name: tokens for name, tokens in counted.items() if tokens}


def may_take(taken: Taken, token: str, count: int, available: int, now: float) -> int:
    """The number of a reservation's instances that a launch may take."""
    others = sum(number for other, (number, until) in taken.items() if other != token and until > now)
    return max(min(count, available - others), 0)


def total_addresses(reservations: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Addresses by subnet id, added up over launches and sorted."""
    total: Counter[str] = Counter()
    for reservation in reservations:
        total.update(reservation)
    return {subnet: total[subnet] for subnet in sorted(total)}


def check_together(moves: Sequence[Move]) -> None:
    """Check that moves fit one transaction: each claim once, at most COMMIT_GROUP. Raises ConditionFailed."""
    if len(moves) > COMMIT_GROUP or len({(move.claim.cluster, move.claim.name) for move in moves}) < len(moves):
        raise ConditionFailed(f"{len(moves)} moves cannot be made together")


class StateStore(Protocol):
    """Table `state`: the epoch, claims, unavailable offerings and the launch ledger. All writes are conditional."""

    def read(self, cluster: str, now: float) -> DecisionState:
        """Read the epoch, then unsettled claims, offerings unavailable at `now` and missed pods, consistently.

        Everything is sorted by name. A new cluster is at epoch 0.
        """
        ...

    def epoch(self, cluster: str) -> int:
        """Read the epoch alone, consistently: while it is the same, no claim and no command was added."""
        ...

    def commit(
        self,
        cluster: str,
        epoch: int,
        claims: Sequence[NodeClaim],
        commands: Sequence[DisruptionCommand] = (),
        counted: CountChange | None = None,
    ) -> int:
        """Write commands and Planned claims unchanged and advance the epoch, atomically in groups of at most 99.

        Commands come first. Returns the new epoch; without anything to write the epoch stays. The claims are also the
        launch ledger: the number of nodes launched for a pod is the number of claims that list it. `counted` is what
        all of them add to the account's counters, written with the first group.

        Raises:
            EpochMoved: another decision was committed, or the account's counters moved too far. Groups written before
                stay and are resumed by others.
            ConditionFailed: a claim is not Planned, or a name is taken.
        """
        ...

    def commands(self, cluster: str) -> tuple[DisruptionCommand, ...]:
        """Read disruption commands that are not over, sorted by name, consistently."""
        ...

    def advance_command(
        self, command: DisruptionCommand, to: CommandState, **changes: Unpack[CommandChanges]
    ) -> DisruptionCommand:
        """Move a command to a state if it is unchanged since it was read; see `disruption.progress.advanced`.

        Raises ConditionFailed.
        """
        ...

    def claim(self, cluster: str, name: str) -> NodeClaim | None: ...

    def claim_of_instance(self, instance_id: str) -> NodeClaim | None:
        """Find a claim by instance id; the index may lag behind a launch."""
        ...

    def claims(self, cluster: str) -> tuple[NodeClaim, ...]:
        """Read claims that are not Gone, sorted by name; Failed ones until they expire."""
        ...

    def advance(self, claim: NodeClaim, to: ClaimState, **changes: Unpack[ClaimChanges]) -> NodeClaim:
        """Move a claim to a state if it is unchanged since it was read (see `advanced_claim`); returns the written one.

        Changes of the state include `changed_at`: an ended claim expires by it.
        Raises ConditionFailed.
        """
        ...

    def advance_all(self, moves: Sequence[Move]) -> tuple[NodeClaim, ...]:
        """Move all claims together, or none if any has changed since it was read.

        At most COMMIT_GROUP claims of at most COMMIT_BYTES. Raises ConditionFailed.
        """
        ...

    def ledger_claims(self, cluster: str) -> tuple[NodeClaim, ...]:
        """Read the claims as `claims`, and metered ones that are Gone until they are closed, sorted by name."""
        ...

    def post_ledger(self, cluster: str, ledger: SpendingLedger) -> bool:
        """Write a cluster's ledger if the stored one is of the version before; returns whether it was written."""
        ...

    def close_claims(self, claims: Sequence[NodeClaim]) -> None:
        """Leave Gone claims out of `ledger_claims` from now on: they are posted to their end."""
        ...

    def count_spending(self, cluster: str, change: CountChange) -> bool:
        """Add to the account's counters; returns False, and adds nothing, if the cluster's note is another by now."""
        ...

    def adopt(self, claim: NodeClaim) -> bool:
        """Write a claim in any state if its name is free, or a Failed claim's; returns whether it was written.

        After the table was restored, a claim may have failed of which EC2 has launched the instance after all.
        The epoch stays: the node is in service, and decisions see it with or without a claim.
        """
        ...

    def mark_unavailable(self, failures: Sequence[OfferingFailure], now: float) -> tuple[UnavailableOffering, ...]:
        """Note failed offerings for the whole account; waits double while failures repeat.

        Returns the new state once for each `scope` of the failures, sorted. Offerings that are unavailable at `now`
        stay unchanged (see `instances.offerings.unavailability`).
        """
        ...

    def relieve(self, offering: UnavailableOffering) -> None:
        """Note that a failed offering gave an instance; does nothing if it has changed since it was read."""
        ...

    def take_reserved(self, reservation_id: str, token: str, count: int, available: int, now: float) -> int:
        """Reserve a capacity reservation's instances for a launch for ADDRESSES_S seconds; returns the number granted.

        At most `available`, as EC2 has just described it, less what other launches take. A second call for a token
        replaces the first.
        """
        ...

    def reserve_addresses(self, token: str, addresses: Mapping[str, int], now: float) -> None:
        """Reserve addresses by subnet id for a launch for ADDRESSES_S seconds; a second call replaces the first."""
        ...

    def mark_missed(self, cluster: str, pod_uids: Sequence[str], now: float) -> None:
        """Note pods whose node was too small, for MISSED_FOR_S."""
        ...

    def mark_refused(self, cluster: str, pod_uid: str, refusals: Refusals) -> None:
        """Note for REFUSED_FOR_S that a pod does not run on nodes launched for it; a newer note stays."""
        ...

    def mark_futile(self, cluster: str, created_at: Mapping[str, float]) -> None:
        """Note futile claims by name, until FUTILE_FOR_S after their creation."""
        ...

    def mark_sick(self, cluster: str, notes: Mapping[str, SickNote]) -> None:
        """Note claims of sick nodes by name, for SICK_FOR_S."""
        ...

    def mark_proven(self, cluster: str, kinds: Sequence[str], now: float) -> None:
        """Note for PROVEN_FOR_S that nodes run pods of these kinds; see `flows.planning.unproven`."""
        ...

    def freeze(self, clusters: Sequence[str], now: float) -> float:
        """Stop all launches of the install until `unfreeze`; returns since when they are stopped.

        The epochs of these clusters advance, so that a decision which has not seen the freeze commits nothing. A second
        call keeps the first moment and advances the epochs again.
        """
        ...

    def unfreeze(self) -> None:
        """Let launches go on."""
        ...

    def frozen_at(self) -> float:
        """Return when all launches were frozen, epoch seconds; 0 if they are not."""
        ...


class JoinLog(Protocol):
    """The history of instances that become nodes: times by NodePool, successes and failures by AMI and type."""

    def read(self, cluster: str) -> JoinHistory:
        """Read everything, sorted by name."""
        ...

    def joined(
        self, cluster: str, pool: str, ami: str, instance_type: str, seconds: Sequence[float], now: float
    ) -> None:
        """Add nodes that were registered, each `seconds` after its launch."""
        ...

    def initialized(self, cluster: str, pool: str, seconds: Sequence[float], now: float) -> None:
        """Add nodes that were initialized, each `seconds` after its registration."""
        ...

    def failed(self, cluster: str, ami: str, instance_type: str, launched_at: float, now: float) -> None:
        """Add an instance that did not become an initialized node in time."""
        ...
